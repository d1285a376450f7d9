//! The control and commit protocol as state machines: messages and times go in, messages and events come out.
//!
//! A machine has no socket, thread, clock or randomness. The driver and the simulation give it connections by number,
//! times in milliseconds since any start, and the ids of runs, which are unique.
//!
//! The commit is a two-phase commit with presumed abort (Gray, 1978; Mohan and Lindsay, 1983). Each process makes its
//! prepared record durable and sends PREPARED; when all have, process 0 makes its commit record durable, which is the
//! commit point, and sends COMMITTED. A process that starts again offers the last records of its state directory, and
//! process 0 [resolves](millstream_flow::cluster::resolve()) from its own what becomes of a prepared epoch: without a
//! commit record that names it, it is aborted.
//!
//! ```
//! use millstream_cluster::protocol::{Coordinator, Ids, Message, Output, Participant, Times};
//! use millstream_flow::cluster::Offer;
//!
//! let offer = Offer { flow: "orders".to_owned(), workers: 1, ..Offer::default() };
//! let times = Times::default();
//! let mut zero = Coordinator::new(2, offer.clone(), Ids { run: 7, cluster: 1 }, times)?;
//! let mut one = Participant::new(offer, times);
//! zero.connected(5, 1, 0);
//! one.connected(0, 0);
//! let Some(Output::Send { message, .. }) = one.next_output() else { panic!("an offer") };
//! zero.received(5, message, 0);
//! let started = std::iter::from_fn(|| zero.next_output()).any(|output| matches!(output, Output::Started(start) if start.run == 7));
//! assert!(started);
//! # Ok::<(), String>(())
//! ```

mod compare;
mod coordinator;
mod message;
mod participant;
mod silence;
mod tally;
#[cfg(test)]
mod tests;

pub use coordinator::Coordinator;
pub use message::{Body, Kind, Message, Misfit, PAYLOAD_MAX, Start, VERSION};
pub use participant::Participant;

use millstream_flow::cluster::{Event, HandledLoad, Raise, Status};

/// A connection, by a number that the driver has given it and never gives again.
pub type Connection = u64;

/// The ids that process 0 has made for a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// Of the run: new at each start, never 0.
    pub run: u64,
    /// Of the cluster's state, for a state directory that has none yet.
    pub cluster: u64,
}

/// The times of the protocol, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Each side sends a message at least this often.
    pub heartbeat_ms: u64,
    /// After this time of silence the other side is considered dead.
    pub dead_after_ms: u64,
    /// How long a lost connection waits for the cause, which may arrive by another way.
    pub first_cause_ms: u64,
}

impl Times {
    /// The cause of a death, in words, of a process that `receiver` has not heard.
    pub(crate) fn silence(&self, receiver: &str) -> String {
        let seconds = self.dead_after_ms as f64 / 1000.0;
        format!("{receiver} received nothing from it for {seconds} s")
    }
}

impl Default for Times {
    fn default() -> Self {
        Times {
            heartbeat_ms: 1_000,
            dead_after_ms: 10_000,
            first_cause_ms: 200,
        }
    }
}

/// What the flow of a process reports: the calls of [`Member`](millstream_flow::cluster::Member), and a lost data link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// All connectors are open.
    Built,
    /// The sources have ended.
    Drained {
        /// Whether they have read anything.
        has_input: bool,
    },
    /// Process 0 only: the running epoch ends.
    Raise(Raise),
    /// An epoch is prepared.
    Prepared {
        /// The epoch.
        epoch: u64,
        /// Whether this process has a prepared record of it.
        changed: bool,
        /// Whether this process has no parts of a later one.
        last: bool,
    },
    /// Process 0 only: an epoch is committed.
    Committed(u64),
    /// What workers have processed.
    Handled(Vec<HandledLoad>),
    /// How this process is doing.
    Status(Status),
    /// This process was asked to stop.
    Stop,
    /// This process has failed.
    Failed(String),
    /// The data link to another process is lost.
    Lost {
        /// The process at its other end.
        process: usize,
        /// What was seen.
        cause: String,
    },
    /// This process has ended.
    Ended,
}

impl Notice {
    /// The message that reports it to process 0; `None` where process 0 alone decides: what it raises and commits.
    fn for_process_0(self) -> Option<Body> {
        Some(match self {
            Notice::Raise(_) | Notice::Committed(_) => return None,
            Notice::Built => Body::Built,
            Notice::Drained { has_input } => Body::Drained { has_input },
            Notice::Prepared {
                epoch,
                changed,
                last,
            } => Body::Prepared {
                epoch,
                changed,
                last,
            },
            Notice::Handled(loads) => Body::Handled(loads),
            Notice::Status(status) => Body::Status(status),
            Notice::Stop => Body::Stop,
            Notice::Failed(cause) => Body::Failed { cause },
            Notice::Lost { process, cause } => Body::Lost { process, cause },
            Notice::Ended => Body::Ended,
        })
    }
}

/// What a machine wants done. Outputs must be done in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a message.
    Send {
        /// To the other end of this connection.
        to: Connection,
        /// The message.
        message: Message,
    },
    /// Close a connection after all that was sent on it.
    Close(Connection),
    /// The run has begun.
    Started(Start),
    /// Process 0 has refused this process, or itself with all others.
    Refused(Misfit),
    /// An event for the flow.
    Event(Event),
    /// A line for the log.
    Note(String),
}
