//! Macros of services: they write the encoding and decoding of arguments, and the publisher and the dispatcher of an
//! interface. Of flows: they write the hash and the encoding of keys.
//!
//! Each macro has two forms. One refers to `::millstream_wire` or `::millstream_flow`, for crates that use that crate
//! itself. The other refers to `::millstream::wire` or `::millstream::flow`, and the crate `millstream` exports it
//! under the plain name.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod attributes;
mod interface;
mod key;
mod shape;
mod wire;

use proc_macro::TokenStream;
use quote::quote;

/// Makes a struct or an enum a value of records: implements `Encode`, `Decode` and `Typed`.
///
/// Fields may be numbers, `bool`, `char`, strings, `Vec`, arrays, `BTreeMap`, `HashMap`, `Option`, `Duration`,
/// `SystemTime`, `Timestamp`, `Decimal` and other types with this derive; `&str`, `&[u8]` and `Cow` of them borrow from
/// the record. A struct of one unnamed field is that field.
///
/// `#[wire(...)]` on a field, variant or type:
/// - `rename = "clOrdID"`: its name in schema and texts;
/// - `alias = "orderId"`: a former name of it; may be given several times;
/// - `default`, `default = 7`: what is read where a record of another version, or a text, has no such field.
#[proc_macro_derive(Wire, attributes(wire))]
pub fn wire(input: TokenStream) -> TokenStream {
    expand(wire::derive(input.into(), &quote!(::millstream_wire)))
}

/// Makes a struct or an enum a value of records, as [`Wire`](derive@Wire) does, for users of the crate `millstream`,
/// which exports it as `millstream::Wire`.
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

/// Makes a trait the interface of a service, as [`macro@interface`] does, for users of the crate `millstream`, which
/// exports it as `millstream::interface`.
#[proc_macro_attribute]
pub fn millstream_interface(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let path = quote!(::millstream::wire);
    expand(interface::interface(arguments.into(), item.into(), &path))
}

/// Makes a struct or an enum a key of flows: implements `Key`, with a hash that is the same in every process and
/// version of the program.
///
/// Every field is a key: text, bytes, an integer, `bool`, `char`, an `Option` or a tuple of keys, or another type with
/// this derive. The type derives `Clone`, `Debug`, `PartialEq`, `Eq` and `Hash` too.
///
/// - A struct of one unnamed field is that field: `struct User(u64)` is the same key as the `u64`.
/// - Any other struct is the tuple of its fields, in their order.
/// - A variant without fields is its name as text, one with fields the tuple of its name and the fields.
///   `#[key(rename = "...")]` on a variant gives it another name.
///
/// So another order of the fields, and another name of a variant, are other keys: saved state of the former ones is not
/// found.
#[proc_macro_derive(Key, attributes(key))]
pub fn key(input: TokenStream) -> TokenStream {
    expand(key::derive(input.into(), &quote!(::millstream_flow)))
}

/// Makes a struct or an enum a key of flows, as [`Key`](derive@Key) does, for users of the crate `millstream`, which
/// exports it as `millstream::Key`.
#[proc_macro_derive(MillstreamKey, attributes(key))]
pub fn millstream_key(input: TokenStream) -> TokenStream {
    expand(key::derive(input.into(), &quote!(::millstream::flow)))
}

fn expand(tokens: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    tokens.unwrap_or_else(syn::Error::into_compile_error).into()
}
