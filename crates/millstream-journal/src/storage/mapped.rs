//! The real storage: files of a directory, mapped into memory and locked with `flock`.
//!
//! A file system that cannot serve the memory causes a [`Fault`] of its region; this module finds the cause.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};

use super::memory::Memory;
use super::{Access, Fault, Hold, Presence, Region, Storage, fault};

/// The folder of cursors, and the beginning of their names.
const CURSORS: &str = "cursors";
const CURSORS_BELOW: &str = "cursors/";

/// A directory on this machine.
#[derive(Clone, Debug)]
pub struct Mapped {
    root: Arc<Path>,
    /// The fault of a region that was closed before the fault was read.
    fault: Arc<Mutex<Option<Fault>>>,
    /// How often a file was made, named or removed.
    changes: Arc<AtomicU64>,
    /// Whether the names of cursors may not be durable. Locked while they are synced.
    cursors_changed: Arc<Mutex<bool>>,
}

impl Mapped {
    /// The directory at `path`, which need not be there yet.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Mapped {
            root: path.as_ref().into(),
            fault: Arc::default(),
            changes: Arc::default(),
            // A process that has changed them may have died.
            cursors_changed: Arc::new(Mutex::new(true)),
        }
    }

    fn region(
        &self,
        name: &str,
        file: &File,
        bytes: u64,
        access: Access,
    ) -> io::Result<MappedRegion> {
        Ok(MappedRegion {
            memory: Memory::map(file, bytes, access)?,
            path: self.path(name).into(),
            is_reported: AtomicBool::new(false),
            storage_fault: Arc::clone(&self.fault),
        })
    }

    /// Changes the file `name`, or its size. The change is counted after it is made, so that a reader that looked in
    /// between looks again.
    fn change<T>(&self, name: &str, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let outcome = act();
        self.note_cursor(name);
        self.changes.fetch_add(1, Ordering::Release);
        outcome
    }

    /// The name of a file was made, given or removed: that of a cursor must be synced.
    fn note_cursor(&self, name: &str) {
        if name.starts_with(CURSORS_BELOW) {
            *self.cursors_changed() = true;
        }
    }

    fn cursors_changed(&self) -> MutexGuard<'_, bool> {
        let changed = self.cursors_changed.lock();
        changed.unwrap_or_else(PoisonError::into_inner)
    }

    /// The file of that name, made empty if it is not there.
    fn made(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).truncate(false);
        match options.clone().create_new(true).open(self.path(name)) {
            Ok(file) => {
                self.note_cursor(name);
                self.give_to_owner(&file)?;
                Ok(file)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.create(true).open(self.path(name))
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a folder of the directory, if it is not there.
    fn make_folder(&self, name: &str) -> io::Result<()> {
        let path = self.root.join(name);
        match fs::create_dir(&path) {
            Err(_) if path.is_dir() => Ok(()),
            Err(error) => Err(error),
            Ok(()) => {
                // Never what a link leads to that was put there meanwhile.
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let folder = rustix::fs::open(&path, flags, Mode::empty())?;
                self.give_to_owner(&folder.into())
            }
        }
    }

    /// What root makes in the directory of another user belongs to that user, whose processes could not continue
    /// otherwise. A root without the right to give files away keeps them.
    fn give_to_owner(&self, made: &File) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let owner = fs::metadata(&self.root)?;
        let found = made.metadata()?;
        if (owner.uid(), owner.gid()) == (found.uid(), found.gid()) {
            return Ok(());
        }
        match std::os::unix::fs::fchown(made, Some(owner.uid()), Some(owner.gid())) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Err(error),
            _ => Ok(()),
        }
    }
}

/// A `flock`, held as long as this lives in the process that took it.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct FileLock {
    file: File,
    process: u32,
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // A forked child shares the lock: closing the file alone leaves it locked until the child executes another
        // program. A lock that the child drops still belongs to its parent.
        if std::process::id() == self.process {
            // Closing the file unlocks it too, where no child has it.
            let _closed_next = flock(&self.file, FlockOperation::Unlock);
        }
    }
}

