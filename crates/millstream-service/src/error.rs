//! Why a service cannot start or continue.

use millstream_journal::Error as JournalError;
use millstream_journal::named::Named;
use millstream_replication::ReplicationError;
use millstream_wire::{Cause, WireError};

use crate::queries::Fault;

/// Records that were pruned are not needed.
const SKIP_PRUNED: Named = Named(["Settings::skip_pruned", "skip_pruned=True", "--skip-pruned"]);

/// An error of a service; it names the journal and the record.
///
/// `Debug` is the whole chain of causes in one line.
#[derive(thiserror::Error)]
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
    InUse {
        /// The output journal.
        output: String,
    },
    /// An input could not be taken: the record does not fit its schema, or the component failed.
    #[error("{journal}, record {sequence}")]
    Input {
        /// The input journal.
        journal: String,
        /// The record.
        sequence: u64,
        /// Why not.
        #[source]
        cause: Cause,
    },
    /// A time of the day, or a time zone, is none.
    #[error("{text}: {reason}")]
    Time {
        /// What was given.
        text: String,
        /// Why it is none.
        reason: String,
    },
    /// The component has no such method for one-off timers.
    #[error(
        "{name}: the component has no method for one-off timers of this name; timers are started and cancelled in calls, not while the component is made"
    )]
    NoTimer {
        /// The name.
        name: String,
    },
    /// A component with one-off timers is started in a way that forgets them.
    #[error(
        "{name}: one-off timers are a part of the state: rebuild it from the inputs or from snapshots, so that a start knows them"
    )]
    ForgetsTimers {
        /// The first method for one-off timers.
        name: String,
    },
    /// A query has no answer.
    #[error("{output}: {query}: {reason}")]
    Asked {
        /// The output journal of the service that was asked.
        output: String,
        /// The name of the query.
        query: String,
        /// What kind of fault it is.
        fault: Fault,
        /// Why.
        reason: String,
    },
    /// A component with queries cannot be asked.
    #[error("{path}: no socket for queries can be made here")]
    NoSocket {
        /// The path of the socket.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A key of a call is none.
    #[error("a key is 1 to {bytes_max} visible characters of ASCII")]
    NoKey {
        /// The length of the longest one.
        bytes_max: usize,
    },
    /// A query started or cancelled a timer.
    #[error("a query starts and cancels no timers: it changes nothing")]
    Query,
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
    /// The component does not make the calls again that are recorded.
    #[error(
        "{journal}, record {sequence}: the component makes other calls than are recorded in {output}: {recorded}, and it makes {made}; it must \
         depend on its inputs only. If its rule has changed, or an input or timer is gone, accept_differences (--accept-differences N) accepts \
         this for N inputs: what is recorded stays"
    )]
    Differs {
        /// The input journal.
        journal: String,
        /// The record that was repeated.
        sequence: u64,
        /// The output journal.
        output: String,
        /// The recorded call, with its number.
        recorded: String,
        /// The call that the component makes.
        made: String,
    },
    /// The component published while it was not called.
    #[error("{output}: {reason}")]
    OutsideCall {
        /// The output journal.
        output: String,
        /// What it must not do.
        reason: String,
    },
    /// A stop was requested while the state was rebuilt. Nothing is lost: the next start rebuilds it.
    #[error("the service was stopped while its state was rebuilt")]
    Stopped,
    /// A record that the service has taken is not in its input, or not in its schedule, any more: the journal has lost
    /// its end. Another record may have its number.
    #[error(
        "{journal}: record {sequence}, which the service of {output} has taken, is lost: {}. The journal has lost its end, in a loss of power \
         or because an older copy was restored. Put a copy that has the record, such as a follower's, in its place; or move {output}, \
         {output}.schedule and {output}.snapshots away, so that the service begins anew with all that its inputs hold now",
        loss(*sequence, *next, *confirmed)
    )]
    Lost {
        /// The output journal.
        output: String,
        /// The journal that has lost the record.
        journal: String,
        /// The lost record.
        sequence: u64,
        /// The sequence number that the next record of that journal gets.
        next: u64,
        /// What the service has taken before this number is known to be there.
        confirmed: u64,
    },
    /// The order in which the service took its inputs and timers is not recorded, or not completely.
    #[error(
        "{output}.schedule: {missing}, so the order of the calls is not known and the state cannot be rebuilt. Put a copy of the schedule that \
         has them in its place; or move {output}, {output}.schedule and {output}.snapshots away, so that the service begins anew with all \
         that its inputs hold now"
    )]
    Unordered {
        /// The output journal.
        output: String,
        /// What is missing.
        missing: String,
    },
    /// Records that the service needs have been pruned: for the state, or not taken yet.
    #[error(
        "{journal}: record {needed} is needed and has been pruned, the oldest one left is {first}; restore the records from a copy \
         of the journal, or, if they are not needed, set {}",
        SKIP_PRUNED
    )]
    Pruned {
        /// The input journal.
        journal: String,
        /// The first record that is needed.
        needed: u64,
        /// The oldest record that is there.
        first: u64,
    },
    /// A journal and its copy, or one journal under two paths that differ, are both inputs.
    #[error("{first} and {second} are one journal, or copies of one, and cannot both be inputs")]
    SameInput {
        /// One of them.
        first: String,
        /// The other one.
        second: String,
    },
    /// The last input with effects was removed from the service, and it is not known whether all of its effects are
    /// recorded.
    #[error(
        "{output}: its last record is an effect of record {sequence} of {journal}, which is no input any more and may have further \
         effects; start the service once more with that input, and stop it, before removing the input"
    )]
    Unfinished {
        /// The output journal.
        output: String,
        /// The input that was removed.
        journal: String,
        /// The record.
        sequence: u64,
    },
    /// A journal that a record names is not found.
    #[error(
        "{named_by} names the journal {journal}, which is neither there, nor beside it, nor in the given folders"
    )]
    Unknown {
        /// Its path when the record was written.
        journal: String,
        /// The journal that names it.
        named_by: String,
    },
    /// Two timers have the same name.
    #[error("two timers are called {name}")]
    SameTimer {
        /// Their name.
        name: String,
    },
    /// An input is a journal that the service writes to.
    #[error("{input} and {written} are one journal: a service cannot read what it writes itself")]
    SameJournal {
        /// The input, as the caller named it.
        input: String,
        /// The output or the dead letters, as the caller named them.
        written: String,
    },
    /// An input holds calls, but of none of the component's interfaces.
    #[error("{journal}: holds calls of {found} only; the component is called through {expected}")]
    Foreign {
        /// The input journal.
        journal: String,
        /// The interfaces whose calls are in it.
        found: String,
        /// The interfaces of the component.
        expected: String,
    },
    /// An input holds records, but no calls.
    #[error(
        "{journal}, record {sequence}: is no call, and no other record is; the component is called through {expected}"
    )]
    NoCalls {
        /// The input journal.
        journal: String,
        /// Its first record.
        sequence: u64,
        /// The interfaces of the component.
        expected: String,
    },
    /// Snapshots, rebuilding from outputs and followers need an output journal.
    #[error(
        "snapshots, a state from outputs, queries and followers need an output journal, and this service has none"
    )]
    NoOutput,
    /// The positions of the followers of the outputs cannot be read.
    #[error("{output}: the positions of its followers cannot be read")]
    Followers {
        /// The output journal of the service.
        output: String,
        /// Why not.
        #[source]
        cause: ReplicationError,
    },
    /// An input is another journal than the one that the service has taken records of, under the same path.
    #[error(
        "{journal}: is another journal than the one of which the service has taken the records before {taken}; restore that one or a copy of it, or give this one \
         another path; to begin anew, remove {output} and the directories beside it that begin with this name"
    )]
    Replaced {
        /// The input.
        journal: String,
        /// The record of the earlier journal that was next.
        taken: u64,
        /// The output journal.
        output: String,
    },
    /// A snapshot cannot be read, and the inputs before it are not all there.
    #[error(
        "{fault}; and the inputs cannot rebuild it. Run the version of the component that wrote the snapshot, or remove the \
         directory {snapshots} and start with {}, for the state of the remaining records. What the inputs lack",
        SKIP_PRUNED
    )]
    NoState {
        /// What is wrong with the snapshot.
        fault: String,
        /// What is missing from the inputs.
        #[source]
        cause: Box<ServiceError>,
        /// The journal of snapshots.
        snapshots: String,
    },
    /// The component could not restore a snapshot.
    #[error(
        "{journal}, record {sequence}: the component could not restore this snapshot (if all inputs are there, remove the directory {journal}: \
         a start then rebuilds the state from them)"
    )]
    NotRestored {
        /// The journal of snapshots.
        journal: String,
        /// The record.
        sequence: u64,
        /// Why not.
        #[source]
        cause: Cause,
    },
    /// A record of the journal of snapshots cannot be read.
    #[error("{journal}, record {sequence}")]
    Snapshot {
        /// The journal of snapshots.
        journal: String,
        /// The record.
        sequence: u64,
        /// Why not.
        #[source]
        cause: Cause,
    },
    /// The state of the component cannot be saved.
    #[error("{output}: no snapshot could be made")]
    Unkept {
        /// The output journal of the service.
        output: String,
        /// Why not.
        #[source]
        cause: Cause,
    },
}

millstream_journal::debug_as_chain!(ServiceError);

/// What there is instead of a lost record, and up to where the two journals agree.
fn loss(sequence: u64, next: u64, confirmed: u64) -> String {
    let found = if sequence < next {
        "another record has its number now".to_owned()
    } else {
        format!("the journal ends before record {next}")
    };
    match confirmed.checked_sub(1) {
        Some(last) => format!(
            "{found}, and what the service has taken is known to be there up to record {last}"
        ),
        None => found,
    }
}
