//! The handle on a journal.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::append::appender::Appender;
use crate::copies::identity::{self, Identity};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::mutex::lock;
use crate::open;
use crate::options::{Options, Retention, Sync};
use crate::read::info::{self, Info};
use crate::recover::verify::{self, Progress, Report};
use crate::retain::prune::{self, Pruned};
use crate::storage::{Mapped, Storage};
use crate::sync::durable::Durable;

/// An open journal. Clones are handles on the same opening; all threads may use them.
///
/// ```
/// use millstream_journal::{Journal, Options};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("orders");
/// let journal = Journal::open(&path, Options::default())?;
/// let writer = journal.writer()?;
/// assert_eq!(writer.append(b"first")?, 0);
///
/// let mut reader = journal.reader()?;
/// let record = reader.next()?.expect("it was appended");
/// assert_eq!((record.sequence, record.body), (0, &b"first"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Journal<S: Storage = Mapped> {
    opening: Arc<Opening<S>>,
}

/// What handles on one opening share.
struct Opening<S: Storage> {
    core: Arc<Core<S>>,
    durable: Arc<Durable<S>>,
    appender: Mutex<Option<Arc<Appender<S>>>>,
    /// Says that the journal is open. An opening that appends says it with the lock of its slot.
    lock: Mutex<Option<S::Lock>>,
}

impl<S: Storage> Drop for Opening<S> {
    fn drop(&mut self) {
        // A failure has poisoned the journal; the next opening reports it.
        if !self.core.options.read_only {
            let _told_next_time = self.durable.close();
        }
    }
}

impl<S: Storage> Clone for Journal<S> {
    fn clone(&self) -> Self {
        Journal {
            opening: Arc::clone(&self.opening),
        }
    }
}

