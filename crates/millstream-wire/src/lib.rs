//! Typed values and method calls as compact bytes, as YAML and as JSON, both ways.
//!
//! A record of a service's journal is a method call. It holds values by position ([MessagePack](https://msgpack.org));
//! the names are in a [`Schema`], a record too, so that a journal can be read by people and by programs that lack the
//! types. Nothing here does any I/O, and nothing panics for any bytes or text.
//!
//! - [`macro@interface`], [`Publisher`], [`Dispatch`]: a trait whose calls are records.
//! - [`derive@Wire`], which is [`Encode`], [`Decode`], [`Typed`]: Rust values, without a copy where the type borrows.
//! - [`Value`]: any value with the names of its fields, from bytes, from YAML, from JSON and back.
//! - [`Call`], [`Record`], [`Catalog`]: the contents of a record.
//! - [`Adapter`]: records of another version of the interface.
//! - [`Document`]: the calls of a YAML file, whose comments survive when it is rewritten.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod adapt;
mod call;
mod check;
mod decode;
mod document;
mod encode;
mod error;
mod interface;
mod json;
mod limits;
mod node;
mod pack;
mod publisher;
mod record;
mod scalars;
mod schema;
mod standard;
mod text;
mod typed;
mod types;
mod unpack;
mod value;

pub use adapt::Adapter;
pub use call::{Call, Catalog};
pub use decode::{Decode, decode_field, unpacked};
pub use document::{Document, carry_comments, documents};
pub use encode::{Encode, HEAD_SIZE_MAX, packed};
pub use error::{Misfit, Result, WireError};
pub use interface::{CallError, Cause, Dispatch, Interface, Recorder, Refused, Transport};
pub use json::NamedValues;
pub use limits::{DEPTH_MAX, NAMES_MAX};
pub use millstream_macros::{Wire, interface};
pub use pack::{Packer, pack};
pub use publisher::Publisher;
pub use record::{Head, InputName, KeyedCall, Lineage, Note, Record, Take};
pub use scalars::{Decimal, Timestamp, narrowed};
pub use schema::{Definition, Field, Method, Schema, Shape, Type, Variant};
pub use typed::Typed;
pub use types::Types;
pub use unpack::Unpacker;
pub use value::Value;
