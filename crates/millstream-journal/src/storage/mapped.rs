//! The real storage: files of a directory, mapped into memory and locked with `flock`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::memory::Memory;
use super::{Access, Hold, Region, Storage};

/// A directory on this machine.
#[derive(Clone, Debug)]
pub struct Mapped {
    root: Arc<Path>,
}

impl Mapped {
    /// The directory at `path`, which need not be there yet.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Mapped {
            root: path.as_ref().into(),
        }
    }

    /// The file of that name, made empty if it is not there.
    fn made(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        options.open(self.path(name))
    }
}

/// A `flock`, held as long as this lives and, in a forked child, as long as that lives.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
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
        fs::create_dir_all(self.root.join("writers"))?;
        fs::create_dir_all(self.root.join("cursors"))
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
        let file = self.made(name)?;
        reserve(&file, bytes)?;
        Ok(MappedRegion {
            memory: Memory::map(&file, bytes, Access::Write)?,
        })
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
        Ok(MappedRegion {
            memory: Memory::map(&file, bytes, access)?,
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        // A link fails where a rename would replace.
        fs::hard_link(self.path(from), self.path(to))?;
        fs::remove_file(self.path(from))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        for folder in ["", "cursors"] {
            File::open(self.path(folder))?.sync_all()?;
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
            Ok(()) => Ok(Some(FileLock { _file: file })),
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
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
pub struct MappedRegion {
    memory: Memory,
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
        // On x86-64 the exchange is a fence; elsewhere a load behind it could still come first.
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
    fn claimed(&self, _at: u64, _length: u64) {}

    fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        self.memory.sync(from, to)
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
