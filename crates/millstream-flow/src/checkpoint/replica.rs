//! The state of a flow on another machine: its journals are served while the flow runs, and a commit may wait for a
//! follower.
//!
//! The journals are those of the state directory, `epochs` last: a follower that appends in this order never has a
//! commit without the recorded input and the output that the commit refers to. So its copy is at each moment what a
//! crash could have left here, and a start from it truncates what follows its last commit.
//!
//! Invariant: with [`commit_on_replica`](crate::Recovery::commit_on_replica) no sink, source or other process is
//! notified of an epoch before a follower has it durably.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use millstream_journal::{Error, Journal, Options};

use super::directories::names;
use super::store::{Store, failed};
use super::{fragments, record};
use crate::clock::now_ns;
use crate::cluster::{JoinStopped, Membership};
use crate::error::{Cause, FlowError, chain};
use crate::named::{COMMIT_ON_REPLICA, REPLICA};

/// Serves the journals of a state directory to followers on other machines.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Replica: fmt::Debug + Send + Sync {
    /// Serves these journals, each by its name, until the result is dropped. The last one refers to the others.
    ///
    /// # Errors
    /// The address cannot be used; a name that is too long, or too many journals.
    fn serve(&self, journals: Vec<(String, Journal)>) -> Result<Box<dyn Serving>, Cause>;

    /// Whether this process was asked to stop, while the start of a run waits for a follower.
    fn stopping(&self) -> bool {
        false
    }
}

/// Journals that are served.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Serving: Send {
    /// Waits until a follower has all records that the last journal has now, at most for `limit`. Returns whether one
    /// has.
    ///
    /// # Errors
    /// The journal cannot be read, or a copy of it was promoted on another machine: then this state is superseded.
    fn wait(&mut self, limit: Duration) -> Result<bool, Cause>;
}

/// How often a wait for a follower looks whether the run has ended.
const LOOK: Duration = Duration::from_millis(100);
/// A wait that is longer is logged, and makes the sources pause.
const PATIENCE: Duration = Duration::from_secs(1);
/// The directories of a state directory whose entries are journals.
const OF_JOURNALS: [&str; 3] = ["inputs", "http", "outputs"];

/// The state of a run that is served.
pub(crate) struct Replicated {
    serving: Box<dyn Serving>,
    /// Whether commits wait for a follower.
    waits: bool,
    dir: PathBuf,
    replica: Arc<dyn Replica>,
}

impl Replicated {
    /// Serves the state directory of a run, if it has a replica. All its journals are complete by now; `open` are those
    /// that sources have open. With `waits` commits wait for a follower.
    pub(super) fn begin(
        (replica, waits): (Option<&Arc<dyn Replica>>, bool),
        membership: Option<Membership>,
        store: &Store,
        open: &[Journal],
    ) -> Result<Option<Self>, FlowError> {
        let Some(replica) = replica else {
            return if waits {
                Err(FlowError::Usage(
                    "commits wait for a follower of the state, and it is served to none: commit_on_replica needs a replica"
                        .to_owned(),
                ))
            } else {
                Ok(None)
            };
        };
        let dir = store.dir();
        let serve = || {
            let prefix = membership.map_or_else(String::new, |of| format!("p{}/", of.process));
            let mut journals = journals(dir, open, &prefix)?;
            journals.push((format!("{prefix}epochs"), store.journal().clone()));
            replica.serve(journals)
        };
        let serving = serve().map_err(|cause| failed(dir, cause))?;
        Ok(Some(Replicated {
            serving,
            waits,
            dir: dir.to_owned(),
            replica: Arc::clone(replica),
        }))
    }

