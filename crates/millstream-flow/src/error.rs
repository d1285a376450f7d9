//! The errors of a flow.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use millstream_journal::panic_text;

use crate::named::{DROP_STATE, drop_state};

pub use millstream_journal::{Chain, chain, context};

/// The cause of a failure: any error that can cross threads.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// The failure of a step, source or sink.
///
/// ```
/// use millstream_flow::Failure;
/// let failure = Failure::new("orders", std::io::Error::other("the disk is full"));
/// assert_eq!(failure.to_string(), "step \"orders\"");
/// assert_eq!(format!("{failure:?}"), "step \"orders\": the disk is full");
/// ```
pub struct Failure {
    /// The name of the step.
    pub step: String,
    /// The key whose state the step was processing, as text.
    pub key: Option<String>,
    /// The item, as text, shortened.
    pub item: Option<String>,
    /// The error of the step.
    pub cause: Cause,
}

impl Failure {
    /// Creates a failure of `step` that concerns no single item.
    pub fn new(step: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Failure {
            step: step.into(),
            key: None,
            item: None,
            cause: cause.into(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step \"{}\"", self.step)?;
        if let Some(key) = &self.key {
            write!(f, ", key {key}")?;
        }
        if let Some(item) = &self.item {
            write!(f, ", item {item}")?;
        }
        Ok(())
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.cause.as_ref())
    }
}

/// The reason why a flow could not be built or failed.
///
/// `Display` says what failed, and `source` returns the cause. `Debug` is the whole
/// [`chain`](millstream_journal::chain()) of causes, so that a `main` that returns this error shows one clear line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// Two steps have the same name; state and metrics are found by name.
    #[error("flow \"{flow}\": the name \"{name}\" is used by two steps")]
    DuplicateName {
        /// The flow.
        flow: String,
        /// The name used twice.
        name: String,
    },
    /// A step that keeps state needs a stable name.
    #[error("flow \"{flow}\": a {kind} step keeps state and needs a name")]
    MissingName {
        /// The flow.
        flow: String,
        /// The kind of the step, `stateful` for instance.
        kind: String,
    },
    /// Times are assigned after partitions were merged or exchanged.
    #[error(
        "flow \"{flow}\": {kind} is applied after \"{after}\"; move it before that step, where each partition has its own watermark"
    )]
    TimeMisplaced {
        /// The flow.
        flow: String,
        /// `event_time` or `processing_time`.
        kind: String,
        /// The merge or exchange before it.
        after: String,
    },
    /// The flow has no source.
    #[error("flow \"{0}\" has no source")]
    NoSource(String),
    /// Nothing reads the output of a step.
    #[error("flow \"{flow}\": nothing reads the output of \"{step}\"; end it with a sink")]
    Unread {
        /// The flow.
        flow: String,
        /// The step whose output is dropped.
        step: String,
    },
    /// Streams of two flows were merged or joined.
    #[error("streams of two different flows cannot be merged")]
    ForeignStream,
    /// An argument is outside its allowed range.
    #[error("{0}")]
    Usage(String),
    /// A connector could not be opened.
    #[error("{what}")]
    Open {
        /// What was opened: `source "orders" (tcp listen 127.0.0.1:7001)`.
        what: String,
        /// The error of the system.
        #[source]
        cause: Cause,
    },
    /// The state directory cannot be read or written.
    #[error("state in {}", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        #[source]
        cause: Cause,
    },
    /// The state directory has state of steps that the flow does not have.
    #[error(
        "state in {}: it contains state of {}, which flow \"{flow}\" does not have; {}",
        path.display(),
        named(missing),
        remedy_of(missing)
    )]
    Vanished {
        /// The directory.
        path: PathBuf,
        /// The flow.
        flow: String,
        /// What is missing: `step`, `source` or `sink`, and its name.
        missing: Vec<(&'static str, String)>,
    },
    /// A step has a state that cannot be saved.
    #[error("the state of step \"{step}\" cannot be saved")]
    Unsaved {
        /// The step.
        step: String,
        /// The reason.
        #[source]
        cause: Cause,
    },
    /// The items of an edge cannot be encoded, in a run in which they must be.
    #[error("items from \"{from}\" to \"{to}\" cannot be sent as bytes")]
    NoCodec {
        /// The step that sends.
        from: String,
        /// The step that receives.
        to: String,
        /// The reason, and the remedy.
        #[source]
        cause: Cause,
    },
    /// A saved state cannot be read by its step.
    #[error(
        "state of step \"{step}\", key {key}, cannot be read ({} removes the state of this step)",
        drop_state(step)
    )]
    Unreadable {
        /// The step.
        step: String,
        /// The key, as text.
        key: String,
        /// The reason.
        #[source]
        cause: Cause,
    },
    /// A saved key has another hash than when it was saved.
    #[error(
        "step \"{step}\": the hash of the key {key} is not stable: {found}. `Key::stable_hash` of {type_name} must depend on nothing but \
         the contents of the key, in every process and version of the program; #[derive(millstream::Key)] makes such a hash"
    )]
    UnstableKey {
        /// The step.
        step: String,
        /// The key, as text.
        key: String,
        /// The type of the key.
        type_name: &'static str,
        /// What was compared.
        found: String,
    },
    /// A test ended the run here, as if the process had died.
    #[error("a test ended the flow after epoch {0}")]
    Crashed(u64),
    /// A run with a crash has other results than one without: found by a [trial](crate::testing::Trial).
    #[error("a crash {at} changes the results: {what}")]
    Differs {
        /// The point of the crash.
        at: String,
        /// The first difference.
        what: String,
    },
    /// The processes of a run could not meet.
    #[error("process {process} of the cluster")]
    Cluster {
        /// This process.
        process: usize,
        /// Why: another flow or version, a process that was not reached.
        #[source]
        cause: Cause,
    },
    /// Another process of the run has failed or died, which ends the run everywhere. See
    /// [`is_lost`](FlowError::is_lost).
    #[error("process {process} of the cluster has ended: {cause}")]
    Lost {
        /// The process that ended first.
        process: usize,
        /// Why, as far as is known.
        cause: String,
    },
    /// A step failed while the flow was running.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A worker thread panicked: a defect in a step's code, or in Millstream.
    #[error("step \"{step}\" panicked: {message}")]
    Panicked {
        /// The step that ran last on that worker; `commit` for the thread that commits epochs.
        step: String,
        /// The message of the panic.
        message: String,
    },
}

