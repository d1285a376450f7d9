//! The fields of a struct or of a variant, as the three traits need them.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::visit_mut::{VisitMut, visit_type_reference_mut};
use syn::{Fields, Ident, Lifetime, Member, Result, Type, TypeReference};

use crate::attributes::Attributes;

pub struct Shape {
    fields: Vec<Field>,
}

struct Field {
    member: Member,
    /// What the field is called inside a match.
    binding: Ident,
    name: String,
    ty: Type,
    attributes: Attributes,
}

impl Shape {
    pub fn of(fields: &Fields) -> Result<Self> {
        let field = |(at, field): (usize, &syn::Field)| {
            let attributes = Attributes::of(&field.attrs)?;
            let name = match &field.ident {
                Some(ident) => ident.to_string(),
                None => at.to_string(),
            };
            Ok(Field {
                member: field.ident.clone().map_or(Member::from(at), Member::from),
                binding: format_ident!("field_{at}"),
                name: attributes.name(&name),
                ty: field.ty.clone(),
                attributes,
            })
        };
        let fields = fields
            .iter()
            .enumerate()
            .map(field)
            .collect::<Result<_>>()?;
        Ok(Self { fields })
    }

    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// `{ member: binding, ... }`, which fits unnamed fields too.
    pub fn pattern(&self) -> TokenStream {
        let parts = self.fields.iter().map(
            |Field {
                 member, binding, ..
             }| quote!(#member: #binding),
        );
        quote!({ #(#parts),* })
    }

    /// An upper bound of what the fields take, by their bindings.
    pub fn size_max(&self, wire: &TokenStream) -> TokenStream {
        let sizes = self
            .fields
            .iter()
            .map(|Field { binding, .. }| quote!(+ #wire::Encode::size_max(#binding)));
        quote!(0 #(#sizes)*)
    }

    /// Writes the fields, by their bindings.
    pub fn encode(&self, wire: &TokenStream) -> TokenStream {
        let fields = self
            .fields
            .iter()
            .map(|Field { binding, .. }| quote!(#wire::Encode::encode(#binding, out)?;));
        quote!(#(#fields)*)
    }

    /// `{ member: value, ... }`, read one after the other.
    pub fn decode(&self, wire: &TokenStream) -> TokenStream {
        let fields = self
            .fields
            .iter()
            .map(|Field { member, name, .. }| quote!(#member: #wire::decode_field(values, #name)?));
        quote!({ #(#fields),* })
    }

    /// `vec![Field::new(...), ...]`
    pub fn schema(&self, wire: &TokenStream) -> TokenStream {
        let fields = self.fields.iter().map(|field| {
            let name = &field.name;
            let ty = &field.ty;
            field_schema(name, ty, &field.attributes, wire)
        });
        quote!(::std::vec![#(#fields),*])
    }
}

/// The expression that describes a field or an argument.
pub fn field_schema(
    name: &str,
    ty: &Type,
    attributes: &Attributes,
    wire: &TokenStream,
) -> TokenStream {
    let ty = with_lifetime(ty, "'static");
    let aliases = attributes.aliases();
    let default = attributes.default_value(&ty);
    quote! {
        #wire::Field::new(#name, <#ty as #wire::Typed>::wire_type(types)?) #aliases #default
    }
}

/// The type with all its lifetimes replaced.
pub fn with_lifetime(ty: &Type, lifetime: &str) -> Type {
    struct Replace(Lifetime);
    impl VisitMut for Replace {
        fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
            *lifetime = self.0.clone();
        }
        fn visit_type_reference_mut(&mut self, reference: &mut TypeReference) {
            reference.lifetime = Some(self.0.clone());
            visit_type_reference_mut(self, reference);
        }
    }
    let mut ty = ty.clone();
    let lifetime = Lifetime::new(lifetime, proc_macro2::Span::call_site());
    Replace(lifetime).visit_type_mut(&mut ty);
    ty
}
