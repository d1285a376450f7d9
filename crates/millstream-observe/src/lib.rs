//! A live page, metrics for Prometheus and JSON of a running flow, of queues, journals and services.
//!
//! [`http()`] binds an address; [`Observer::run`] runs a flow that the server shows. The server has a thread of its
//! own. Once a second it reads what the workers publish anyway, and makes one [`Snapshot`] of it, from which every
//! answer comes: nothing on the path of a message changes. [`Observer::show`] adds a [section](sections): the queues of
//! a server, journals on the disk, a service.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the page |
//! | `/api/graph.json` | the steps of the flow, and where the page draws them |
//! | `/api/snapshot.json` | the [`Snapshot`] |
//! | `/api/history.json?of=step&name=NAME` | the last 15 minutes of a `step`, `source`, `sink`, `worker`, or of `epochs` |
//! | `/api/queues.json`, `/api/queue.json`, `/api/journals.json`, `/api/records.json` | details of the [sections] |
//! | `/events` | each new snapshot, as server-sent events |
//! | `/metrics` | the [metrics](list::all) in the format of Prometheus |
//! | `POST /api/actions/stop`, `POST /api/actions/commit` | asks the flow to end, or for a commit now; only with a token |
//! | `POST /api/actions/redrive`, `POST /api/actions/reload` | asks the server of the queues to move items, or to read its files again; only with a token |
//! | `/healthz` | 200 while the process lives |
//! | `/readyz` | 200 while all sources are open and the last commit is younger than three epochs, otherwise 503 |
//!
//! ```
//! use std::io::{Read, Write};
//!
//! use millstream_flow::{Flow, Options, testing};
//!
//! let flow = Flow::new("words");
//! flow.source("words", testing::items(["to", "be"])).sink("out", testing::Collected::new().sink());
//!
//! let observer = millstream_observe::http("127.0.0.1:0").bind()?;
//! let report = observer.run(&flow, Options::default())?;
//! assert_eq!(report.step("out").unwrap().items_in, 2);
//!
//! let mut client = std::net::TcpStream::connect(observer.address()).unwrap();
//! client.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
//! let mut answer = String::new();
//! client.read_to_string(&mut answer).unwrap();
//! assert!(answer.contains("200 OK"));
//! # Ok::<(), millstream_observe::ObserveError>(())
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod about;
mod actions;
mod ages;
mod answers;
mod assets;
#[doc(hidden)] // For the other crates of Millstream.
pub mod conditions;
mod drawing;
mod error;
mod expected;
mod history;
mod judge;
mod layout;
#[doc(hidden)] // For the other crates of Millstream.
pub mod list;
#[doc(hidden)] // For the other crates of Millstream.
pub mod log_levels;
#[doc(hidden)] // For the other crates of Millstream.
pub mod log_line;
mod metrics_text;
mod observer;
#[cfg(feature = "otlp")]
mod otlp;
mod process;
mod processes;
mod sampler;
pub mod sections;
mod snapshot;
mod stacks;
pub mod user;

pub use ages::Ages;
pub use conditions::ConditionSnapshot;
pub use drawing::svg;
pub use error::ObserveError;
#[doc(hidden)] // For the other crates of Millstream.
pub use millstream_http::address::host_and_port;
pub use observer::{Http, Observer, http};
pub use sections::Section;
pub use snapshot::{
    Bottleneck, CommitSnapshot, Down, EdgeSnapshot, EpochSnapshot, FailureSnapshot, Limit, Mark,
    PartitionSnapshot, ProcessSnapshot, Restart, SinkSnapshot, Snapshot, SourceSnapshot, State,
    StepSnapshot, WorkerSnapshot,
};
pub use stacks::{StackOf, Stacks};

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The time for the ages that the page shows: nothing that a flow does depends on it.
#[expect(
    clippy::disallowed_methods,
    reason = "what is shown is of this moment, whatever clock a flow has"
)]
fn now() -> Instant {
    Instant::now()
}

/// Locks a mutex whose poisoning does not matter: each value in it is consistent at every moment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
