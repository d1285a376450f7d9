//! Queues on disk: a directory for each, which is a journal that no other process may write.
//!
//! The name of the directory is the name of the queue. Names that begin with a dot are not queues: a queue that is
//! being deleted is renamed to such a name first, so that a crash does not leave a part of it.
//!
//! A directory is created with the first record of its queue: a read creates nothing on disk. A directory whose journal
//! was not completed, since the process was killed in between, is a queue without records: nothing in it was
//! acknowledged.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;

use millstream_journal::chain;
#[cfg(target_os = "linux")]
use millstream_journal::file_system::FileSystem;
use millstream_journal::storage::{Mapped, create_dir_durably};
use millstream_journal::{Error as Fault, Identity, Journal, Options, Sync};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Storage;
use super::journal_log::{JournalLog, LiveJournal, Opener, Origin, Reopener};
use super::makers::Makers;
use super::removals::Removals;
use crate::error::Cause;
use crate::name;

const REMOVED: &str = ".removed-";
const LOCK: &str = ".lock";
/// The journal of the changes of all queues, where followers copy them.
pub(crate) const CHANGES: &str = ".changes";
/// The longest record that there can be.
const RECORD_BYTES_MAX: u32 = 1 << 28;
/// What a change has besides the record of a queue, with some margin.
const CHANGE_BYTES: u32 = 1 << 10;
/// A segment holds at least this many records of the largest size, so that little of it stays unused.
const RECORDS_PER_SEGMENT_MIN: u64 = 8;
const SEGMENT_BYTES: u64 = 16 << 20;
/// The first segment of a queue; each is twice as large as the previous one.
const SEGMENT_BYTES_FIRST: u64 = 16 << 10;
/// The number of threads that open queues at a start: most of the time they wait for the disk.
const OPEN_THREADS: usize = 8;
/// The size of a record besides the item's bytes, with some margin.
const RECORD_BYTES: u64 = 1 << 10;

/// A directory of queues.
#[derive(Clone)]
pub struct JournalStorage {
    folder: PathBuf,
    options: Options,
    /// The threads that create queues, if there are any.
    makers: Option<Makers<LiveJournal<Mapped>>>,
    /// The directories that are removed beside the calling thread.
    removals: Arc<Removals>,
    /// The number of open logs.
    open_logs: Arc<AtomicUsize>,
    /// Locked while the queues are open: two servers would each take a part of the items.
    _lock: Arc<File>,
}

impl std::fmt::Debug for JournalStorage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "JournalStorage({})", self.folder.display())
    }
}

impl JournalStorage {
    /// The queues in `folder`, which is created if necessary. No item will be longer than `item_bytes_max`.
    ///
    /// # Errors
    /// The directory cannot be created or read, another process has it open, or a second machine follows the queues.
    pub fn open(folder: &Path, item_bytes_max: usize) -> io::Result<Self> {
        let changes = folder.join(CHANGES);
        if changes.exists() {
            let is_copy = Journal::open(&changes, Options::read_only())
                .and_then(|journal| journal.leadership())
                .map_or(true, |leadership| leadership.is_copy);
            let what = if is_copy {
                "these queues are a copy, which a follower keeps: `millstream queue promote` makes them the queues"
            } else {
                "a second machine follows these queues: serve them with --replica, or delete .changes there to do without it"
            };
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        Self::open_followed(folder, item_bytes_max)
    }

    /// The same for queues whose changes are followed, or are those of another machine.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_followed(folder: &Path, item_bytes_max: usize) -> io::Result<Self> {
        let folder = folder.to_owned();
        create_dir_durably(&folder)?;
        let lock = File::create(folder.join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => io::Error::new(
                io::ErrorKind::WouldBlock,
                "another process serves these queues",
            ),
            other => other.into(),
        })?;
        let record_bytes_max = item_bytes_max as u64 + RECORD_BYTES;
        let segment_bytes =
            (record_bytes_max * RECORDS_PER_SEGMENT_MIN).next_multiple_of(SEGMENT_BYTES);
        let options = Options {
            // The queues sync their logs, see `Log::sync`.
            sync: Sync::Never,
            segment_bytes,
            segment_bytes_first: Some(SEGMENT_BYTES_FIRST),
            record_bytes_max: u32::try_from(record_bytes_max).unwrap_or(u32::MAX),
            exclusive: true,
            ..Options::default()
        };
        // A process that created a queue may have died before this sync.
        File::open(&folder)?.sync_all()?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(REMOVED) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(JournalStorage {
            folder,
            options,
            makers: None,
            removals: Arc::default(),
            open_logs: Arc::default(),
            _lock: Arc::new(lock),
        })
    }

    /// The queues of a follower, which takes items as long as the server has them.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    pub fn open_copy(folder: &Path) -> io::Result<Self> {
        let mut storage = Self::open_followed(folder, 0)?;
        storage.options.record_bytes_max = RECORD_BYTES_MAX;
        Ok(storage)
    }

    /// Creates and removes the files of queues on threads of their own. They call `notify` after each new queue: then
    /// [`Broker::created`](crate::broker::Broker::created) must be called.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn with_makers(
        mut self,
        notify: impl Fn() + Send + std::marker::Sync + 'static,
    ) -> io::Result<Self> {
        self.makers = Some(Makers::start(notify)?);
        Ok(self)
    }

    /// Opens the journal of a queue to write; `create` allows to create it.
    fn live(&self, name: &str, create: bool) -> Result<LiveJournal<Mapped>, Cause> {
        let folder = self.folder.join(name);
        let is_new = create && !folder.exists();
        let options = Options {
            create,
            ..self.options.clone()
        };
        if create {
            create_folder(&folder)?;
        }
        let open =
            || -> Result<_, Cause> { LiveJournal::over(Journal::open(&folder, options.clone())?) };
        let mut opened = open();
        let is_full = |cause: &Cause| matches!(cause.downcast_ref(), Some(Fault::DiskFull { .. }));
        if opened.as_ref().err().is_some_and(is_full) && self.removals.wait() {
            opened = open();
        }
        let live = match opened {
            // An incomplete journal is not a queue, and takes space on a disk that may be full.
            Err(cause) if is_new && folder.exists() => {
                return Err(match self.clone().remove(name) {
                    Ok(()) => cause,
                    Err(left) => {
                        format!("{}; what was made of it stays: {left}", chain(&*cause)).into()
                    }
                });
            }
            opened => opened?,
        };
        Ok(live)
    }

    /// Creates the log of a queue that is a copy of another one: of its lineage and size of segments, from this record
    /// on.
    pub(crate) fn create_copy(
        &mut self,
        name: &str,
        origin: Origin,
        first: u64,
    ) -> Result<JournalLog, Cause> {
        let folder = self.folder.join(name);
        let options = Options {
            identity: Some(Identity::new(Some(origin.lineage), &self.options.host)),
            first_sequence: first,
            segment_bytes: origin.segment_bytes,
            create_new: true,
            ..self.options.clone()
        };
        create_folder(&folder)?;
        drop(Journal::open(&folder, options)?);
        self.open(name)
    }

    /// Opens the journal of the changes of all queues, or makes it.
    pub(crate) fn open_changes(&self) -> Result<Journal, Cause> {
        let options = Options {
            record_bytes_max: self.options.record_bytes_max.saturating_add(CHANGE_BYTES),
            ..self.options.clone()
        };
        Ok(Journal::open(self.folder.join(CHANGES), options)?)
    }

    /// The directory of the queues.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Creates the directory of a queue.
