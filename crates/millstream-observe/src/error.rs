//! The errors of an observer.

use millstream_flow::FlowError;
use millstream_flow::error::Cause;

/// An error of an observer, or of the flow that it runs.
///
/// `Debug` is the whole chain of causes in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The address cannot be bound, or may not be bound without a token.
    #[error("the page cannot be served")]
    Bind(#[source] Cause),
    /// A metric of the program cannot have this name.
    #[error("{0}")]
    Metric(String),
    /// The flow could not start, or has failed.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

millstream_journal::debug_as_chain!(ObserveError);
