//! Connections between machines, and between processes of one: TLS or none, a proof of a shared secret, frames with
//! checksums.
//!
//! Nothing here knows what is sent. A protocol brings its words and labels ([`Protocol`]), its kinds of messages
//! ([`FrameKind`]), and their types, which [`encode`] and [`decode`] turn into bytes and back.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//! use millstream_link::{CallerSide, ListenerSide, Protocol, Secret, connect};
//!
//! static PROTOCOL: Protocol = Protocol {
//!     magic: b"MSSAMPLE",
//!     version: 1,
//!     label: "example 1",
//!     listener: "server",
//!     caller: "client",
//!     client_authorities: "--tls-client-ca",
//!     closed_early: "",
//! };
//! let secret = Secret::new(b"at least sixteen bytes")?;
//! let (near, far) = std::os::unix::net::UnixStream::pair()?;
//! let wait = Duration::from_secs(10);
//! let listener = std::thread::spawn(move || {
//!     let side = ListenerSide::new(&PROTOCOL, None, true)?;
//!     let accepted = side.accept(far.into(), wait, wait, &AtomicBool::new(false))?;
//!     Ok::<_, millstream_link::LinkError>(accepted.map(|(stream, _)| stream))
//! });
//! let side = CallerSide::new(&PROTOCOL, "server", None, true)?;
//! let caller = connect(near.into(), &PROTOCOL, side.as_ref(), wait, wait)?;
//! let accepted = listener.join().expect("no panic")?.expect("not stopped");
//!
//! let proof = caller.credential(Some(&secret)).expect("TLS").prove(millstream_link::Side::Caller, b"hello");
//! let verifier = accepted.credential(Some(&secret)).expect("TLS");
//! assert!(verifier.is_proved(millstream_link::Side::Caller, b"hello", &proof));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod address;
mod certificate;
mod deadline;
mod error;
#[doc(hidden)] // For the other crates of Millstream.
pub mod frames;
mod greeting;
mod limited;
mod message;
mod protocol;
mod raw_key;
mod secret;
mod socket;
mod stream;
mod tls;

pub use address::Address;
pub use deadline::Deadline;
pub use error::LinkError;
pub use frames::{Frame, FrameKind, Frames};
pub use greeting::{Greeting, is_proved, prove, proved, read_proved};
pub use limited::{FAREWELL, Limited};
pub use message::{decode, encode, plain_text};
pub use protocol::{Protocol, Side};
pub use secret::{ChannelBinding, Credential, Proof, Secret};
pub use socket::{Listener, Socket};
pub use stream::{ReadOutcome, Stream};
pub use tls::{CallerSide, CallerTls, ListenerSide, ListenerTls, connect};
