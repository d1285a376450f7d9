//! A storage that injects faults: the disk is full, a sync fails.
//!
//! It wraps another one, real or simulated, so that the code under test is the code that runs.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::{Access, Fault, Hold, Presence, Region, Storage};
use crate::mutex::lock;

/// Another storage, and the faults that it injects.
#[derive(Clone)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Failing<S> {
    inner: S,
    faults: Arc<Faults>,
}

#[derive(Default)]
struct Faults {
    full: AtomicBool,
    read_only: AtomicBool,
    /// Syncs and creations until one fails; 0 and less is never.
    syncs_left: AtomicI64,
    creations_left: AtomicI64,
    /// How long a look at the directory takes, in ms.
    presence_ms: AtomicU64,
    stalled: Mutex<bool>,
    resumed: Condvar,
}

impl Faults {
    fn wait_while_stalled(&self) {
        let stalled = lock(&self.stalled);
        let waited = self.resumed.wait_while(stalled, |stalled| *stalled);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

impl<S: Storage> Failing<S> {
    /// `inner` without a fault so far.
    pub fn new(inner: S) -> Self {
        Failing {
            inner,
            faults: Arc::default(),
        }
    }

    /// Whether there is room for new files.
    pub fn set_full(&self, full: bool) {
        self.faults.full.store(full, Ordering::SeqCst);
    }

    /// Whether files can be opened only for reading, as on a file system that is mounted read-only.
    pub fn set_read_only(&self, read_only: bool) {
        self.faults.read_only.store(read_only, Ordering::SeqCst);
    }

    /// Whether syncs of files that begin from now on wait, until this is set to false.
    pub fn set_stalled(&self, stalled: bool) {
        *lock(&self.faults.stalled) = stalled;
        self.faults.resumed.notify_all();
    }

    /// Let each look whether the directory is still there take so long.
    pub fn slow_presence(&self, time: Duration) {
        let ms = time.as_millis() as u64;
        self.faults.presence_ms.store(ms, Ordering::SeqCst);
    }

    /// Let the `nth` sync of a file from now on fail with an I/O error (1 is the next).
    pub fn fail_sync(&self, nth: u32) {
        self.faults.syncs_left.store(nth.into(), Ordering::SeqCst);
    }

    /// Let the `nth` creation of a file from now on find the disk full (1 is the next).
    pub fn fail_create(&self, nth: u32) {
        self.faults
            .creations_left
            .store(nth.into(), Ordering::SeqCst);
    }
}

/// A region of a failing storage.
#[doc(hidden)] // For the other crates of Millstream.
pub struct FailingRegion<R> {
    inner: R,
    faults: Arc<Faults>,
}

impl<S: Storage> Storage for Failing<S> {
    type Region = FailingRegion<S::Region>;
    type Lock = S::Lock;

    fn path(&self, name: &str) -> PathBuf {
        self.inner.path(name)
    }

    fn prepare(&self) -> io::Result<()> {
        self.inner.prepare()
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.inner.list(folder)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<Self::Region> {
        let due = self.faults.creations_left.fetch_sub(1, Ordering::SeqCst) == 1;
        if due || self.faults.full.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let inner = self.inner.create(name, bytes)?;
        Ok(FailingRegion {
            inner,
            faults: Arc::clone(&self.faults),
        })
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Self::Region> {
        if access == Access::Write && self.faults.read_only.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let inner = self.inner.open(name, access)?;
        Ok(FailingRegion {
            inner,
            faults: Arc::clone(&self.faults),
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.replace(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        self.inner.sync_names()
    }

    fn lock(&self, name: &str, hold: Hold) -> io::Result<Option<Self::Lock>> {
        self.inner.lock(name, hold)
    }

    fn sync_entry(&self) -> io::Result<()> {
        self.inner.sync_entry()
    }

    fn is_locked(&self, name: &str) -> io::Result<bool> {
        self.inner.is_locked(name)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "it stands for a slow file system"
    )]
    fn presence(&self, shared: &str) -> io::Result<Presence> {
        let ms = self.faults.presence_ms.load(Ordering::SeqCst);
        if ms > 0 {
            std::thread::sleep(Duration::from_millis(ms));
        }
        self.inner.presence(shared)
    }

    fn mount(&self) -> u64 {
        self.inner.mount()
    }

    fn fault(&self) -> Option<Fault> {
        self.inner.fault()
    }
}

impl<R: Region> Region for FailingRegion<R> {
    fn bytes_len(&self) -> u64 {
        self.inner.bytes_len()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    fn load(&self, at: u64) -> u64 {
        self.inner.load(at)
    }

    fn publish(&self, at: u64, word: u64) {
        self.inner.publish(at, word);
    }

    fn exchange(&self, at: u64, current: u64, new: u64) -> Result<(), u64> {
        self.inner.exchange(at, current, new)
    }

    #[expect(unsafe_code, reason = "passes the contract on")]
    unsafe fn bytes(&self, at: u64, length: u64) -> &[u8] {
        // SAFETY: the same contract.
        unsafe { self.inner.bytes(at, length) }
    }

    #[expect(unsafe_code, reason = "passes the contract on")]
    unsafe fn claim(&self, at: u64, length: u64) -> &mut [u8] {
        // SAFETY: the same contract.
        unsafe { self.inner.claim(at, length) }
    }

    #[expect(unsafe_code, reason = "passes the contract on")]
    unsafe fn claimed(&self, at: u64, length: u64) {
        // SAFETY: the same contract.
        unsafe { self.inner.claimed(at, length) };
    }

    fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        self.faults.wait_while_stalled();
        if self.faults.syncs_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            return Err(io::Error::other("the disk failed"));
        }
        self.inner.sync(from, to)
    }

    fn populate(&self, from: u64, to: u64) {
        self.inner.populate(from, to);
    }

    fn wait(&self, at: u64, seen: u32, limit: Duration) {
        self.inner.wait(at, seen, limit);
    }

    fn wake(&self, at: u64) {
        self.inner.wake(at);
    }

    fn fault(&self) -> Option<Fault> {
        self.inner.fault()
    }
}
