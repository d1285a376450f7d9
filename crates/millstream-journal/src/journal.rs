//! The handle on a journal.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::append::Appender;
use crate::core::{Core, lock};
use crate::durable::Durable;
use crate::error::{Error, Result};
use crate::open;
use crate::options::Options;
use crate::reader::Reader;
use crate::storage::{Mapped, Storage};
use crate::writer::Writer;

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
    _lock: Option<S::Lock>,
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
    /// The first opening of all processes recovers: what a loss of power has torn off the end is cut.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotAJournal`], [`Error::Version`], [`Error::Locked`], [`Error::Damage`] in what was
    /// synced, an option out of range, or what the system says.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self> {
        Self::open_in(Mapped::new(path), options)
    }
}

impl<S: Storage> Journal<S> {
    /// Open the journal that is kept in `storage`.
    ///
    /// # Errors
    /// As [`Journal::open`].
    pub fn open_in(storage: S, options: Options) -> Result<Self> {
        let opened = open::open(storage, options)?;
        let core = Arc::new(opened.core);
        let durable = Arc::new(Durable::new(Arc::clone(&core)));
        let opening = Opening {
            core,
            durable,
            appender: Mutex::new(None),
            _lock: opened.lock,
        };
        Ok(Journal {
            opening: Arc::new(opening),
        })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.core().path()
    }

    /// The sequence number of the oldest record that is kept.
    ///
    /// # Errors
    /// A segment that cannot be opened.
    pub fn first(&self) -> Result<u64> {
        self.core().first()
    }

    /// The sequence number that the next record will get.
    ///
    /// # Errors
    /// A segment that cannot be opened.
    pub fn next(&self) -> Result<u64> {
        self.core().next()
    }

    /// All records before this sequence number survive a loss of power.
    #[must_use]
    pub fn durable(&self) -> u64 {
        self.core().durable()
    }

    /// A handle to append with. All writers of an opening share its lock slot and background thread.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::TooManyWriters`]; what the system says.
    pub fn writer(&self) -> Result<Writer<S>> {
        if self.core().options.read_only {
            return Err(Error::ReadOnly { path: self.path() });
        }
        let mut appender = lock(&self.opening.appender);
        let appender = match &*appender {
            Some(appender) => Arc::clone(appender),
            None => {
                let made =
                    Appender::new(Arc::clone(self.core()), Arc::clone(&self.opening.durable))?;
                Arc::clone(appender.insert(Arc::new(made)))
            }
        };
        Ok(Writer::new(self.clone(), appender))
    }

    /// A reader that stands at the first record.
    ///
    /// # Errors
    /// A segment that cannot be opened.
    pub fn reader(&self) -> Result<Reader<S>> {
        Reader::new(self.clone())
    }

    pub(crate) fn core(&self) -> &Arc<Core<S>> {
        &self.opening.core
    }
}