impl Storage for Mapped {
    type Region = MappedRegion;
    type Lock = FileLock;

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() {
            self.root.to_path_buf()
        } else {
            self.root.join(name)
        }
    }

    fn prepare(&self) -> io::Result<()> {
        let writers = self.root.join("writers");
        // It is created after the sync, so that opening a journal again does not sync.
        if !writers.is_dir() {
            create_dir_durably(&self.root)?;
            self.make_folder("writers")?;
        }
        self.make_folder("cursors")
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path(folder))? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<MappedRegion> {
        let file = self.change(name, || {
            let file = self.made(name)?;
            if !has_blocks(&file, bytes)? {
                reserve(&file, bytes)?;
            }
            Ok(file)
        })?;
        self.region(name, &file, bytes, Access::Write)
    }

    fn open(&self, name: &str, access: Access) -> io::Result<MappedRegion> {
        let file = OpenOptions::new()
            .read(true)
            .write(access == Access::Write)
            .open(self.path(name))?;
        let bytes = file.metadata()?.len();
        if bytes == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file is empty",
            ));
        }
        self.region(name, &file, bytes, access)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // A link fails where a rename would replace.
        self.change(to, || match fs::hard_link(self.path(from), self.path(to)) {
            Ok(()) => fs::remove_file(self.path(from)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // The file is not there, or there is no room for the name.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::StorageFull
                        | io::ErrorKind::QuotaExceeded
                ) =>
            {
                Err(error)
            }
            Err(_) => without_link(&self.path(from), &self.path(to)),
        })
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.change(to, || fs::rename(self.path(from), self.path(to)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change(name, || fs::remove_file(self.path(name)))
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.root)?.sync_all()?;
        let mut changed = self.cursors_changed();
        if *changed {
            File::open(self.path(CURSORS))?.sync_all()?;
            *changed = false;
        }
        Ok(())
    }

    fn lock(&self, name: &str, hold: Hold) -> io::Result<Option<FileLock>> {
        let file = self.made(name)?;
        let operation = match hold {
            Hold::Shared => FlockOperation::NonBlockingLockShared,
            Hold::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&file, operation) {
            Ok(()) => Ok(Some(FileLock {
                file,
                process: std::process::id(),
            })),
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn sync_entry(&self) -> io::Result<()> {
        sync_entry(&self.root)
    }

    fn is_locked(&self, name: &str) -> io::Result<bool> {
        // The file is not created, and not opened to write: a process that only reads may call this.
        let file = File::open(self.path(name))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                flock(&file, FlockOperation::Unlock)?;
                Ok(false)
            }
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn presence(&self, shared: &str) -> io::Result<Presence> {
        Ok(Presence {
            directory: numbers(&self.root)?,
            shared: match numbers(&self.path(shared)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                numbers => Some(numbers?),
            },
        })
    }

    fn mount(&self) -> u64 {
        numbers(&self.root).map_or(0, |[_, _, _, mount]| mount)
    }

    fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    fn fault(&self) -> Option<Fault> {
        if !fault::any() {
            return None;
        }
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.take()
    }
}

/// Creates a directory and those above it that are missing. Each entry is on disk before anything is created below it,
/// so that a loss of power does not take what is acknowledged in the directory. A directory that exists is not an
/// error; its entry is synced too, since the process that created it may have died before its own sync.
///
/// # Errors
/// An error of the system.
///
/// ```
/// use millstream_journal::storage::create_dir_durably;
///
/// # let folder = tempfile::tempdir().unwrap();
/// # let state = folder.path().join("state");
/// create_dir_durably(&state.join("inputs"))?;
/// assert!(state.join("inputs").is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(hidden)] // For the other crates of Millstream.
pub fn create_dir_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return sync_entry(path);
    }
    if let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) {
        if parent.is_dir() {
            // As above. It may also be a directory of the system that cannot be synced.
            let _tried = sync_entry(parent);
        } else {
            create_dir_durably(parent)?;
        }
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        made => made?,
    }
    sync_entry(path)
}

