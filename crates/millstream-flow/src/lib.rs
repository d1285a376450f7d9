//! Dataflows over streams of events: sources, steps, sinks, and state for each key.
//!
//! A flow is described with a fluent interface and runs on one or more threads. Steps between two exchanges are
//! fused: a batch passes through them by plain calls, on one thread. The `timely` crate provides the progress
//! tracking, the threads and the channels between them.
//!
//! Start with [`Flow`]; the methods that add steps are on [`Stream`] and [`KeyedStream`]. The connectors are
//! the modules [`tcp`], [`files`], [`csv`], [`directory`], [`journals`], [`generator`], [`stdout`] and
//! [`testing`]; other connectors implement [`Source`](source::Source) and [`Sink`](sink::Sink).

#![deny(clippy::print_stdout, clippy::print_stderr)]
pub mod batch;
pub mod checkpoint;
pub mod clock;
#[doc(hidden)] // For the other crates of Millstream.
pub mod cluster;
pub mod compression;
mod connectors;
pub mod control;
pub mod data;
mod dataflow;
mod describe;
pub mod durable;
pub mod error;
pub mod framing;
pub mod input;
pub mod key;
mod letters;
pub mod metrics;
mod mutex;
#[doc(hidden)] // For the other crates of Millstream.
pub mod named;
mod node;
mod operators;
pub mod outbox;
mod panics;
pub mod policy;
pub mod poller;
pub mod position;
#[doc(hidden)] // For the other crates of Millstream.
pub mod rehearsal;
pub mod replay;
mod run;
mod saved;
#[doc(hidden)] // For the other crates of Millstream.
pub mod shared_log;
pub mod sink;
pub mod source;
#[doc(hidden)] // For the other crates of Millstream.
pub mod starting;
pub mod state;
pub mod step;
pub mod testing;
pub mod time;

pub use connectors::{
    batched, channel, codec, csv, directory, files, generator, journals, json_lines, numbered,
    stdout, tcp,
};
pub use describe::{graph, overlap};
pub use operators::{assign, collect, join, limits, shown, window};
pub use run::watch;

pub use checkpoint::Recovery;
pub use compression::Compression;
pub use connectors::SourceExt;
pub use dataflow::making::Making;
pub use describe::stream::{Flow, Pipe, Stream};
pub use error::{Failure, FlowError};
pub use framing::{Frames, Framing};
pub use join::{Insert, Join, JoinAll, JoinKind};
pub use key::Key;
#[doc(hidden)]
pub use millstream_journal::debug_as_chain;
#[doc(inline)]
pub use millstream_macros::Key;
pub use operators::calls::Calls;
pub use operators::keyed::{Emit, KeyedStream, Untimed};
pub use operators::lookups::Lookups;
pub use policy::{DeadLetter, OnError};
pub use run::{Ending, OnMetrics, Options, Running, WORKERS_MAX};
pub use state::{KeyContext, Logic, Timer};
pub use time::{EventTime, Timed};
pub use window::Window;

// Crates whose types are in signatures here, in the version that these have.
#[doc(no_inline)]
pub use {futures_core, hdrhistogram, serde, serde_json, tokio};

// For the other crates of Millstream.
#[doc(hidden)]
pub use dataflow::{build::Route, edge::Packets};
#[doc(hidden)]
pub use describe::stream;
#[doc(hidden)]
pub use rehearsal::Rehearsal;