    /// Waits until a follower has what is committed or prepared, if commits wait for it. Returns false if `ended` has
    /// returned true first. `hold` is called with true when the sources must pause, and with false at the end.
    pub(crate) fn wait(
        &mut self,
        epoch: u64,
        ended: &mut dyn FnMut() -> Result<bool, FlowError>,
        hold: &dyn Fn(bool),
    ) -> Result<bool, FlowError> {
        if !self.waits {
            return Ok(true);
        }
        let begun_ns = now_ns();
        let waited = || Duration::from_nanos(now_ns().saturating_sub(begun_ns));
        let mut holds = false;
        let outcome = loop {
            let has = self.serving.wait(LOOK);
            match has.map_err(|cause| failed(&self.dir, cause)) {
                Ok(false) => {}
                has => break has,
            }
            match ended() {
                Ok(false) => {}
                Ok(true) => break Ok(false),
                Err(error) => break Err(error),
            }
            if !holds && waited() >= PATIENCE {
                holds = true;
                hold(true);
                tracing::warn!(
                    epoch,
                    "epoch {epoch} waits for a follower of {} ({COMMIT_ON_REPLICA}), and so do the sources; a second signal ends the wait",
                    self.dir.display()
                );
            }
        };
        if holds {
            hold(false);
            if let Ok(true) = outcome {
                let waited = waited().as_secs();
                tracing::info!(
                    epoch,
                    "a follower has epoch {epoch} after {waited} s; the sources resume"
                );
            }
        }
        outcome
    }

    /// The same before the workers start: ends when the process is asked to stop.
    pub(super) fn wait_at_start(
        &mut self,
        epoch: u64,
        process: usize,
        ended: &mut dyn FnMut() -> Result<(), FlowError>,
    ) -> Result<(), FlowError> {
        let replica = Arc::clone(&self.replica);
        let mut look = || {
            ended()?;
            Ok(replica.stopping())
        };
        if self.wait(epoch, &mut look, &|_| {})? {
            Ok(())
        } else {
            Err(FlowError::Cluster {
                process,
                cause: JoinStopped.into(),
            })
        }
    }
}

/// The journals of a state directory apart from `epochs`, by name: those of `open`, which this process has open
/// exclusively, and those that others may open.
fn journals(dir: &Path, open: &[Journal], prefix: &str) -> Result<Vec<(String, Journal)>, Cause> {
    let mut found = Vec::new();
    for area in names(dir)? {
        let path = dir.join(&area);
        // Recorded input that a rescale has put aside is kept for people.
        let is_aside = area.starts_with("inputs-") || area == "scaling";
        if area == "epochs" || is_aside || !path.is_dir() || names(&path)?.is_empty() {
            continue;
        }
        if !OF_JOURNALS.contains(&&*area) {
            return Err(format!(
                "it cannot be followed by another machine: {} belongs to a source of files or queues of this machine, which are not \
                 in the state; leave out {REPLICA}",
                path.display()
            )
            .into());
        }
        for name in names(&path)? {
            let path = path.join(&name);
            let known = open.iter().find(|journal| journal.path() == path);
            let journal = match known {
                Some(journal) => journal.clone(),
                None => match Journal::open(&path, shared()) {
                    // Nothing was ever in it.
                    Err(Error::NotFound { .. }) => continue,
                    opened => opened?,
                },
            };
            found.push((format!("{prefix}{area}/{name}"), journal));
        }
    }
    Ok(found)
}

fn shared() -> Options {
    Options {
        create: false,
        ..Options::default()
    }
}

/// The number before which no record of a copy of the journal `epochs` in `path` may be dropped: the end of what the
/// copy knows to be committed. A commit record of a process other than 0 is not synced, so that a loss of power can
/// take it from the original; what was prepared before it remains.
///
/// # Errors
/// The journal is damaged; the text names the damage.
#[doc(hidden)] // For the other crates of Millstream.
pub fn committed_end(path: &Path) -> Result<u64, String> {
    let read = || -> Result<u64, Cause> {
        let journal = match Journal::open(path, Options::read_only()) {
            Err(Error::NotFound { .. }) => return Ok(0),
            opened => opened?,
        };
        let mut reader = journal.reader()?;
        let mut end = reader.position();
        let mut prepared_end = None;
        fragments::read_each(&mut reader, u64::MAX, |numbers, body| {
            if record::is_prepared(body) {
                prepared_end = Some(numbers.end);
            } else if record::is_commit(body) {
                let follows = prepared_end == Some(numbers.start);
                let is_synced = !follows || record::is_of_process_0(body)?;
                end = if is_synced {
                    numbers.end
                } else {
                    numbers.start
                };
                prepared_end = None;
            }
            Ok(())
        })?;
        Ok(end)
    };
    read().map_err(|cause| chain(&*cause).to_string())
}
