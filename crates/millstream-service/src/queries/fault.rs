//! The arguments of a query, and why it has no answer.

use serde_json::{Map, Value};

/// The arguments of a query, by name.
#[doc(hidden)] // For the other crates of Millstream.
pub type Arguments = Map<String, Value>;

/// Why a query has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Fault {
    /// No service with queries runs on the output.
    Absent,
    /// The component has no such query.
    Unknown,
    /// The arguments do not fit.
    Arguments,
    /// The component failed.
    Failed,
    /// The service did not answer in time, or has too many questions.
    Late,
}

/// A query that the component could not answer. The service goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryError {
    /// What kind of fault it is.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fault: Fault,
    /// Why.
    pub reason: String,
}

impl QueryError {
    /// The arguments do not fit.
    pub fn arguments(reason: impl Into<String>) -> Self {
        Self {
            fault: Fault::Arguments,
            reason: reason.into(),
        }
    }

    /// The component failed.
    pub fn failed(reason: impl Into<String>) -> Self {
        Self {
            fault: Fault::Failed,
            reason: reason.into(),
        }
    }
}
