//! `#[derive(Key)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{
    Attribute, Data, DataEnum, DeriveInput, Error, Fields, Generics, Ident, LitStr, Member, Result,
    parse_quote,
};

/// What the methods of the trait consist of for one type.
struct Bodies {
    hash: TokenStream,
    save: TokenStream,
    load: TokenStream,
}

pub fn derive(input: TokenStream, flow: &TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let key = quote!(#flow::key);
    let Bodies { hash, save, load } = match &input.data {
        Data::Struct(data) => of_struct(&data.fields, &key),
        Data::Enum(data) => of_enum(&input.ident, data, &key)?,
        Data::Union(_) => {
            return Err(Error::new_spanned(&input.ident, "a union cannot be a key"));
        }
    };
    let ident = &input.ident;
    let generics = bounded(&input.generics, &key)?;
    let (parameters, arguments, bounds) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #parameters #key::Key for #ident #arguments #bounds {
            #[inline]
            fn stable_hash(&self) -> u64 {
                #hash
            }
            fn save(&self, out: &mut ::std::vec::Vec<u8>) {
                #save
            }
            fn load(bytes: &mut &[u8]) -> ::core::option::Option<Self> {
                #load
            }
        }
    })
}

/// The generics, with types that are keys.
fn bounded(generics: &Generics, key: &TokenStream) -> Result<Generics> {
    if let Some(lifetime) = generics.lifetimes().next() {
        let reason = "a key lives as long as the flow: it has no lifetimes. Use String or Arc<str> in place of &str";
        return Err(Error::new_spanned(lifetime, reason));
    }
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#key::Key));
    }
    Ok(generics)
}

/// The members of fields, and what they are called inside a match.
fn parts(fields: &Fields) -> (Vec<Member>, Vec<Ident>) {
    let bindings = (0..fields.len()).map(|at| format_ident!("field_{at}"));
    (fields.members().collect(), bindings.collect())
}

fn of_struct(fields: &Fields, key: &TokenStream) -> Bodies {
    let (members, bindings) = parts(fields);
    if let (Fields::Unnamed(_), [member]) = (fields, &members[..]) {
        return Bodies {
            hash: quote!(#key::Key::stable_hash(&self.#member)),
            save: quote!(#key::Key::save(&self.#member, out)),
            load: quote!(::core::option::Option::Some(Self(#key::Key::load(bytes)?))),
        };
    }
    let count = members.len() as u32;
    let pattern = quote!(Self { #(#members: #bindings),* });
    Bodies {
        hash: quote! {
            let #pattern = self;
            #key::hash_tuple(&[#(#key::Key::stable_hash(#bindings)),*])
        },
        save: quote! {
            let #pattern = self;
            #key::save_tuple(#count, out);
            #(#key::Key::save(#bindings, out);)*
        },
        load: quote! {
            #key::load_tuple(bytes, #count)?;
            ::core::option::Option::Some(Self { #(#members: #key::Key::load(bytes)?),* })
        },
    }
}

fn of_enum(ident: &Ident, data: &DataEnum, key: &TokenStream) -> Result<Bodies> {
    if data.variants.is_empty() {
        let reason = "an enum without variants has no keys";
        return Err(Error::new_spanned(ident, reason));
    }
    let mut hashes = Vec::new();
    let mut saves = Vec::new();
    let mut loads = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for variant in &data.variants {
        let name = name_of(&variant.attrs, &variant.ident)?;
        if names.contains(&name) {
            let reason = format!("two variants are called {name:?}");
            return Err(Error::new_spanned(variant, reason));
        }
        names.push(name.clone());
        let own = &variant.ident;
        let (members, bindings) = parts(&variant.fields);
        if members.is_empty() {
            hashes.push(quote!(Self::#own { .. } => #key::hash_text(#name.as_bytes()),));
            saves.push(quote!(Self::#own { .. } => #key::save_text(#name, out),));
            loads.push(quote!((#name, 0) => ::core::option::Option::Some(Self::#own {}),));
            continue;
        }
        let count = members.len() as u32;
        let pattern = quote!({ #(#members: #bindings),* });
        hashes.push(quote! {
            Self::#own #pattern => #key::hash_tuple(&[
                #key::hash_text(#name.as_bytes()),
                #(#key::Key::stable_hash(#bindings)),*
            ]),
        });
        saves.push(quote! {
            Self::#own #pattern => {
                #key::save_tuple(1 + #count, out);
                #key::save_text(#name, out);
                #(#key::Key::save(#bindings, out);)*
            }
        });
        loads.push(quote! {
            (#name, #count) => ::core::option::Option::Some(Self::#own {
                #(#members: #key::Key::load(bytes)?),*
            }),
        });
    }
    Ok(Bodies {
        hash: quote!(match self { #(#hashes)* }),
        save: quote!(match self { #(#saves)* }),
        load: quote! {
            let (name, fields) = #key::load_variant(bytes)?;
            match (name.as_str(), fields) {
                #(#loads)*
                _ => ::core::option::Option::None,
            }
        },
    })
}

/// The name of a variant in its key: `#[key(rename = "...")]`, or its own.
fn name_of(attributes: &[Attribute], ident: &Ident) -> Result<String> {
    let mut name = ident.to_string().trim_start_matches("r#").to_owned();
    for attribute in attributes.iter().filter(|it| it.path().is_ident("key")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("rename") {
                return Err(meta.error("expected rename"));
            }
            let given: LitStr = meta.value()?.parse()?;
            name = given.value();
            Ok(())
        })?;
    }
    Ok(name)
}
