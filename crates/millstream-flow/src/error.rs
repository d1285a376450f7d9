//! Everything that can go wrong with a flow, worded for the person who reads it.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;

/// The cause of a failure: any error that can cross threads.
pub type Cause = Box<dyn StdError + Send + Sync>;

/// A step, source or sink failed on an item.
#[derive(Debug)]
pub struct Failure {
    /// The name of the step.
    pub step: String,
    /// The key in whose state the step worked, as text.
    pub key: Option<String>,
    /// The item, as text, shortened.
    pub item: Option<String>,
    /// What the step said.
    pub cause: Cause,
}

impl Failure {
    /// A failure of `step` that concerns no single item.
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
        write!(f, ": {}", self.cause)?;
        let mut source = self.cause.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.cause.as_ref())
    }
}

/// Why a flow could not be built or did not end well.
///
/// Its `Debug` is its text: a `main` that returns it shows one clear line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum FlowError {
    /// Two steps have one name; state and metrics are found by name.
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
    /// Times are given where partitions can still be told apart.
    #[error(
        "flow \"{flow}\": {kind} stands behind \"{behind}\"; put it before, where each partition has its own watermark"
    )]
    TimeBehind {
        /// The flow.
        flow: String,
        /// `event_time` or `processing_time`.
        kind: String,
        /// The merge or exchange before it.
        behind: String,
    },
    /// A flow without a source has nothing to do.
    #[error("flow \"{0}\" has no source")]
    NoSource(String),
    /// A stream nobody reads is a mistake in the flow.
    #[error("flow \"{flow}\": nothing reads the output of \"{step}\"; end it with a sink")]
    Unread {
        /// The flow.
        flow: String,
        /// The step whose output is dropped.
        step: String,
    },
    /// Streams of two flows were joined.
    #[error("streams of two different flows cannot be merged")]
    ForeignStream,
    /// A number is outside what the engine takes.
    #[error("{0}")]
    Usage(String),
    /// A connector could not be opened.
    #[error("{what}: {cause}")]
    Open {
        /// What was opened: `source "orders" (tcp listen 127.0.0.1:7001)`.
        what: String,
        /// What the system said.
        cause: Cause,
    },
    /// The state directory cannot be read or written.
    #[error("state in {}: {cause}", path.display())]
    State {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        cause: Cause,
    },
    /// There is state of a step that the flow does not have.
    #[error(
        "state in {}: it holds state of {kind} \"{step}\", which flow \"{flow}\" does not have; name it as before, or forget its state with --drop-state \"{step}\"",
        path.display()
    )]
    Vanished {
        /// The directory.
        path: PathBuf,
        /// The flow.
        flow: String,
        /// `step`, `source` or `sink`.
        kind: &'static str,
        /// Its name.
        step: String,
    },
    /// A step keeps a state that cannot be saved.
    #[error("step \"{step}\": {cause}")]
    Unsaved {
        /// The step.
        step: String,
        /// Why not.
        cause: Cause,
    },
    /// What travels between two steps cannot become bytes, in a run in which it must.
    #[error("items from \"{from}\" to \"{to}\" cannot travel as bytes: {cause}")]
    NoCodec {
        /// The step that sends.
        from: String,
        /// The step that receives.
        to: String,
        /// Why not, and the remedy.
        cause: Cause,
    },
    /// A saved state cannot be read by the step whose it is.
    #[error(
        "state of step \"{step}\", key {key}, cannot be read: {cause}; forget the state of this step with --drop-state \"{step}\""
    )]
    Unreadable {
        /// The step.
        step: String,
        /// The key, as text.
        key: String,
        /// What is wrong with it.
        cause: Cause,
    },
    /// The run was to end here, as if the process had died: asked for by a test.
    #[error("the flow was ended behind epoch {0}, as a test asked for")]
    Crashed(u64),
    /// A crash was not without a trace: found by a [trial](crate::testing::Trial).
    #[error("a crash {at} makes a difference: {what}")]
    Differs {
        /// Where the crash was.
        at: String,
        /// The first difference.
        what: String,
    },
    /// A step failed while the flow ran.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// A worker thread panicked: a defect in a step's code, or in Millstream.
    #[error("step \"{step}\" panicked: {message}")]
    Panicked {
        /// The step that ran last on that worker; `commit` for the thread that commits epochs.
        step: String,
        /// The panic's message.
        message: String,
    },
}

impl FlowError {
    /// The error of a panic in `step`, with the panic's payload.
    pub(crate) fn panicked(step: String, panic: &(dyn Any + Send)) -> Self {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        let message = message.unwrap_or("no message").to_owned();
        FlowError::Panicked { step, message }
    }
}

impl fmt::Debug for FlowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `text` cut to a length that fits on a line of a log.
#[must_use]
pub fn shorten(text: &str) -> String {
    const LONGEST: usize = 200;
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}... ({} bytes)", &text[..at], text.len()),
        None => text.to_owned(),
    }
}
