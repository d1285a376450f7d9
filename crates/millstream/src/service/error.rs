//! Why a service cannot start or go on.

use millstream_journal::Error as JournalError;
use millstream_wire::{Cause, WireError};

/// An error of a service; it names the journal and the record.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// A journal cannot be opened, read or written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An interface contradicts itself.
    #[error(transparent)]
    Wire(#[from] Box<WireError>),
    /// Another service writes to the output journal.
    #[error("{output}: another service is running on this output journal")]
    Taken {
        /// The output journal.
        output: String,
    },
    /// An input could not be taken: the record does not fit its schema, or the component failed.
    #[error("{journal}, record {sequence}: {cause}")]
    Input {
        /// The input journal.
        journal: String,
        /// The record.
        sequence: u64,
        /// Why not.
        cause: Cause,
    },
    /// What the component called could not be recorded.
    #[error("{journal}, record {sequence}: its effect cannot be recorded: {reason}")]
    Output {
        /// The input journal.
        journal: String,
        /// The record that made the component call.
        sequence: u64,
        /// Why not.
        reason: String,
    },
    /// The component did not make the calls again that it made before the restart.
    #[error(
        "{journal}, record {sequence}: the component made {missing} calls fewer than before the restart; it must depend on its inputs only"
    )]
    Diverged {
        /// The input journal.
        journal: String,
        /// The record that was repeated.
        sequence: u64,
        /// Calls that it did not make again.
        missing: u64,
    },
    /// The record at which the service has to go on is not among its inputs.
    #[error(
        "{output}: its last record is an effect of record {sequence} of {journal}, which is not there"
    )]
    Lost {
        /// The output journal.
        output: String,
        /// The input journal.
        journal: String,
        /// The record that is not there.
        sequence: u64,
    },
    /// The state cannot be rebuilt because inputs have been removed.
    #[error(
        "{journal}: records before {first} have been pruned, so the state cannot be rebuilt from them"
    )]
    Pruned {
        /// The input journal.
        journal: String,
        /// The oldest record that is there.
        first: u64,
    },
    /// What snapshots and rebuilding from outputs need.
    #[error(
        "snapshots, and a state from outputs, need an output journal, and this service has none"
    )]
    NoOutput,
    /// A snapshot cannot be taken back.
    #[error("{journal}, record {sequence}: {cause}")]
    Snapshot {
        /// The journal of snapshots.
        journal: String,
        /// The record.
        sequence: u64,
        /// Why not.
        cause: Cause,
    },
    /// The state of the component cannot be kept.
    #[error("{output}: no snapshot could be made: {cause}")]
    Unkept {
        /// The output journal of the service.
        output: String,
        /// Why not.
        cause: Cause,
    },
}