impl Journal {
    /// Open the journal in the directory `path`, and make it if there is none and `create` is set.
    ///
    /// The first opening of all processes recovers: it truncates a torn end that a loss of power has left.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAJournal`], [`Error::Version`], [`Error::Locked`], [`Error::Damage`] in synced
    /// data, an option out of range, or an error of the system.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_in(Mapped::new(path), options)
    }

    /// Read all of the journal in the directory `path` and name every damage. Nothing is written; writers may continue
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAJournal`], [`Error::Version`], an error of the system. Damage is no error
    /// here.
    pub fn verify(path: impl AsRef<Path>) -> Result<Report> {
        Self::verify_in(&Mapped::new(path), &Options::default(), |_| {
            ControlFlow::Continue(())
        })
    }
}

impl<S: Storage> Journal<S> {
    /// Open the journal that is kept in `storage`.
    ///
    /// # Errors
    /// As [`Journal::open`].
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn open_in(storage: S, options: Options) -> Result<Self> {
        let opened = open::open(storage, options)?;
        let core = Arc::new(opened.core);
        let durable = Arc::new(Durable::new(Arc::clone(&core)));
        if !core.options.read_only && core.options.sync != Sync::Never {
            // The process that appended the records may have died before they were synced.
            durable.sync()?;
        }
        let opening = Opening {
            core,
            durable,
            appender: Mutex::new(None),
            lock: Mutex::new(opened.lock),
        };
        Ok(Journal {
            opening: Arc::new(opening),
        })
    }

    /// [`verify`](Journal::verify) for any storage. Calls `progress` before each segment, and stops when that breaks.
    ///
    /// # Errors
    /// As [`Journal::verify`].
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn verify_in(
        storage: &S,
        options: &Options,
        progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Report> {
        verify::verify(storage, options, progress)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.core().path()
    }

    /// The sequence number of the oldest record.
    ///
    /// # Errors
    /// A segment that cannot be opened.
    pub fn first(&self) -> Result<u64> {
        self.core().checked(self.core().first())
    }

    /// The sequence number that the next record will get.
    ///
    /// # Errors
    /// A segment that cannot be opened.
    pub fn next(&self) -> Result<u64> {
        self.core().checked(self.core().published())
    }

    /// All records before this sequence number survive a loss of power.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.core().durable()
    }

    /// Whether the journal refuses appends: a sync has failed, or a newer term is known.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn is_stopped(&self) -> bool {
        self.core()
            .live_control()
            .is_some_and(|control| control.is_stopped())
    }

    /// When what this opening appends survives a loss of power.
    #[must_use]
    pub fn sync_mode(&self) -> Sync {
        self.core().options.sync
    }

    pub(crate) fn appender(&self) -> Result<Arc<Appender<S>>> {
        if self.core().options.read_only {
            return Err(Error::ReadOnly { path: self.path() });
        }
        let mut appender = lock(&self.opening.appender);
        if let Some(appender) = &*appender {
            return Ok(Arc::clone(appender));
        }
        let made = Appender::new(Arc::clone(self.core()), Arc::clone(&self.opening.durable))?;
        if !self.core().options.exclusive {
            drop(lock(&self.opening.lock).take());
        }
        Ok(Arc::clone(appender.insert(Arc::new(made))))
    }

    /// How often this opening has made or removed files. While the number stays, so does what the journal takes on the
    /// disk, where no other process has it open to write.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn file_changes(&self) -> u64 {
        self.core().storage.changes()
    }

    /// Remove old records, whole segments at a time.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; an error of the system.
    pub fn prune(&self, retention: &Retention) -> Result<Pruned> {
        self.core().checked(prune::prune(self.core(), retention))
    }

    /// Drop the records from `sequence` on, so that the next record gets this number. The remaining records are durable
    /// afterwards.
    ///
    /// A cut clears the records of the segment in which it begins, so no reader and no [pinned
    /// record](crate::PinnedRecord) of this opening may hold that segment. Segments after it are removed; a pinned
    /// record of these keeps its body. Openings that only read are not excluded: their readers whose position is after
    /// the cut get [`Error::NotYet`], and a body that one of them has borrowed across the cut may read as zeros or as a
    /// later record.
    ///
    /// # Errors
    /// [`Error::NotExclusive`]; [`Error::InUse`]; [`Error::Pruned`]; [`Error::NotYet`]; an error of the system. On a
    /// full disk nothing is dropped: the intent of a cut needs a block.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn cut(&self, sequence: u64) -> Result<()> {
        if !self.core().options.exclusive {
            return Err(Error::NotExclusive { path: self.path() });
        }
        self.appender()?.cut(sequence)
    }

    /// A summary of the journal.
    ///
    /// # Errors
    /// A segment or cursor that cannot be opened.
    pub fn info(&self) -> Result<Info> {
        self.core().checked(info::info(self.core()))
    }

    /// The identity of this journal.
    ///
    /// # Errors
    /// [`Error::Damage`]; an error of the system.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn identity(&self) -> Result<Identity> {
        identity::read(&self.core().storage)
    }

    /// The identity that this journal shares with its copies, at any path and on any machine. An empty journal gets
    /// another lineage when it
    /// [becomes a copy](Self::become_copy), so ask when there is a record.
    ///
    /// # Errors
    /// As [`identity`](Self::identity).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn lineage(&self) -> Result<u128> {
        Ok(self.identity()?.lineage)
    }

    /// Make this journal a copy in another lineage. The caller knows that it never had a record, or that its records
    /// are those of the original. Its own number stays.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; as [`identity`](Self::identity).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn become_copy(&self, lineage: u128) -> Result<Identity> {
        let core = self.core();
        if core.options.read_only {
            return Err(Error::ReadOnly { path: self.path() });
        }
        let known = self.identity()?;
        let identity = Identity { lineage, ..known };
        if known != identity {
            identity::write(&core.storage, identity)?;
        }
        Ok(identity)
    }

    /// Make all that is appended survive a loss of power. Returns the sequence number before which all does.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; an error of the system, and [`Error::Poisoned`] from then on.
    pub fn sync(&self) -> Result<u64> {
        if self.core().options.read_only {
            return Err(Error::ReadOnly { path: self.path() });
        }
        self.core().check_fork()?;
        self.opening.durable.sync()
    }

    pub(crate) fn core(&self) -> &Arc<Core<S>> {
        &self.opening.core
    }
}
