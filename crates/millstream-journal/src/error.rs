//! The errors of the crate, worded for the user.
//!
//! Each error names the file or the record that it is about, so that one line is enough to act on.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::chain::chain;
use crate::storage::Fault;

/// The result of the calls of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a journal could not do what it was asked to.
///
/// `Debug` is the whole [`chain`] of causes in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no journal, and `create` was not asked for.
    #[error("{}: there is no journal here", path.display())]
    NotFound {
        /// The directory.
        path: PathBuf,
    },
    /// There is a journal already, and a new one was asked for.
    #[error("{}: a journal exists here already", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// The directory or file holds something else.
    #[error("{}: not a journal: {why}", path.display())]
    NotAJournal {
        /// The directory or file.
        path: PathBuf,
        /// What was found instead of a journal.
        why: String,
    },
    /// The journal was written in another version of the format.
    #[error("{}: version {found}, this program reads {supported}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version that is understood.
        supported: u32,
    },
    /// The system refused.
    #[error("{}: cannot {verb}", path.display())]
    Io {
        /// The operation: `open`, `sync`.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// No room for the next segment. Appending works again as soon as there is.
    #[error("{}: the disk is full", path.display())]
    DiskFull {
        /// The segment that could not be made.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The file system could not load or store a page of a file that is mapped: a disk that is full where preallocation
    /// guarantees nothing, a device that fails, a file that a process truncated. Nothing more is read or appended
    /// through this opening.
    #[error("{}: the file system failed at offset {offset}; close the journal and open it again", path.display())]
    Fault {
        /// The file.
        path: PathBuf,
        /// Where the page begins in it, in bytes.
        offset: u64,
        /// The cause, as far as it can be found out afterwards.
        source: io::Error,
    },
    /// The work in the background of this opening has panicked, which is a fault of this library. Nothing more is read
    /// or appended through this opening; what was acknowledged stays as it is.
    #[error("{}: the work in the background has panicked: {what}; close the journal and open it again", path.display())]
    Panicked {
        /// The directory.
        path: PathBuf,
        /// The words of the panic.
        what: String,
    },
    /// The directory is not at its path any more, or another one is: what would be appended now could not be found
    /// again.
    #[error("{}: the journal was removed, moved or replaced while it was open", path.display())]
    Gone {
        /// The directory.
        path: PathBuf,
    },
    /// Bytes that were written are not there any more, or not as they were.
    #[error("{}: damaged at offset {offset}: {what}", path.display())]
    Damage {
        /// The file.
        path: PathBuf,
        /// The byte in the file at which the damaged part begins.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The record has been removed by retention.
    #[error("{}: record {sequence} has been pruned; the first one is {first}", path.display())]
    Pruned {
        /// The journal.
        path: PathBuf,
        /// The record asked for.
        sequence: u64,
        /// The oldest record there is.
        first: u64,
    },
    /// The record has not been written yet.
    #[error("{}: there is no record {sequence} yet; the next one will be {next}", path.display())]
    NotYet {
        /// The journal.
        path: PathBuf,
        /// The record asked for.
        sequence: u64,
        /// The sequence number that the next record gets.
        next: u64,
    },
    /// A record that was read is not in the journal any more: the journal has lost its end, by a loss of power or
    /// because an older copy was restored. Another record may have its number.
    #[error(
        "{}: record {sequence}, which was read before, is lost: {}; the journal has lost its end, in a loss of power or because an older \
         copy was restored. Restore it from a copy that has the record, such as a follower's", path.display(), lost(*sequence, *next)
    )]
    Lost {
        /// The journal.
        path: PathBuf,
        /// The record.
        sequence: u64,
        /// The sequence number that the next record gets.
        next: u64,
    },
    /// A record is longer than allowed.
    #[error("a record of {bytes} bytes is over the limit of {limit}")]
    RecordTooLarge {
        /// The length of the record.
        bytes: u64,
        /// The longest record that this journal takes.
        limit: u64,
    },
    /// Another writer has been in the middle of an append for too long.
    #[error("{}: process {pid} holds the append lock and has not released it within {waited:?}", path.display())]
    Busy {
        /// The journal.
        path: PathBuf,
        /// The process that holds the append lock.
        pid: u32,
        /// How long this writer has waited.
        waited: Duration,
    },
    /// The journal is open in a way that excludes this opening.
    #[error("{}: {why}", path.display())]
    Locked {
        /// The journal.
        path: PathBuf,
        /// Which process has it open, and how.
        why: String,
    },
    /// A sync has failed. The data that the kernel held back is lost, so that nothing more is acknowledged.
    #[error("{}: a sync has failed; close the journal in all processes and open it again to recover", path.display())]
    Poisoned {
        /// The journal.
        path: PathBuf,
    },
    /// Another copy of the journal was promoted to leader.
    #[error("{}: the journal's term {term} is superseded by term {by}: another copy was promoted to leader; `millstream journal rejoin` makes this one a copy of it", path.display())]
    Superseded {
        /// The journal.
        path: PathBuf,
        /// Its own term.
        term: u64,
        /// The newer one.
        by: u64,
    },
    /// Only the follower appends to a copy.
    #[error("{}: the journal is a copy, to which only its follower appends; `millstream journal promote` makes it a leader", path.display())]
    IsCopy {
        /// The journal.
        path: PathBuf,
    },
    /// Only the owner of a journal appends to it.
    #[error("{}: a flow with a state directory writes to the journal and has not ended in order: its next start would \
             remove what is appended now. Start it, and append after its end; if it never starts again, remove {}", path.display(), claim.display())]
    Claimed {
        /// The journal.
        path: PathBuf,
        /// The file that keeps others from appending.
        claim: PathBuf,
    },
    /// Only the sole writer changes terms.
    #[error("{}: terms are changed only by an opening that is the sole writer", path.display())]
    NotSoleWriter {
        /// The journal.
        path: PathBuf,
    },
    /// The journal was opened for reading.
    #[error("{}: the journal is open for reading only", path.display())]
    ReadOnly {
        /// The journal.
        path: PathBuf,
    },
    /// A cut needs an exclusive opening.
    #[error("{}: records can be cut only from a journal that was opened exclusively", path.display())]
    NotExclusive {
        /// The journal.
        path: PathBuf,
    },
    /// A reader or a [pinned record](crate::PinnedRecord) of this opening holds the segment in which a cut would clear
    /// records. Nothing was dropped; drop the reader or the record first.
    #[error("{}: nothing was cut: a reader or a pinned record of this opening holds the segment; drop it first", path.display())]
    InUse {
        /// The segment.
        path: PathBuf,
    },
    /// The process forked. A child opens the journal itself.
    #[error("{}: this journal was opened before a fork; open it again in the child", path.display())]
    Forked {
        /// The journal.
        path: PathBuf,
    },
    /// As many processes write as the journal has room for.
    #[error("{}: {limit} processes are writing already, which is the limit", path.display())]
    TooManyWriters {
        /// The journal.
        path: PathBuf,
        /// How many there can be.
        limit: u64,
    },
    /// An option is outside its range.
    #[error("{name} = {value}: {expected}")]
    Option {
        /// The option.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The allowed values.
        expected: String,
    },
    /// A cursor's name is not one.
    #[error(
        "cursor \"{name}\": a name is 1 to 100 letters, digits, '-', '_' or '.', and begins with none of the last two"
    )]
    CursorName {
        /// The name.
        name: String,
    },
    /// Another reader has the cursor.
    #[error("{}: cursor \"{name}\" is in use by another reader", path.display())]
    CursorInUse {
        /// The journal.
        path: PathBuf,
        /// The cursor.
        name: String,
    },
}

