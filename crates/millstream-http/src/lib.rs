//! HTTP as a source of flows, as a destination of their outboxes, as a feed for browsers, and as a gateway of services.
//!
//! [`listen()`] is a source of the bodies of POST requests. In a run with a state directory each request is recorded in
//! a journal before it is answered with 200: an acknowledged item is not lost, and has its effect once, also after a
//! crash. [`post()`] delivers the records of an [outbox](millstream_flow::outbox) as POST requests. [`feed()`] sends a
//! stream to browsers, over WebSockets and as server-sent events. With the feature `gateway`, [`gateway()`] records
//! requests as calls of services, and feeds their calls.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::TcpStream;
//!
//! use millstream_flow::{Flow, Options, codec, testing};
//!
//! // Posts two items from another thread as soon as the source is bound.
//! let post = |address: &str| {
//!     let mut client = TcpStream::connect(address).unwrap();
//!     let body = "to\nbe\n";
//!     write!(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len()).unwrap();
//!     client
//! };
//! let source = millstream_http::listen("127.0.0.1:0")
//!     .body(millstream_http::Body::Lines)
//!     .requests(1)
//!     .on_bound(move |address| {
//!         let mut client = post(address);
//!         std::thread::Builder::new()
//!             .spawn(move || client.read_to_string(&mut String::new()))
//!             .unwrap();
//!     });
//! let (flow, words) = (Flow::new("words"), testing::Collected::new());
//! flow.source("words", codec::decode(source, codec::text)).sink("out", words.sink());
//! flow.run(Options::default())?;
//! assert_eq!(words.take(), ["to", "be"]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

#[doc(hidden)] // For the other crates of Millstream.
pub mod address;
mod budget;
mod connection;
mod feed;
#[cfg(feature = "gateway")]
mod gateway;
mod group_sync;
mod json;
mod listen;
mod origin;
#[doc(hidden)] // For the other crates of Millstream.
pub mod pages;
mod parts;
mod places;
mod post;
mod refusal;
mod request_body;
mod rules;
mod server;
mod stream;
mod token;
mod url;

pub use feed::{Feed, feed};
#[cfg(feature = "gateway")]
pub use gateway::{Gateway, GatewayServer, gateway};
pub use json::{check_json, is_json_type};
pub use listen::{Body, Digest, Hash, Item, Listen, Received, Replies, Reply, Signature, listen};
pub use post::{Batch, OAuth, Post, PostRequest, post, post_requests};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex whose poisoning does not matter: each value in it is consistent at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
