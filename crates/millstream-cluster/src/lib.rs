//! One flow on several processes: how they meet, what is committed, and how a death ends the run.
//!
//! Process 0 coordinates. Each other process has a *control link* to it, over which it joins, learns of raised and
//! committed epochs, and reports its failure. Each pair of processes has a *data link*, which `timely` uses.
//!
//! * [`protocol`] decides: state machines without sockets, threads, clocks or randomness. `docs/cluster-protocol.md`
//!   describes the messages.
//! * [`Processes`] does: it makes the links, authenticates them, and implements [`millstream_flow::cluster::Cluster`].
//!
//! Invariant: each start of the whole has a run id of its own. It is part of every message and of the handshake of
//! every data link, so that a process of an earlier run takes no part in a later one.
//!
//! ```
//! use millstream_cluster::{Auth, Processes, Settings};
//! use millstream_flow::cluster::{Cluster, Offer};
//!
//! # let folder = tempfile::tempdir()?;
//! let hosts: Vec<_> = (0..2).map(|process| format!("{}/{process}.sock", folder.path().display())).collect();
//! let hosts = hosts.iter().map(|host| host.parse()).collect::<Result<Vec<_>, _>>()?;
//! let offer = Offer { flow: "orders".to_owned(), workers: 1, ..Offer::default() };
//! let joined: Vec<_> = std::thread::scope(|scope| {
//!     let join = |process| {
//!         let processes = Processes::new(Settings::new(process, hosts.clone(), Auth::None));
//!         let offer = offer.clone();
//!         scope.spawn(move || processes?.join(offer, &|| false))
//!     };
//!     let both: Vec<_> = (0..2).map(join).collect();
//!     both.into_iter().map(|one| one.join().expect("no panic")).collect::<Result<_, _>>()
//! })?;
//! assert_eq!(joined[0].run, joined[1].run);
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

#![forbid(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod driver;
mod error;
#[doc(hidden)] // For the other crates of Millstream.
pub mod protocol;

pub use driver::{Auth, Processes, Settings, Tls};
pub use error::ClusterError;
pub use millstream_link::{Address, Secret};
