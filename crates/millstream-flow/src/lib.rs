//! Dataflows over streams of events: sources, steps, sinks, and state for each key.
//!
//! A flow is described with a fluent interface and run on one thread or several. Steps between
//! two exchanges are fused: a batch goes through them by plain calls, on one thread. Progress,
//! threads and the channels between them are those of the `timely` crate.
//!
//! Start with [`Flow`]; the verbs are on [`Stream`] and [`KeyedStream`]; connectors are the
//! modules [`tcp`], [`files`], [`csv`], [`directory`], [`journals`], [`generator`], [`stdout`] and [`testing`]; own ones implement
//! [`Source`](source::Source) and [`Sink`](sink::Sink).

#![deny(clippy::print_stdout, clippy::print_stderr)]
pub mod assign;
pub mod batch;
pub mod batched;
mod batches;
pub mod calls;
pub mod clock;
pub mod codec;
pub mod collect;
pub mod control;
pub mod csv;
mod debug;
pub mod directory;
pub mod durable;
pub mod error;
pub mod files;
pub mod framing;
pub mod generator;
pub mod graph;
pub mod join;
pub mod journals;
pub mod key;
pub mod keyed;
pub mod letters;
pub mod lookups;
pub mod metrics;
pub mod numbered;
pub mod overlap;
mod pace;
mod packet;
pub mod policy;
pub mod poller;
pub mod push;
mod reading;
pub mod recovery;
pub mod rehearsal;
pub mod replay;
pub mod run;
mod segment;
pub mod sink;
mod sinking;
pub mod source;
pub mod state;
pub mod stdout;
pub mod stream;
pub mod tcp;
pub mod testing;
pub mod time;
pub mod together;
pub mod verbs;
pub mod window;

pub use calls::Calls;
pub use error::{Failure, FlowError};
pub use framing::{Frames, Framing};
pub use keyed::{Emit, KeyedStream};
pub use policy::{DeadLetter, OnError};
pub use recovery::Recovery;
pub use rehearsal::Rehearsal;
pub use run::{Options, Running};
pub use segment::Route;
pub use state::{KeyContext, Logic, Timer};
pub use stream::{Flow, Pipe, Stream};
pub use time::{EventTime, Timed};
pub use window::Window;