fn named(missing: &[(&str, String)]) -> String {
    let named = missing
        .iter()
        .map(|(kind, name)| format!("{kind} \"{name}\""));
    named.collect::<Vec<_>>().join(", ")
}

fn remedy_of(missing: &[(&str, String)]) -> String {
    let drop = DROP_STATE.with_each(missing.iter().map(|(_, name)| &**name));
    let (names, its) = if missing.len() == 1 {
        ("name", "its")
    } else {
        ("names", "their")
    };
    let has = |of: &str| missing.iter().any(|(kind, _)| *kind == of);
    let source = ", and a source of another name reads all input again";
    let sink = ", and a sink of another name begins its output anew";
    format!(
        "restore the {names}, or remove {its} state with {drop}{}{}",
        if has("source") { source } else { "" },
        if has("sink") { sink } else { "" },
    )
}

/// The error of a wait for other processes that has been long enough.
///
/// A process whose part of the flow had ended, with nothing left to do, ends without an error if it was alone: the
/// others may have left for good.
#[derive(Clone, Debug, thiserror::Error)]
#[error("not all processes have come within {waited:?}: {cause}")]
#[doc(hidden)] // For the other crates of Millstream.
pub struct NotMet {
    /// How long was waited.
    pub waited: Duration,
    /// What was waited for, and why it failed.
    pub cause: String,
    /// Whether no other process was there: none that did not take this one, and none that this one did not take.
    pub alone: bool,
}

/// The error of a meeting that another process has ended, which died before the run began.
#[derive(Clone, Debug, thiserror::Error)]
#[error("process {process} has died before the run began: {cause}")]
#[doc(hidden)] // For the other crates of Millstream.
pub struct DiedBefore {
    /// The process.
    pub process: usize,
    /// Why, as far as is known.
    pub cause: String,
}

impl FlowError {
    /// Whether another process of the run has ended it, or has not come to its start: started again, the run resumes.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, FlowError::Lost { .. }) || self.not_met().is_some()
    }

    /// Why this process has not met the others at the start, if it was that.
    pub(crate) fn not_met(&self) -> Option<&NotMet> {
        match self {
            FlowError::Cluster { cause, .. } => cause.downcast_ref(),
            _ => None,
        }
    }

    /// Creates the error of a panic in `step` from the panic's payload.
    pub(crate) fn panicked(step: String, panic: &(dyn Any + Send)) -> Self {
        let message = panic_text(panic).to_owned();
        FlowError::Panicked { step, message }
    }
}

millstream_journal::debug_as_chain!(FlowError, Failure);

/// Shortens `text` to a length that fits on a line of a log.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn shorten(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}... ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}
