//! The memcache text protocol with the extensions of queue servers: bytes in, requests out, reply bytes out.
//!
//! No module here reads a socket or knows a queue. A [`Parser`] gets all bytes that are not yet used. It finds the
//! first complete request in them and borrows its parts, so that an item is copied once, into its queue. Limits hold
//! for whatever a peer sends, and nothing recurses.
//!
//! The invariant: how the stream is divided into reads changes neither the requests nor the replies.
//!
//! ```
//! use millstream_queue::protocol::{Limits, Parsed, Parser, Request};
//!
//! let mut parser = Parser::new(Limits::default());
//! let Parsed::Request { request: Request::Set(set), used } = parser.parse(b"set jobs 0 0 5\r\nhello\r\nget jobs\r\n") else {
//!     panic!("a set was sent");
//! };
//! assert_eq!((set.data, used), (&b"hello"[..], 23));
//! assert!(matches!(parser.parse(b"get jo"), Parsed::More { .. }));
//! ```

mod key;
mod parser;
pub mod reply;
mod request;

pub use key::{GetKey, KeyFault, SetKey, TouchKey};
pub use parser::{Limits, Parsed, Parser, item_id};
pub use request::{Get, Request, Set, Tokens, Touch};

#[cfg(test)]
mod tests;