/// Makes the name of a file or directory survive a loss of power: syncs the directory that it is in. A parent that this
/// process may not read is not synced, nor is one on a file system without syncs of directories.
///
/// # Errors
/// An error of the system.
///
/// ```
/// use millstream_journal::storage::sync_entry;
///
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("out.txt");
/// std::fs::write(&path, "a line\n")?;
/// std::fs::File::open(&path)?.sync_all()?;
/// sync_entry(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(hidden)] // For the other crates of Millstream.
pub fn sync_entry(path: &Path) -> io::Result<()> {
    let above = match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_path_buf(),
        Some(_) => PathBuf::from("."),
        None => return Ok(()),
    };
    match File::open(above) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        file => match file?.sync_all() {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        },
    }
}

/// Give a file its name where there are no links.
#[cfg(target_os = "linux")]
fn without_link(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) => Err(no_names()),
        renamed => Ok(renamed?),
    }
}

/// No such call here.
#[cfg(not(target_os = "linux"))]
fn without_link(_from: &Path, _to: &Path) -> io::Result<()> {
    Err(no_names())
}

fn no_names() -> io::Error {
    let what = "the file system has neither links nor a rename that replaces nothing";
    io::Error::new(io::ErrorKind::Unsupported, what)
}

/// `STATX_MNT_ID_UNIQUE`, which Linux has from 6.8 on.
#[cfg(target_os = "linux")]
const UNIQUE_MOUNT: u32 = 0x4000;

/// Numbers that distinguish a file from another that gets its name, and perhaps its inode, later.
#[cfg(target_os = "linux")]
fn numbers(path: &Path) -> io::Result<[u64; 4]> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let wanted = StatxFlags::INO | StatxFlags::BTIME | StatxFlags::from_bits_retain(UNIQUE_MOUNT);
    let found = statx(CWD, path, AtFlags::empty(), wanted)?;
    let device = u64::from(found.stx_dev_major) << 32 | u64::from(found.stx_dev_minor);
    let born = found.stx_btime.tv_sec as u64 * 1_000_000_000 + u64::from(found.stx_btime.tv_nsec);
    let mount = match found.stx_mask & UNIQUE_MOUNT {
        0 => 0,
        _ => found.stx_mnt_id,
    };
    Ok([device, found.stx_ino, born, mount])
}

/// Numbers that distinguish a file from another that gets its name later.
#[cfg(not(target_os = "linux"))]
fn numbers(path: &Path) -> io::Result<[u64; 4]> {
    let found = fs::metadata(path)?;
    Ok([found.dev(), found.ino(), 0, 0])
}

/// Whether the file has its length and all its blocks. XFS refuses to allocate them once more on a full disk.
fn has_blocks(file: &File, bytes: u64) -> io::Result<bool> {
    let found = file.metadata()?;
    Ok(found.len() >= bytes && found.blocks() * 512 >= found.len())
}

#[cfg(target_os = "linux")]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    match fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Err(error) if error == rustix::io::Errno::OPNOTSUPP => fill(file, bytes),
        result => Ok(result?),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    fill(file, bytes)
}

/// Where the file system cannot reserve, writing zeros does it.
fn fill(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let zeros = vec![0; 1 << 20];
    let mut at = file.metadata()?.len();
    while at < bytes {
        let length = (bytes - at).min(zeros.len() as u64);
        file.write_all_at(&zeros[..length as usize], at)?;
        at += length;
    }
    Ok(())
}

/// A mapped file.
#[doc(hidden)] // For the other crates of Millstream.
pub struct MappedRegion {
    memory: Memory,
    path: Box<Path>,
    /// The fault was returned to a caller.
    is_reported: AtomicBool,
    storage_fault: Arc<Mutex<Option<Fault>>>,
}