crate::debug_as_chain!(Error);

impl Error {
    /// The error with its causes, and after [`Damage`](Self::Damage) in a file of a journal the way on: the command
    /// that copies what is sound into a directory that does not exist yet. It copies no cursors.
    ///
    /// ```
    /// use millstream_journal::Error;
    /// let path = "my orders/segment-0000000003.log".into();
    /// let damage = Error::Damage { path, offset: 64, what: "it is zero".to_owned() };
    /// let remedy = ". To copy what is sound: millstream journal copy --salvage 'my orders' 'my orders.salvaged'";
    /// assert_eq!(damage.with_remedy(), format!("{damage}{remedy}"));
    /// ```
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn with_remedy(&self) -> String {
        match self.salvage_command() {
            Some(command) => format!("{self}. To copy what is sound: {command}"),
            None => chain(self).to_string(),
        }
    }

    fn salvage_command(&self) -> Option<String> {
        let Error::Damage { path, .. } = self else {
            return None;
        };
        let journal = path.parent().filter(|_| !is_cursor(path))?;
        let journal = match journal.file_name() {
            Some(_) => journal.to_owned(),
            None => std::fs::canonicalize(journal).ok()?,
        };
        let beside = |number: u32| {
            let mut name = journal.as_os_str().to_owned();
            match number {
                1 => name.push(".salvaged"),
                _ => name.push(format!(".salvaged-{number}")),
            }
            PathBuf::from(name)
        };
        let target = (1..).map(beside).find(|target| !target.exists())?;
        Some(format!(
            "millstream journal copy --salvage {} {}",
            quoted(&journal),
            quoted(&target)
        ))
    }
}

fn is_cursor(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name);
    folder.is_some_and(|folder| folder == "cursors")
}

/// A path as a word of a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,=@:%".contains(c);
    let begin = if text.starts_with('-') { "./" } else { "" };
    if begin.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{begin}{}'", text.replace('\'', "'\\''"))
    }
}

/// What there is instead of a lost record.
fn lost(sequence: u64, next: u64) -> String {
    if sequence < next {
        "another record has its number now".to_owned()
    } else {
        format!("the journal ends before record {next}")
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let Fault {
            path,
            offset,
            source,
        } = fault;
        Error::Fault {
            path,
            offset,
            source,
        }
    }
}
