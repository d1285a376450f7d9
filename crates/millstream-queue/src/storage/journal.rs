//! Queues on disk: a folder for each, which is a journal that nobody else may write.
//!
//! The name of the folder is the name of the queue. What begins with a dot is none: a queue that is being removed is
//! renamed to such a name first, so that a crash leaves no half of it.
//!
//! A folder comes to be with the first record of its queue: reading makes nothing on the disk.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millstream_journal::storage::Mapped;
use millstream_journal::{Error as Fault, Journal, Options, Sync};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Storage;
use super::journal_log::{JournalLog, LiveJournal};
use crate::error::Cause;
use crate::name;

const REMOVED: &str = ".removed-";
const LOCK: &str = ".lock";
/// `BTRFS_SUPER_MAGIC` of Linux.
#[cfg(target_os = "linux")]
const BTRFS: u64 = 0x9123_683e;
/// A record must fit into a segment several times, or much of each would stay empty.
const RECORDS_PER_SEGMENT_MIN: u64 = 8;
const SEGMENT_BYTES: u64 = 16 << 20;
/// What a queue with a few items takes; each segment has twice the size of the one before.
const SEGMENT_BYTES_FIRST: u64 = 16 << 10;
/// What a record says about an item besides its bytes, and some room.
const RECORD_BYTES: u64 = 1 << 10;

/// A folder of queues.
#[derive(Clone, Debug)]
pub struct JournalStorage {
    folder: PathBuf,
    options: Options,
    /// How many logs are open.
    open_logs: Arc<AtomicUsize>,
    /// Held as long as the queues are open: two servers would each take half of them.
    _lock: Arc<File>,
}

impl JournalStorage {
    /// The queues in `folder`, which is made if need be. No item will be longer than `item_bytes_max`.
    ///
    /// # Errors
    /// The folder cannot be made or read, or another process has it open.
    pub fn open(folder: impl Into<PathBuf>, item_bytes_max: usize) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
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
            // Queues say when; see `Log::sync`.
            sync: Sync::Never,
            segment_bytes,
            segment_bytes_first: Some(SEGMENT_BYTES_FIRST),
            record_bytes_max: u32::try_from(record_bytes_max).unwrap_or(u32::MAX),
            exclusive: true,
            ..Options::default()
        };
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(REMOVED) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(JournalStorage {
            folder,
            options,
            open_logs: Arc::default(),
            _lock: Arc::new(lock),
        })
    }

    /// The journal of a queue, open, made if `create` says so.
    fn live(&self, name: &str, create: bool) -> Result<LiveJournal<Mapped>, Cause> {
        let folder = self.folder.join(name);
        let is_new = create && !folder.exists();
        let options = Options {
            create,
            ..self.options.clone()
        };
        if is_new {
            fs::create_dir_all(&folder).map_err(|source| Fault::Io {
                verb: "create",
                path: folder.clone(),
                source,
            })?;
            update_in_place(&folder);
        }
        let opened = Journal::open(&folder, options).map_err(Cause::from);
        let live = match opened.and_then(LiveJournal::over) {
            // Half of a journal is no queue, and takes space on a disk that may be full.
            Err(cause) if is_new && folder.exists() => {
                return Err(match self.clone().remove(name) {
                    Ok(()) => cause,
                    Err(left) => format!("{cause}; what was made of it stays: {left}").into(),
                });
            }
            opened => opened?,
        };
        if is_new {
            // The journal has synced what is in its folder, not that there is one.
            File::open(&self.folder)?.sync_all()?;
        }
        Ok(live)
    }

    /// Where the queues are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

/// Have btrfs update the files of a new directory in place. It copies each block that is stored to otherwise, which needs room: removals
/// could not be written on a full disk. Another file system has no such attribute and needs none.
#[cfg(target_os = "linux")]
fn update_in_place(folder: &Path) {
    use rustix::fs::{IFlags, fstatfs, ioctl_getflags, ioctl_setflags};
    let Ok(directory) = File::open(folder) else {
        return;
    };
    if fstatfs(&directory).is_ok_and(|found| found.f_type as u64 == BTRFS) {
        // Where it is refused a full disk is a fault, as it is for any journal on btrfs.
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
        let (storage, name) = (self.clone(), name.to_owned());
        let open = Box::new(move |create| storage.live(&name, create));
        JournalLog::opened_by(folder, open, exists, Arc::clone(&self.open_logs))
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
        Ok(fs::remove_dir_all(to)?)
    }

    fn open_logs(&self) -> usize {
        self.open_logs.load(Ordering::Relaxed)
    }
}
