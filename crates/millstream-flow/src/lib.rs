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
pub mod batch;
pub mod checkpoint;
pub mod clock;
pub mod connectors;
pub mod data;
pub mod describe;
pub mod error;
pub mod framing;
pub mod key;
pub mod operators;
pub mod outbox;
pub mod policy;
pub(crate) mod push;
pub mod run;
pub mod sink;
pub mod source;
pub mod state;
pub mod step;
pub mod testing;
pub mod time;

pub use checkpoint::durable;
pub use connectors::{
    batched, codec, csv, directory, files, generator, journals, numbered, stdout, tcp, together,
};
pub use describe::{graph, overlap, stream};
pub use operators::{calls, collect, keyed, lookups, verbs};
pub use run::{control, metrics, poller};
pub use testing::{rehearsal, replay};
pub use time::{assign, join, window};

pub use calls::Calls;
pub use checkpoint::Recovery;
pub use connectors::SourceExt;
pub use error::{Failure, FlowError};
pub use framing::{Frames, Framing};
pub use keyed::{Emit, KeyedStream};
pub use policy::{DeadLetter, OnError};
pub use rehearsal::Rehearsal;
pub use run::build::Route;
pub use run::{Options, Packets, Running};
pub use state::{KeyContext, Logic, Timer};
pub use stream::{Flow, Pipe, Stream};
pub use time::{EventTime, Timed};
pub use window::Window;
