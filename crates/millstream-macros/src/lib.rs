//! Macros of services: they write the encoding and decoding of arguments, and the publisher and the dispatcher of an interface.
//!
//! Each macro has two forms. One refers to `::millstream_wire`, for crates that use the wire crate itself. The other refers to
//! `::millstream::wire`, and the crate `millstream` exports it under the plain name.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod attributes;
mod interface;
mod shape;
mod wire;

use proc_macro::TokenStream;
use quote::quote;

/// Makes a struct or an enum a value of records: implements `Encode`, `Decode` and `Typed`.
///
/// Fields may be numbers, `bool`, `char`, strings, `Vec`, `BTreeMap`, `Option`, `Timestamp`, `Decimal` and other types with this
/// derive; `&str`, `&[u8]` and `Cow` of them borrow from the record. A struct of one unnamed field is that field.
///
/// `#[wire(...)]` on a field, variant or type:
/// - `rename = "clOrdID"`: its name in schema and texts;
/// - `alias = "orderId"`: a former name of it; may be given several times;
/// - `default`, `default = 7`: what is read where a record of another version, or a text, has no such field.
#[proc_macro_derive(Wire, attributes(wire))]
pub fn wire(input: TokenStream) -> TokenStream {
    expand(wire::derive(input.into(), &quote!(::millstream_wire)))
}

/// Makes a struct or an enum a value of records, as [`Wire`](derive@Wire) does, for users of the crate `millstream`, which exports it
/// as `millstream::Wire`.
#[proc_macro_derive(MillstreamWire, attributes(wire))]
pub fn millstream_wire(input: TokenStream) -> TokenStream {
    expand(wire::derive(input.into(), &quote!(::millstream::wire)))
}

/// Makes a trait the interface of a service: `Publisher<dyn Trait, _>` implements it, `dyn Trait` has a schema and
/// dispatches records to whatever implements it.
///
/// Methods take `&mut self` and arguments that derive `Wire`, by value or by reference, and return nothing or a
/// `Result<(), E>`. `#[interface(version = 2, rename = "Orders")]`; methods and arguments take the same
/// `#[wire(...)]` as fields.
#[proc_macro_attribute]
pub fn interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let path = quote!(::millstream_wire);
    expand(interface::interface(arguments.into(), item.into(), &path))
}

/// Makes a trait the interface of a service, as [`macro@interface`] does, for users of the crate `millstream`, which exports it as
/// `millstream::interface`.
#[proc_macro_attribute]
pub fn millstream_interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let path = quote!(::millstream::wire);
    expand(interface::interface(arguments.into(), item.into(), &path))
}

fn expand(tokens: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    tokens.unwrap_or_else(syn::Error::into_compile_error).into()
}