fn create_folder(folder: &Path) -> Result<(), Fault> {
    fs::create_dir_all(folder).map_err(|source| Fault::Io {
        verb: "create",
        path: folder.to_owned(),
        source,
    })?;
    update_in_place(folder);
    Ok(())
}

/// Makes btrfs update the files of a new directory in place. Otherwise it copies each block that is written, which
/// needs space: removals could not be written on a full disk. Other file systems have no such attribute and need
/// none.
#[cfg(target_os = "linux")]
fn update_in_place(folder: &Path) {
    use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
    let Ok(directory) = File::open(folder) else {
        return;
    };
    if FileSystem::of(folder).name == "btrfs" {
        // If this is refused, a full disk is an error, as for any journal on btrfs.
        let _refused = ioctl_getflags(&directory)
            .and_then(|flags| ioctl_setflags(&directory, flags | IFlags::NOCOW));
    }
}

/// No such attribute here.
#[cfg(not(target_os = "linux"))]
fn update_in_place(_folder: &Path) {}

impl Storage for JournalStorage {
    type Log = JournalLog;

    fn names(&self) -> Result<Vec<String>, Cause> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string()
                && name::check(name.as_bytes()).is_ok()
                && entry.file_type()?.is_dir()
            {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn open(&mut self, name: &str) -> Result<JournalLog, Cause> {
        let folder = self.folder.join(name);
        let exists = folder.exists();
        let name = name.to_owned();
        // What the threads do must not keep them.
        let storage = JournalStorage {
            makers: None,
            ..self.clone()
        };
        let open: Opener<Mapped> = Arc::new(move |create| storage.live(&name, create));
        let opener = Reopener {
            folder,
            open,
            makers: self.makers.clone(),
            removals: Arc::clone(&self.removals),
            open_logs: Arc::clone(&self.open_logs),
        };
        JournalLog::opened_by(opener, exists)
    }

    fn open_many(&mut self, names: &[String]) -> Vec<Result<JournalLog, Cause>> {
        let each = names.len().div_ceil(OPEN_THREADS).max(1);
        let open = |names: &[String]| {
            let mut storage = self.clone();
            let logs = names.iter().map(|name| storage.open(name));
            logs.collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let parts = names.chunks(each);
            let parts: Vec<_> = parts
                .map(|part| (part, Builder::new().spawn_scoped(scope, || open(part))))
                .collect();
            let logs = parts.into_iter().flat_map(|(part, thread)| {
                // Where the system refuses a thread, this one does the work. A thread panics only because of a bug, and
                // has logged it.
                let opened = thread.ok().and_then(|thread| thread.join().ok());
                opened.unwrap_or_else(|| open(part))
            });
            logs.collect()
        })
    }

    fn remove(&mut self, name: &str) -> Result<(), Cause> {
        let from = self.folder.join(name);
        if !from.exists() {
            return Ok(());
        }
        let to = (0u32..)
            .map(|n| self.folder.join(format!("{REMOVED}{n}")))
            .find(|to| !to.exists());
        let to = to.ok_or("too many queues are being removed")?;
        fs::rename(from, &to)?;
        match self.makers {
            Some(_) => Ok(self.removals.begin(to)?),
            None => Ok(fs::remove_dir_all(to)?),
        }
    }

    fn open_logs(&self) -> usize {
        self.open_logs.load(Ordering::Relaxed)
    }
}
