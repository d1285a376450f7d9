//! What `#[wire(...)]` says about a field, a variant, a method or a type.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::meta::ParseNestedMeta;
use syn::{Attribute, Expr, LitStr, Result, Token};

#[derive(Default)]
pub struct Attributes {
    pub rename: Option<LitStr>,
    pub aliases: Vec<LitStr>,
    pub default: Option<DefaultValue>,
}

pub enum DefaultValue {
    OfType,
    Given(Box<Expr>),
}

impl Attributes {
    pub fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|it| it.path().is_ident("wire")) {
            attribute.parse_nested_meta(|meta| found.take(&meta))?;
        }
        Ok(found)
    }

    /// Those of something that can only have another name.
    pub fn of_type(attributes: &[Attribute]) -> Result<Self> {
        let found = Self::of(attributes)?;
        if let Some(alias) = found.aliases.first() {
            return Err(syn::Error::new_spanned(
                alias,
                "a type needs no alias: its name is not compared",
            ));
        }
        found.without_default(attributes)
    }

    /// Refuses a default where there is nothing that it could stand for.
    pub fn without_default(self, attributes: &[Attribute]) -> Result<Self> {
        match (&self.default, attributes.first()) {
            (Some(_), Some(attribute)) => {
                let reason = "only a field or an argument has a default";
                Err(syn::Error::new_spanned(attribute, reason))
            }
            _ => Ok(self),
        }
    }

    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> Result<()> {
        if meta.path.is_ident("rename") {
            self.rename = Some(meta.value()?.parse()?);
        } else if meta.path.is_ident("alias") {
            self.aliases.push(meta.value()?.parse()?);
        } else if meta.path.is_ident("default") {
            self.default = Some(if meta.input.peek(Token![=]) {
                DefaultValue::Given(Box::new(meta.value()?.parse()?))
            } else {
                DefaultValue::OfType
            });
        } else {
            return Err(meta.error("expected rename, alias or default"));
        }
        Ok(())
    }

    /// The name in the schema.
    pub fn name(&self, name: &str) -> String {
        let renamed = self.rename.as_ref().map(LitStr::value);
        renamed.unwrap_or_else(|| name.trim_start_matches("r#").to_owned())
    }

    /// `.aliases(...)` after the expression that makes a field, variant or method.
    pub fn aliases(&self) -> TokenStream {
        let aliases = &self.aliases;
        if aliases.is_empty() {
            return TokenStream::new();
        }
        quote!(.aliases(&[#(#aliases),*]))
    }

    /// `.default_value(...)?` after the expression that makes a field of type `ty`.
    pub fn default_value(&self, ty: &impl ToTokens) -> TokenStream {
        match &self.default {
            None => TokenStream::new(),
            Some(DefaultValue::OfType) => {
                quote!(.default_value(&<#ty as ::core::default::Default>::default())?)
            }
            Some(DefaultValue::Given(value)) => {
                quote!(.default_value::<#ty>(&#value)?)
            }
        }
    }
}
