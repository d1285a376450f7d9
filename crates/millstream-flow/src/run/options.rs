//! How to run a flow: workers, sleep, metrics, state, clock, and what stands in for sources and sinks.

use std::sync::Arc;
use std::time::Duration;

use crate::checkpoint::Recovery;
use crate::clock::Clock;
use crate::error::FlowError;
use crate::run::control::Wrapper;
use crate::run::metrics::Report;
use crate::testing::rehearsal::Rehearsal;

/// The most worker threads of a flow.
pub const WORKERS_MAX: usize = 256;
/// Called with the metrics from time to time.
pub type OnMetrics = Arc<dyn Fn(&Report) + Send + Sync>;

/// How batches travel from one operator to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// As they are, in the memory of the process: nothing is encoded.
    InMemory,
    /// As bytes, as between processes: each batch is encoded where it is sent, also to the worker itself, and decoded where it
    /// is received. Each type of items on an edge has a codec, or the run does not start. For tests.
    Bytes,
}

impl Packets {
    /// Bytes where the environment variable `MILLSTREAM_PACKETS` is `bytes`, so that a whole suite of tests can run in that
    /// way; else in memory.
    #[must_use]
    pub fn of_environment() -> Self {
        match std::env::var_os("MILLSTREAM_PACKETS") {
            Some(packets) if packets == "bytes" => Packets::Bytes,
            _ => Packets::InMemory,
        }
    }
}

/// How to run a flow.
#[derive(Clone)]
pub struct Options {
    /// Worker threads, from 1 to [`WORKERS_MAX`].
    pub workers: usize,
    /// Never sleep: a core for each worker buys the last microseconds.
    pub spin: bool,
    /// Call back with the metrics at this interval.
    pub on_metrics: Option<(Duration, OnMetrics)>,
    /// Wraps each worker thread.
    pub around: Option<Wrapper>,
    /// Wraps each turn of an operator: the Python face holds its interpreter for that long.
    pub hold: Option<Wrapper>,
    /// Wraps each wait of a step for the outside: the Python face lets go of its interpreter.
    pub release: Option<Wrapper>,
    /// Drain and end on SIGINT and SIGTERM; a second one ends the process at once, with 128 and the number of the signal.
    pub signals: bool,
    /// Where to keep state, to go on after a crash.
    pub recovery: Option<Recovery>,
    /// Processing time; a [`WallClock`](crate::clock::WallClock) unless something else is handed in.
    pub clock: Option<Arc<dyn Clock>>,
    /// What stands in for sources and sinks, so that nothing outside is touched.
    pub rehearsal: Option<Arc<Rehearsal>>,
    /// How batches travel between operators: [as the environment says](Packets::of_environment), else in memory.
    pub packets: Packets,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 1,
            spin: false,
            on_metrics: None,
            around: None,
            hold: None,
            release: None,
            signals: false,
            recovery: None,
            clock: None,
            rehearsal: None,
            packets: Packets::of_environment(),
        }
    }
}

impl Options {
    /// The default with `workers` threads.
    #[must_use]
    pub fn workers(workers: usize) -> Self {
        Options {
            workers,
            ..Options::default()
        }
    }

    /// The options of a run on the calling thread, which is its only worker.
    pub(crate) fn check_single(&self) -> Result<(), FlowError> {
        match self.workers {
            1 => Ok(()),
            asked => Err(FlowError::Usage(format!(
                "{asked} workers asked for; on the thread that calls there is one"
            ))),
        }
    }

    pub(crate) fn check_workers(&self) -> Result<(), FlowError> {
        match self.workers {
            1..=WORKERS_MAX => Ok(()),
            asked => Err(FlowError::Usage(format!(
                "{asked} workers asked for; 1 to {WORKERS_MAX} work"
            ))),
        }
    }
}