impl MappedRegion {
    /// Why the file system did not serve the page at `offset`, as far as can still be seen.
    fn cause(&self, offset: u64) -> io::Error {
        use std::os::unix::fs::FileExt;
        let found = File::open(&self.path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (bytes, file) = match found {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let what = "the file was truncated or its device failed, and it is removed by now";
                return io::Error::new(io::ErrorKind::NotFound, what);
            }
            Err(error) => return error,
        };
        if bytes < self.memory.len() {
            let what = format!(
                "the file was truncated to {bytes} of {} bytes",
                self.memory.len()
            );
            return io::Error::new(io::ErrorKind::UnexpectedEof, what);
        }
        match file.read_exact_at(&mut [0; 1], offset) {
            Err(error) => error,
            Ok(()) => io::Error::new(
                io::ErrorKind::StorageFull,
                "the disk is full, or its device failed for a moment",
            ),
        }
    }
}

impl Drop for MappedRegion {
    fn drop(&mut self) {
        if fault::any()
            && !self.is_reported.load(Ordering::Relaxed)
            && let Some(fault) = self.fault()
        {
            let mut last = self
                .storage_fault
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *last = Some(fault);
        }
    }
}

impl Region for MappedRegion {
    fn bytes_len(&self) -> u64 {
        self.memory.len()
    }

    fn is_writable(&self) -> bool {
        self.memory.is_writable()
    }

    #[inline]
    fn load(&self, at: u64) -> u64 {
        self.memory.word(at).load(Ordering::Acquire)
    }

    #[inline]
    fn publish(&self, at: u64, word: u64) {
        self.memory.word_to_store(at).store(word, Ordering::Release);
    }

    #[inline]
    fn exchange(&self, at: u64, current: u64, new: u64) -> Result<(), u64> {
        let word = self.memory.word_to_store(at);
        let exchanged = word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst);
        // On x86-64 the exchange is a fence; elsewhere a load after it could still come first.
        #[cfg(not(target_arch = "x86_64"))]
        std::sync::atomic::fence(Ordering::SeqCst);
        exchanged.map(drop)
    }

    #[inline]
    #[expect(unsafe_code, reason = "passes the contract on")]
    unsafe fn bytes(&self, at: u64, length: u64) -> &[u8] {
        // SAFETY: the same contract.
        unsafe { self.memory.bytes(at, length) }
    }

    #[inline]
    #[expect(unsafe_code, reason = "passes the contract on")]
    unsafe fn claim(&self, at: u64, length: u64) -> &mut [u8] {
        // SAFETY: the same contract.
        unsafe { self.memory.claim(at, length) }
    }

    #[inline]
    #[expect(unsafe_code, reason = "asks less than the contract")]
    unsafe fn claimed(&self, _at: u64, _length: u64) {}

    fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        self.memory.sync(from, to)?;
        // Zeros in the place of a page sync well.
        match fault::any().then(|| self.fault()).flatten() {
            None => Ok(()),
            Some(fault) => Err(fault.source),
        }
    }

    fn fault(&self) -> Option<Fault> {
        self.memory.fault().map(|offset| {
            self.is_reported.store(true, Ordering::Relaxed);
            Fault {
                path: self.path.to_path_buf(),
                offset,
                source: self.cause(offset),
            }
        })
    }

    fn populate(&self, from: u64, to: u64) {
        self.memory.populate(from, to);
    }

    fn release(&self, from: u64, to: u64) {
        self.memory.release(from, to);
    }

    #[inline]
    fn prefetch(&self, from: u64, to: u64) {
        self.memory.prefetch(from, to);
    }

    fn wait(&self, at: u64, seen: u32, limit: Duration) {
        self.memory.wait(at, seen, limit);
    }

    fn wake(&self, at: u64) {
        self.memory.wake(at);
    }
}
