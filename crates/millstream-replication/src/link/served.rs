//! The journals that a leader serves, and the followers that are connected to each.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use millstream_journal::{Error, Identity, Journal, Options, Term};
use millstream_link::Stream;

use super::error::ReplicationError;
use super::membership::{Presence, unanswered};
use super::message::NAME_MAX;

/// A journal that is served, once it exists.
pub(super) struct Served {
    pub name: String,
    pub dir: PathBuf,
    /// Whether it is a companion of a served journal: a schedule or snapshots of a service.
    pub is_companion: bool,
    opened: OnceLock<OpenJournal>,
    /// The followers that are connected, by name.
    live: Mutex<HashMap<String, Live>>,
}

/// A journal that exists.
pub(super) struct OpenJournal {
    pub journal: Journal,
    pub segment_bytes: u64,
}

impl OpenJournal {
    fn of(journal: Journal) -> Result<Self, ReplicationError> {
        Ok(OpenJournal {
            segment_bytes: journal.info()?.segment_bytes,
            journal,
        })
    }

    pub fn identity(&self) -> Result<Identity, ReplicationError> {
        Ok(self.journal.identity()?)
    }

    pub fn terms(&self) -> Result<Vec<Term>, ReplicationError> {
        Ok(self.journal.terms()?)
    }
}

/// A follower that is connected.
struct Live {
    presence: Presence,
    /// The connection, counted.
    number: usize,
    stream: Arc<Stream>,
}

/// The companions of a service's output: those upstream of it, and those downstream.
const BEFORE: &str = ".schedule";
const AFTER: &str = ".snapshots";

/// These journals and their companions, each with its name and whether it is a companion; those upstream first.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn with_companions(journals: &[(String, PathBuf)]) -> Vec<(String, PathBuf, bool)> {
    let beside = |name: &str, dir: &Path, suffix: &str| {
        // Without what a path may end with: "orders/".
        let mut path = dir.components().as_path().as_os_str().to_owned();
        path.push(suffix);
        (format!("{name}{suffix}"), PathBuf::from(path), true)
    };
    let mut all: Vec<(String, PathBuf, bool)> = Vec::new();
    for (name, dir) in journals {
        all.push(beside(name, dir, BEFORE));
        all.push((name.clone(), dir.clone(), false));
        all.push(beside(name, dir, AFTER));
    }
    // A companion that was named itself has the position where it was named.
    let named = |name: &str| journals.iter().any(|(other, _)| other == name);
    all.retain(|(name, _, is_companion)| !is_companion || !named(name));
    all
}

/// All journals to serve, those of services with their companions, and those that are open already.
pub(super) fn list(
    journals: &[(String, PathBuf)],
    open: &[(String, Journal)],
) -> Result<Vec<Served>, ReplicationError> {
    let opened = open.iter();
    let opened = opened.map(|(name, journal)| (name.clone(), journal.path()));
    let all: Vec<(String, PathBuf)> = journals.iter().cloned().chain(opened).collect();
    for (at, (name, dir)) in all.iter().enumerate() {
        if name.is_empty() || name.len() > NAME_MAX {
            let what = format!("{}: a name has 1 to {NAME_MAX} bytes", dir.display());
            return Err(ReplicationError::Usage(what));
        }
        if let Some((_, other)) = all[..at].iter().find(|(other, _)| other == name) {
            return Err(ReplicationError::Usage(format!(
                "two journals are called '{name}': {} and {} (NAME=DIR sets another name)",
                other.display(),
                dir.display()
            )));
        }
    }
    let all = with_companions(journals).into_iter();
    let mut served: Vec<Served> = all
        .map(|(name, dir, is_companion)| Served {
            name,
            dir,
            is_companion,
            opened: OnceLock::new(),
            live: Mutex::default(),
        })
        .collect();
    for (name, journal) in open {
        served.push(Served {
            name: name.clone(),
            dir: journal.path(),
            is_companion: false,
            opened: OnceLock::from(OpenJournal::of(journal.clone())?),
            live: Mutex::default(),
        });
    }
    Ok(served)
}

impl Served {
    /// The journal, if it exists by now.
    pub fn opened(&self) -> Result<Option<&OpenJournal>, ReplicationError> {
        if let Some(opened) = self.opened.get() {
            return Ok(Some(opened));
        }
        let options = Options {
            create: false,
            ..Options::default()
        };
        let journal = match Journal::open(&self.dir, options) {
            Err(Error::NotFound { .. }) => return Ok(None),
            // A folder of that name which holds other things is no companion.
            Err(Error::NotAJournal { .. }) if self.is_companion => return Ok(None),
            journal => journal?,
        };
        let opened = OpenJournal::of(journal)?;
        Ok(Some(self.opened.get_or_init(|| opened)))
    }

    /// Whether it was created since the last check. Cheap.
    pub fn has_come(&self) -> Result<bool, ReplicationError> {
        Ok(self.opened.get().is_some() || (self.dir.exists() && self.opened()?.is_some()))
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Register the follower, unless another one has its name. An earlier connection of the same follower is ended.
    pub fn enter(
        &self,
        name: &str,
        presence: Presence,
        number: usize,
        stream: &Arc<Stream>,
    ) -> bool {
        let mut live = self.live();
        if let Some(other) = live.get(name) {
            if other.presence.copy != presence.copy {
                return false;
            }
            other.stream.close();
        }
        let stream = Arc::clone(stream);
        live.insert(
            name.to_owned(),
            Live {
                presence,
                number,
                stream,
            },
        );
        true
    }

    /// The followers that must answer before the one of that name may be [admitted](super::membership).
    pub fn unanswered(
        &self,
        opened: &OpenJournal,
        name: &str,
    ) -> Result<Vec<String>, ReplicationError> {
        let cursors = opened.journal.cursors()?;
        let live = self.live();
        let present = |name: &str| live.get(name).map(|live| &live.presence);
        Ok(unanswered(&cursors, name, present))
    }

    /// Call a function for this follower, unless a newer connection has replaced this one.
    pub fn as_current<T>(&self, name: &str, number: usize, act: impl FnOnce() -> T) -> Option<T> {
        let live = self.live();
        let current = live.get(name).is_some_and(|live| live.number == number);
        current.then(act)
    }

    /// Ends the connections of all followers.
    pub fn close_all(&self) {
        self.live().values().for_each(|live| live.stream.close());
    }

    /// The connection has ended.
    pub fn leave(&self, name: &str, number: usize) {
        let mut live = self.live();
        if live.get(name).is_some_and(|live| live.number == number) {
            live.remove(name);
        }
    }
}
