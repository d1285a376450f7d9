//! The server: sockets around a broker.
//!
//! A [`Server`] runs inside any program, on a thread of its own; `millstream queue serve` is such a program. All
//! connections are tasks on this thread, so that nothing is locked; only syncs run on another. A connection reads once,
//! does all requests in the bytes, and writes once. Replies that promise durability wait for the committer, which makes
//! one sync for all replies that wait.
//!
//! ```no_run
//! use millstream_queue::server::{Server, ServerOptions};
//!
//! let server = Server::start(ServerOptions::new("/var/lib/millstream/queues"))?;
//! println!("listening on {}", server.addresses()[0]);
//! server.wait()?;
//! # Ok::<(), millstream_queue::server::ServerError>(())
//! ```

mod attempts;
mod commit;
mod connection;
mod core;
mod descriptors;
mod error;
mod files;
mod handle;
mod listen;
mod options;
mod outcome;
mod places;
mod publish;
mod reload;
mod replica;
mod requests;
mod serve;
mod serve_requests;
mod spin;
mod timer;
mod tls;
pub mod watch;

pub use self::error::ServerError;
pub use self::handle::{Ending, Server, ServerControl};
pub use self::options::{ReplicaOptions, ServerOptions};
