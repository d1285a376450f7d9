//! `#[derive(Wire)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{
    Data, DataEnum, DeriveInput, Error, Fields, GenericParam, Ident, Lifetime, Result, Type,
};

use crate::attributes::Attributes;
use crate::shape::{Shape, with_lifetime};

/// What the three traits consist of for one type.
struct Bodies {
    size_max: TokenStream,
    encode: TokenStream,
    decode: TokenStream,
    wire_type: TokenStream,
}

pub fn derive(input: TokenStream, wire: &TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let name = Attributes::of_type(&input.attrs)?.name(&input.ident.to_string());
    let bodies = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Unnamed(fields) if fields.unnamed.len() == 1 => {
                transparent(&fields.unnamed[0].ty, wire)
            }
            fields => of_struct(&name, fields, wire)?,
        },
        Data::Enum(data) => of_enum(&name, data, wire)?,
        Data::Union(_) => {
            return Err(Error::new_spanned(
                &input.ident,
                "a union cannot be a value of records",
            ));
        }
    };
    let anonymous = ty(&input, "'_")?;
    let borrowed = ty(&input, "'wire")?;
    let Bodies {
        size_max,
        encode,
        decode,
        wire_type,
    } = bodies;
    Ok(quote! {
        #[automatically_derived]
        impl #wire::Encode for #anonymous {
            #[inline]
            fn size_max(&self) -> usize {
                #size_max
            }
            #[inline]
            fn encode(&self, out: &mut #wire::Packer<'_>) -> #wire::Result<()> {
                #encode
            }
        }
        #[automatically_derived]
        impl<'wire> #wire::Decode<'wire> for #borrowed {
            #[inline]
            fn decode(values: &mut #wire::Unpacker<'wire>) -> #wire::Result<Self> {
                #decode
            }
        }
        #[automatically_derived]
        impl #wire::Typed for #anonymous {
            fn wire_type(types: &mut #wire::Types) -> #wire::Result<#wire::Type> {
                #wire_type
            }
        }
    })
}

/// The type with one lifetime for all that it has.
fn ty(input: &DeriveInput, lifetime: &str) -> Result<TokenStream> {
    let ident = &input.ident;
    let lifetime = Lifetime::new(lifetime, proc_macro2::Span::call_site());
    let mut lifetimes = Vec::new();
    for parameter in &input.generics.params {
        match parameter {
            GenericParam::Lifetime(_) => lifetimes.push(&lifetime),
            other => {
                let reason = "a value of records has one layout: type parameters are not supported";
                return Err(Error::new_spanned(other, reason));
            }
        }
    }
    Ok(if lifetimes.is_empty() {
        quote!(#ident)
    } else {
        quote!(#ident<#(#lifetimes),*>)
    })
}

fn transparent(inner: &Type, wire: &TokenStream) -> Bodies {
    let inner = with_lifetime(inner, "'static");
    Bodies {
        size_max: quote!(#wire::Encode::size_max(&self.0)),
        encode: quote!(#wire::Encode::encode(&self.0, out)),
        decode: quote!(::core::result::Result::Ok(Self(#wire::Decode::decode(values)?))),
        wire_type: quote!(<#inner as #wire::Typed>::wire_type(types)),
    }
}

fn of_struct(name: &str, fields: &Fields, wire: &TokenStream) -> Result<Bodies> {
    let shape = Shape::of(fields)?;
    let pattern = shape.pattern();
    let count = shape.len();
    let sizes = shape.size_max(wire);
    let encode = shape.encode(wire);
    let decode = shape.decode(wire);
    let schema = shape.schema(wire);
    let definition = define(name, &quote!(Struct(#schema)), wire);
    Ok(Bodies {
        size_max: quote! {
            let Self #pattern = self;
            #wire::HEAD_SIZE_MAX + #sizes
        },
        encode: quote! {
            let Self #pattern = self;
            out.array(#count)?;
            out.deeper(|out| {
                #encode
                ::core::result::Result::Ok(())
            })
        },
        decode: quote! {
            values.array_of(#count)?;
            values.deeper(|values| ::core::result::Result::Ok(Self #decode))
        },
        wire_type: definition,
    })
}

fn of_enum(name: &str, data: &DataEnum, wire: &TokenStream) -> Result<Bodies> {
    let mut sizes = Vec::new();
    let mut encodes = Vec::new();
    let mut decodes = Vec::new();
    let mut schemas = Vec::new();
    for (at, variant) in data.variants.iter().enumerate() {
        let ident = &variant.ident;
        let number = at as u64;
        let attributes = Attributes::of(&variant.attrs)?.without_default(&variant.attrs)?;
        let shape = Shape::of(&variant.fields)?;
        let pattern = shape.pattern();
        let count = shape.len();
        let size = shape.size_max(wire);
        let encode = shape.encode(wire);
        let decode = shape.decode(wire);
        sizes.push(
            quote!(Self::#ident #pattern => #wire::HEAD_SIZE_MAX + #wire::HEAD_SIZE_MAX + #size),
        );
        encodes.push(quote! {
            Self::#ident #pattern => {
                out.variant(#number, #count)?;
                out.deeper(|out| {
                    #encode
                    ::core::result::Result::Ok(())
                })
            }
        });
        decodes.push(quote! {
            #number => {
                values.variant_fields(found, #count)?;
                values.deeper(|values| ::core::result::Result::Ok(Self::#ident #decode))
            }
        });
        schemas.push(variant_schema(ident, &attributes, &shape, wire));
    }
    let definition = define(name, &quote!(Enum(::std::vec![#(#schemas),*])), wire);
    Ok(Bodies {
        size_max: quote!(match self { #(#sizes),* }),
        encode: quote!(match self { #(#encodes),* }),
        decode: quote! {
            let (number, found) = values.variant()?;
            match number {
                #(#decodes)*
                other => ::core::result::Result::Err(values.no_variant(other)),
            }
        },
        wire_type: definition,
    })
}

fn variant_schema(
    ident: &Ident,
    attributes: &Attributes,
    shape: &Shape,
    wire: &TokenStream,
) -> TokenStream {
    let name = attributes.name(&ident.to_string());
    let aliases = attributes.aliases();
    let schema = shape.schema(wire);
    quote!(#wire::Variant::new(#name, #schema) #aliases)
}

fn define(name: &str, shape: &TokenStream, wire: &TokenStream) -> TokenStream {
    quote! {
        const PATH: &str = ::core::concat!(::core::module_path!(), "::", #name);
        types.define(PATH, #name, |types| ::core::result::Result::Ok(#wire::Shape::#shape))
    }
}
