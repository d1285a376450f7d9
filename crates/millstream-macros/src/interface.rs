//! `#[interface]`.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Error, FnArg, ItemTrait, LitInt, LitStr, Pat, Result, ReturnType, Signature, TraitItem,
    TraitItemFn, Type,
};

use crate::attributes::Attributes;
use crate::shape::{field_schema, with_lifetime};

/// A method of the trait.
struct Method {
    signature: Signature,
    /// Its name in the schema.
    name: String,
    attributes: Attributes,
    arguments: Vec<Argument>,
    /// Whether it returns a `Result`.
    fails: bool,
}

struct Argument {
    ident: syn::Ident,
    name: String,
    ty: Type,
    attributes: Attributes,
}

pub fn interface(
    arguments: TokenStream,
    item: TokenStream,
    wire: &TokenStream,
) -> Result<TokenStream> {
    let (version, rename) = options(arguments)?;
    let mut item: ItemTrait = syn::parse2(item)?;
    if let Some(parameter) = item.generics.params.first() {
        return Err(Error::new_spanned(
            parameter,
            "an interface has no parameters",
        ));
    }
    let mut methods = Vec::new();
    for item in &mut item.items {
        match item {
            TraitItem::Fn(method) => methods.push(Method::of(method)?),
            other => {
                return Err(Error::new_spanned(
                    other,
                    "an interface consists of methods",
                ));
            }
        }
    }
    let ident = &item.ident;
    let name = rename.map_or_else(|| ident.to_string(), |rename| rename.value());
    let schemas = methods.iter().map(|method| method.schema(wire));
    let publish = numbered(&methods).map(|(number, method)| method.publish(number, wire));
    let dispatch = numbered(&methods).map(|(number, method)| method.dispatch(number, wire));
    Ok(quote! {
        #item

        impl #wire::Interface for dyn #ident {
            fn schema() -> #wire::Result<#wire::Schema> {
                let mut collected = #wire::Types::new(#name);
                let types = &mut collected;
                let methods = ::std::vec![#(#schemas),*];
                collected.schema(#version, methods)
            }
        }

        impl<__Transport: #wire::Transport> #ident for #wire::Publisher<dyn #ident, __Transport> {
            #(#publish)*
        }

        impl<__Component: #ident + ?Sized> #wire::Dispatch<__Component> for dyn #ident {
            #[inline]
            fn dispatch(
                __component: &mut __Component,
                __method: u64,
                mut __arguments: #wire::Unpacker<'_>,
            ) -> ::core::result::Result<(), #wire::CallError> {
                let __values = &mut __arguments;
                match __method {
                    #(#dispatch)*
                    other => ::core::result::Result::Err(#wire::CallError::unknown_method(#name, other)),
                }
            }
        }
    })
}

