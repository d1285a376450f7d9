//! The errors of leaders and followers.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use millstream_journal as journal;
#[cfg(feature = "link")]
use millstream_link::LinkError;

/// Why a leader refuses a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "link", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Reason {
    /// The follower does not know the leader's secret, or one of them has none.
    Secret,
    /// The leader serves no journal of that name.
    UnknownJournal,
    /// The copy is one of another journal.
    OtherJournal,
    /// The copy holds records that are not the leader's.
    Diverged,
    /// The next record of the copy has been pruned.
    Pruned,
    /// The follower's name is not valid.
    Name,
    /// The leader cannot serve the follower now, and may be able to later.
    Trouble,
    /// Another follower is connected under the name.
    InUse,
    /// The leader is superseded: another copy was promoted.
    Superseded,
}

/// Why following, serving or waiting for a follower failed.
///
/// `Debug` is the whole chain of causes in one line.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// The journal, or the copy.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The connection: it failed, has ended, or the other side does not follow the protocol; a secret or a certificate.
    #[cfg(feature = "link")]
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The other side speaks another version.
    #[error(
        "the other side speaks version {theirs} of the protocol, this one {ours}: update Millstream {}",
        if theirs < ours { "on the other machine" } else { "on this machine" }
    )]
    Version {
        /// Theirs.
        theirs: u32,
        /// Ours.
        ours: u32,
    },
    /// The leader refused.
    #[error("the leader refuses: {text}")]
    Refused {
        /// Why.
        reason: Reason,
        /// The text of the leader.
        text: String,
    },
    /// The leader has not proved that it knows the secret.
    #[error("the leader does not know the secret, or was started without one")]
    LeaderSecret,
    /// The directory holds a journal that is no copy of the leader's.
    #[error("{}: this journal is no copy of the leader's; follow into a new directory{hint}", path.display())]
    NotACopy {
        /// The directory.
        path: PathBuf,
        /// A suggestion.
        hint: &'static str,
    },
    /// The leader is in an older term than the copy.
    #[error("{}: the leader is in term {theirs}, and term {ours} is known here: that leader is superseded; follow the new one", path.display())]
    OlderTerm {
        /// The copy.
        path: PathBuf,
        /// The leader's term.
        theirs: u64,
        /// The newest term that is known here.
        ours: u64,
    },
    /// The journal is no copy: it leads, or did.
    #[error("{}: this journal was a leader's, in term {term}; `millstream journal rejoin` makes it a copy and says what it drops", path.display())]
    WasLeader {
        /// The journal.
        path: PathBuf,
        /// Its term.
        term: u64,
    },
    /// A copy has records that count, and that the leader does not have.
    #[error("{}: the leader lacks records from {from} on that this copy has and that were committed: it is an older state, or another one; \
             follow it into a new directory, or start from this copy", path.display())]
    Ahead {
        /// The copy.
        path: PathBuf,
        /// The first of these records.
        from: u64,
    },
    /// Another process appends to the journal.
    #[error("{}: {who} to it; stop that first", path.display())]
    InUse {
        /// The journal.
        path: PathBuf,
        /// `process 4711 appends`.
        who: String,
    },
    /// Names or addresses that do not fit together.
    #[error("{0}")]
    Usage(String),
    /// The journal has no follower of that name.
    #[error("{}: there is no follower '{name}'; {}", path.display(), there_are(names))]
    NoFollower {
        /// The journal.
        path: PathBuf,
        /// The name.
        name: String,
        /// Those that it has.
        names: Vec<String>,
    },
    /// The follower is connected, and cannot be forgotten.
    #[error("{}: the follower '{name}' is connected, or was a moment ago; stop it, and repeat this", path.display())]
    Connected {
        /// The journal.
        path: PathBuf,
        /// The follower.
        name: String,
    },
    /// No follower has acknowledged a record in time. The record is in the journal all the same.
    #[error(
        "record {sequence} is in the journal, but {followers} of {wanted} follower(s) had acknowledged it after {waited:?}{}",
        uncounted.as_ref().map_or_else(String::new, |uncounted| format!("; {uncounted}"))
    )]
    NotFollowed {
        /// The record.
        sequence: u64,
        /// How many have it.
        followers: usize,
        /// How many were required.
        wanted: usize,
        /// The time waited.
        waited: Duration,
        /// Followers that do not count.
        uncounted: Option<Uncounted>,
    },
}

millstream_journal::debug_as_chain!(ReplicationError);

/// Followers that do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Uncounted {
    /// The journal.
    pub path: PathBuf,
    /// Their names.
    pub names: Vec<String>,
}

impl fmt::Display for Uncounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        let names = self.names.join("', '");
        write!(
            f,
            "'{names}' does not count: `millstream journal followers {path}` says why, `--admit NAME` lets it count"
        )
    }
}

fn there_are(names: &[String]) -> String {
    match names {
        [] => "it has none".to_owned(),
        names => format!("there are: {}", names.join(", ")),
    }
}

impl ReplicationError {
    #[cfg(feature = "link")]
    pub(super) fn protocol(what: impl Into<String>) -> Self {
        LinkError::protocol(what).into()
    }

    /// Whether it is about values that cannot be used: what a person or a program has passed.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Usage(_) => true,
            #[cfg(feature = "link")]
            Self::Link(error) => matches!(error, LinkError::Usage(_)),
            _ => false,
        }
    }

    /// Whether the same call may succeed later without intervention on this machine.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn may_pass(&self) -> bool {
        match self {
            #[cfg(feature = "link")]
            Self::Link(error) => error.may_pass(),
            Self::Refused { reason, .. } => matches!(reason, Reason::Trouble | Reason::InUse),
            Self::Journal(error) => matches!(error, journal::Error::DiskFull { .. }),
            _ => false,
        }
    }
}
