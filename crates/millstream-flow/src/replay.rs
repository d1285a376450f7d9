//! Replay: runs recorded input through a flow again, at the times at which it was recorded.
//!
//! The input of a durable source is in the state directory, and any journal may replace a source of bytes. All
//! inputs are merged by the times of their records. Each batch is a step of its own: the clock of the run is
//! set to the time of the record, the batch is read, and nothing else happens until all workers have processed
//! all of its consequences. Between two batches the clock stops at each moment for which a timer is set. So the
//! output does not depend on the speed of any part.
//!
//! No external system is used: a replay is a [rehearsal](crate::Rehearsal).
//!
//! ```
//! use millstream_flow::replay::Replay;
//! use millstream_flow::testing::Trial;
//! use millstream_flow::{Flow, codec, stdout, tcp};
//! use millstream_journal::{Journal, Options};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let recorded = folder.path().join("words");
//! Journal::open(&recorded, Options::default())?.writer()?.append_many(["to", "be"])?;
//!
//! let flow = Flow::new("shout");
//! flow.source("words", codec::decode(tcp::listen("127.0.0.1:7001"), codec::text))
//!     .map(|word| word.to_uppercase())
//!     .sink("out", stdout::stdout());
//! let replay = Replay::new().journal("words", &recorded);
//! assert_eq!(Trial::new(&flow).replay(&replay)?.run_all()?.bytes("out"), [b"TO", b"BE"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clock;
mod conductor;
mod input;
mod moment;
mod stage;

use std::path::Path;
use std::sync::Arc;

pub use clock::VirtualClock;
pub(crate) use conductor::Conductor;
pub use moment::Point;
pub(crate) use stage::Stage;

use crate::durable;
use crate::error::FlowError;
use input::Input;
use moment::Recording;

/// The recorded inputs of a replay.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    inputs: Vec<Recording>,
    from: Option<Point>,
    to: Option<Point>,
    batch: Option<usize>,
}

impl Replay {
    /// Creates a replay without input.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the input that durable sources recorded in a state directory.
    ///
    /// # Errors
    /// The directory cannot be read, or no input was recorded in it.
    pub fn of_state(dir: impl AsRef<Path>) -> Result<Self, FlowError> {
        let dir = dir.as_ref();
        let failed = |cause| FlowError::State {
            path: dir.to_owned(),
            cause,
        };
        let found = durable::inputs(dir).map_err(|error| failed(error.into()))?;
        if found.is_empty() {
            let why = "no input was recorded here: make a source durable, or name a journal for it";
            return Err(failed(why.into()));
        }
        let mut replay = Replay::new();
        for (source, path) in found {
            replay = replay.recorded(&source, path);
        }
        Ok(replay)
    }

    /// Uses the recording of a durable source, in `STATE/inputs/NAME`, as the input of the source of this name.
    #[must_use]
    pub fn recorded(self, source: &str, path: impl AsRef<Path>) -> Self {
        self.with(source, path.as_ref(), false)
    }

    /// Uses the records of a journal, each a frame, as the input of the source of this name.
    #[must_use]
    pub fn journal(self, source: &str, path: impl AsRef<Path>) -> Self {
        self.with(source, path.as_ref(), true)
    }

    /// Sets the beginning; the default is the oldest record. The flow starts without the state from before.
    #[must_use]
    pub fn from(mut self, at: Point) -> Self {
        self.from = Some(at);
        self
    }

    /// Sets the end, which is exclusive.
    #[must_use]
    pub fn to(mut self, at: Point) -> Self {
        self.to = Some(at);
        self
    }

    /// Divides recorded batches into batches of at most `items` items, at the same time. The output is the
    /// same.
    #[must_use]
    pub fn batch_size(mut self, items: usize) -> Self {
        self.batch = Some(items.max(1));
        self
    }

    fn with(mut self, source: &str, path: &Path, plain: bool) -> Self {
        self.inputs.retain(|input| input.source != source);
        self.inputs.push(Recording {
            source: source.to_owned(),
            path: path.to_owned(),
            plain,
        });
        self
    }

    /// Checks the recorded inputs and opens them.
    pub(crate) fn open(&self) -> Result<(Arc<Stage>, Conductor), FlowError> {
        let sequenced = [self.from, self.to]
            .iter()
            .any(|at| matches!(at, Some(Point::Sequence(_))));
        if sequenced && self.inputs.len() > 1 {
            let names: Vec<_> = self.inputs.iter().map(|i| i.source.as_str()).collect();
            return Err(FlowError::Usage(format!(
                "a sequence number is one of a single input, and there are {}: use a time",
                names.join(", ")
            )));
        }
        let mut inputs = Vec::new();
        for recording in &self.inputs {
            inputs.push(Input::open(recording, self.from, self.to)?);
        }
        if inputs.iter().all(Input::is_empty) {
            return Err(FlowError::Usage(
                "nothing was recorded in the range of the replay".to_owned(),
            ));
        }
        let stage = Arc::new(Stage::new(inputs.iter().map(Input::scene)));
        let conductor = Conductor::new(inputs, Arc::clone(&stage), self.batch);
        Ok((stage, conductor))
    }
}
