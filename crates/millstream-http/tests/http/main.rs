//! HTTP sources and sinks with real sockets.

#![expect(clippy::unwrap_used, reason = "tests")]

mod feed;
#[cfg(feature = "gateway")]
mod gateway;
#[cfg(feature = "gateway")]
mod gateway_answers;
#[cfg(feature = "gateway")]
mod gateway_once;
mod gateway_resume;
mod listen;
mod listen_limits;
mod listen_recovery;
mod post;
mod support;