/// The version and the name of `#[interface(...)]`.
fn options(arguments: TokenStream) -> Result<(u32, Option<LitStr>)> {
    let mut version = None::<LitInt>;
    let mut rename = None::<LitStr>;
    let parser = syn::meta::parser(|meta| {
        if meta.path.is_ident("version") {
            version = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("rename") {
            rename = Some(meta.value()?.parse()?);
        } else {
            return Err(meta.error("expected version or rename"));
        }
        Ok(())
    });
    syn::parse::Parser::parse2(parser, arguments)?;
    let version = match version {
        Some(version) => version.base10_parse()?,
        None => 1,
    };
    Ok((version, rename))
}

/// Methods with their numbers in a record.
fn numbered(methods: &[Method]) -> impl Iterator<Item = (u64, &Method)> {
    (1..).zip(methods)
}

impl Method {
    /// Reads a method and takes our attributes off it.
    fn of(method: &mut TraitItemFn) -> Result<Self> {
        let attributes = Attributes::of(&method.attrs)?.without_default(&method.attrs)?;
        method
            .attrs
            .retain(|attribute| !attribute.path().is_ident("wire"));
        let signature = &mut method.sig;
        if let Some(parameter) = signature.generics.type_params().next() {
            let reason = "a method of an interface has no type parameters";
            return Err(Error::new_spanned(parameter, reason));
        }
        if signature.asyncness.is_some() {
            let reason = "a method of an interface is not async";
            return Err(Error::new_spanned(signature, reason));
        }
        let fails = match &signature.output {
            ReturnType::Default => false,
            ReturnType::Type(_, ty) => fails(ty)?,
        };
        let mut inputs = signature.inputs.iter_mut();
        match inputs.next() {
            Some(FnArg::Receiver(it)) if it.reference.is_some() && it.mutability.is_some() => {}
            _ => {
                let reason = "a method of an interface takes &mut self";
                return Err(Error::new_spanned(&method.sig.ident, reason));
            }
        }
        let arguments = inputs.map(Argument::of).collect::<Result<_>>()?;
        Ok(Self {
            name: attributes.name(&signature.ident.to_string()),
            signature: signature.clone(),
            attributes,
            arguments,
            fails,
        })
    }

    fn schema(&self, wire: &TokenStream) -> TokenStream {
        let name = &self.name;
        let aliases = self.attributes.aliases();
        let arguments = self
            .arguments
            .iter()
            .map(|argument| field_schema(&argument.name, &argument.ty, &argument.attributes, wire));
        quote!(#wire::Method::new(#name, ::std::vec![#(#arguments),*]) #aliases)
    }

    fn publish(&self, number: u64, wire: &TokenStream) -> TokenStream {
        let signature = &self.signature;
        let count = self.arguments.len();
        let idents: Vec<_> = self
            .arguments
            .iter()
            .map(|argument| &argument.ident)
            .collect();
        let publish = quote! {
            let __size_max = 0 #(+ #wire::Encode::size_max(&#idents))*;
            let __published = self.publish(#number, #count, __size_max, |__out| {
                #(#wire::Encode::encode(&#idents, __out)?;)*
                ::core::result::Result::Ok(())
            });
        };
        let store_error = if self.fails {
            quote!(__published.map_err(::core::convert::From::from))
        } else {
            quote!(self.store_error(__published))
        };
        quote! {
            #[inline]
            #signature {
                #publish
                #store_error
            }
        }
    }

    fn dispatch(&self, number: u64, wire: &TokenStream) -> TokenStream {
        let ident = &self.signature.ident;
        let name = &self.name;
        let reads = self
            .arguments
            .iter()
            .map(|argument| argument.read(name, wire));
        let passed = self.arguments.iter().map(Argument::passed);
        let call = quote!(__component.#ident(#(#passed),*));
        let call = if self.fails {
            quote!(#call.map_err(|cause| #wire::CallError::component(#name, cause)))
        } else {
            quote!({ #call; ::core::result::Result::Ok(()) })
        };
        quote! {
            #number => {
                #(#reads)*
                __values.end().map_err(|error| error.within(#name))?;
                #call
            }
        }
    }
}

/// Whether what a method returns is a `Result`; anything but `()` and that is an error.
fn fails(ty: &Type) -> Result<bool> {
    match ty {
        Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(false),
        Type::Path(path)
            if path
                .path
                .segments
                .last()
                .is_some_and(|it| it.ident == "Result") =>
        {
            Ok(true)
        }
        other => {
            let reason =
                "a call is a record and gets no answer: return nothing, or a Result<(), E>";
            Err(Error::new_spanned(other, reason))
        }
    }
}

impl Argument {
    fn of(argument: &mut FnArg) -> Result<Self> {
        let FnArg::Typed(argument) = argument else {
            return Err(Error::new_spanned(argument, "there is one self"));
        };
        let attributes = Attributes::of(&argument.attrs)?;
        argument
            .attrs
            .retain(|attribute| !attribute.path().is_ident("wire"));
        let Pat::Ident(pattern) = &*argument.pat else {
            return Err(Error::new_spanned(
                &argument.pat,
                "an argument needs a name",
            ));
        };
        Ok(Self {
            ident: pattern.ident.clone(),
            name: attributes.name(&pattern.ident.to_string()),
            ty: (*argument.ty).clone(),
            attributes,
        })
    }

    /// The type to which the reference of the method points, unless records lend that reference themselves.
    fn referent(&self) -> Option<&Type> {
        let Type::Reference(reference) = &self.ty else {
            return None;
        };
        match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => None,
            Type::Slice(slice) if slice.elem.to_token_stream().to_string() == "u8" => None,
            referent => Some(referent),
        }
    }

    fn read(&self, method: &str, wire: &TokenStream) -> TokenStream {
        let ident = &self.ident;
        let name = &self.name;
        let ty = match self.referent() {
            Some(Type::Slice(slice)) => {
                let item = with_lifetime(&slice.elem, "'_");
                quote!(::std::vec::Vec<#item>)
            }
            Some(referent) => with_lifetime(referent, "'_").to_token_stream(),
            None => with_lifetime(&self.ty, "'_").to_token_stream(),
        };
        quote! {
            let #ident: #ty = #wire::decode_field(__values, #name).map_err(|error| error.within(#method))?;
        }
    }

    fn passed(&self) -> TokenStream {
        let ident = &self.ident;
        match self.referent() {
            Some(_) => quote!(&#ident),
            None => quote!(#ident),
        }
    }
}
