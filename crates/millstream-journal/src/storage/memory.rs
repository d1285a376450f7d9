//! Memory that is mapped, and the words in it.
//!
//! The invariant: `start..start + len` is mapped from `map` to `drop`, and `writable_len` of it may be stored to. Every
//! access is checked against these two lengths.

#![expect(unsafe_code, reason = "maps memory and makes words and slices of it")]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
#[cfg(target_os = "linux")]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap};

use super::Access;
use super::fault::Watch;

/// No kernel has smaller pages.
pub(crate) const PAGE: usize = 4096;
/// A cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// A mapping.
pub(crate) struct Memory {
    start: NonNull<u8>,
    len: usize,
    writable_len: usize,
    /// The registration that records the faults of a mapped file.
    watch: Option<Watch>,
}

// SAFETY: `start` is an address that belongs to no thread: the memory stays mapped there until the last owner drops it,
// in whatever thread. The other fields are `Send` by themselves.
unsafe impl Send for Memory {}
// SAFETY: threads that share `start` access words atomically, and bytes under the contracts of `bytes` and `claim`,
// which are `unsafe` for that reason. `len` and `writable_len` never change. `watch` is `Sync` by itself: an entry of a
// table of atomics.
unsafe impl Sync for Memory {}

impl Memory {
    /// Map the first `len` bytes of a file, shared by all processes that map it.
    pub fn map(file: &File, len: u64, access: Access) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let prot = match access {
            Access::Read => ProtFlags::READ,
            Access::Write => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe { mmap(ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0)? };
        let mut memory = Self::over(start, len, if access == Access::Write { len } else { 0 })?;
        memory.watch = Some(Watch::new(start as usize, len)?);
        Ok(memory)
    }

    /// Zeros that belong to no file.
    pub fn anonymous(len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(io::Error::other)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: as in `map`.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, prot, MapFlags::PRIVATE)? };
        Self::over(start, len, len)
    }

    fn over(start: *mut c_void, len: usize, writable_len: usize) -> io::Result<Self> {
        let start =
            NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Memory {
            start,
            len,
            writable_len,
            watch: None,
        })
    }

    pub fn len(&self) -> u64 {
        self.len as u64
    }

    pub fn is_writable(&self) -> bool {
        self.writable_len > 0
    }

    /// The offset of the first page that the file system could not load or store. From then on this memory is not the
    /// file.
    pub fn fault(&self) -> Option<u64> {
        self.watch.as_ref().and_then(Watch::fault)
    }

    #[inline]
    pub fn word(&self, at: u64) -> &AtomicU64 {
        self.word_within(at, self.len)
    }

    #[inline]
    pub fn word_to_store(&self, at: u64) -> &AtomicU64 {
        self.word_within(at, self.writable_len)
    }

    #[inline]
    fn word_within(&self, at: u64, len: usize) -> &AtomicU64 {
        let at = at as usize;
        let fits = at.is_multiple_of(8) && at.checked_add(8).is_some_and(|end| end <= len);
        assert!(fits, "no word of the region, or one that is for reading");
        // SAFETY: within the mapping and aligned, as just checked; all access to it is atomic by the contracts of
        // slices.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    /// # Safety
    /// No thread or process stores into these bytes while the slice lives.
    #[inline]
    pub unsafe fn bytes(&self, at: u64, length: u64) -> &[u8] {
        let at = checked(at, length, self.len);
        // SAFETY: within the mapping, as just checked; no stores meanwhile, as the caller vouches.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), length as usize) }
    }

    /// # Safety
    /// No other thread or process reads or stores these bytes while the slice lives.
    #[inline]
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is shared with other processes: there is no unique owner"
    )]
    pub unsafe fn claim(&self, at: u64, length: u64) -> &mut [u8] {
        let at = checked(at, length, self.writable_len);
        // SAFETY: within the writable mapping, as just checked; exclusive, as the caller vouches.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), length as usize) }
    }

    /// Write the pages of these bytes to the file and wait for the device.
    pub fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        let (start, length) = self.pages(from, to);
        // SAFETY: whole pages of the mapping.
        let synced = unsafe { msync(start, length, MsyncFlags::SYNC) };
        Ok(synced?)
    }

    /// Ask the kernel to map these pages now. An old kernel may not support this.
    #[cfg(target_os = "linux")]
    pub fn populate(&self, from: u64, to: u64) {
        use rustix::mm::Advice;
        let advice = if self.writable_len > 0 {
            Advice::LinuxPopulateWrite
        } else {
            Advice::LinuxPopulateRead
        };
        let (start, length) = self.pages(from, to);
        // SAFETY: whole pages of the mapping; the advice does not change their contents.
        let _hint = unsafe { madvise(start, length, advice) };
    }

    /// No such advice here: pages fault one by one.
    #[cfg(not(target_os = "linux"))]
    pub fn populate(&self, _from: u64, _to: u64) {}

    /// Release these pages of a file; they stay in the file, and in the page cache as long as the kernel keeps them.
    /// Pages of no file stay as they are.
    #[cfg(target_os = "linux")]
    pub fn release(&self, from: u64, to: u64) {
        if self.watch.is_none() {
            return;
        }
        let (start, length) = self.pages(from, to);
        // SAFETY: whole pages of a shared mapping of a file, since it is watched: they come back as they were when they
        // are touched.
        let _hint = unsafe { madvise(start, length, rustix::mm::Advice::LinuxDontNeed) };
    }

    /// No such advice here.
    #[cfg(not(target_os = "linux"))]
    pub fn release(&self, _from: u64, _to: u64) {}

    /// Prefetch these cache lines for exclusive access.
    #[inline]
    #[cfg(target_arch = "x86_64")]
    pub fn prefetch(&self, from: u64, to: u64) {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        let to = to.min(self.len as u64) as usize;
        for line in (from as usize..to).step_by(LINE) {
            // SAFETY: within the mapping, and a prefetch neither faults nor changes anything.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(self.start.as_ptr().add(line).cast()) };
        }
    }

    /// No such instruction in the standard library for this processor.
    #[inline]
    #[cfg(not(target_arch = "x86_64"))]
    pub fn prefetch(&self, _from: u64, _to: u64) {}

    /// Sleep while the lower half of a word is `seen`.
    #[cfg(target_os = "linux")]
    pub fn wait(&self, at: u64, seen: u32, limit: Duration) {
        use rustix::thread::futex::{Flags, Timespec, wait};
        let limit = Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: limit.subsec_nanos().into(),
        };
        // A word that has changed, a signal, the end of the time: the caller checks again in each case.
        let _reason = wait(self.half(at), Flags::empty(), seen, Some(&limit));
    }

    /// Wake all threads that sleep on a word.
    #[cfg(target_os = "linux")]
    pub fn wake(&self, at: u64) {
        let _woken = rustix::thread::futex::wake(
            self.half(at),
            rustix::thread::futex::Flags::empty(),
            i32::MAX as u32,
        );
    }

    /// The lower half of a word, for the kernel.
    #[cfg(target_os = "linux")]
    fn half(&self, at: u64) -> &std::sync::atomic::AtomicU32 {
        // SAFETY: within the word; only the kernel reads through it.
        unsafe { std::sync::atomic::AtomicU32::from_ptr(self.word(at).as_ptr().cast()) }
    }

    /// Without a futex: check again soon.
    #[cfg(not(target_os = "linux"))]
    #[expect(
        clippy::disallowed_methods,
        reason = "nothing else can wait for another process here"
    )]
    pub fn wait(&self, _at: u64, _seen: u32, limit: Duration) {
        std::thread::sleep(limit.min(Duration::from_millis(1)));
    }

    /// Without a futex no thread sleeps for long.
    #[cfg(not(target_os = "linux"))]
    pub fn wake(&self, _at: u64) {}

    /// Let a forked child find zeros here.
    #[cfg(target_os = "linux")]
    pub fn wipe_on_fork(&self) -> io::Result<()> {
        let start = self.start.as_ptr().cast();
        // SAFETY: the wipe happens in another process. The kernel refuses it for a mapping that is not anonymous and
        // private.
        let advised = unsafe { madvise(start, self.len, rustix::mm::Advice::LinuxWipeOnFork) };
        Ok(advised?)
    }

    fn pages(&self, from: u64, to: u64) -> (*mut c_void, usize) {
        let from = (from as usize).min(self.len) / PAGE * PAGE;
        let to = (to as usize).min(self.len).max(from);
        // SAFETY: `from` is within the mapping.
        (unsafe { self.start.as_ptr().add(from) }.cast(), to - from)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Another process may get these addresses next.
        self.watch = None;
        // SAFETY: mapped in `map` or `anonymous`, and no slice outlives `self`.
        let _mapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[inline]
fn checked(at: u64, length: u64, len: usize) -> usize {
    let fits = at.checked_add(length).is_some_and(|end| end <= len as u64);
    assert!(fits, "bytes outside of the region");
    at as usize
}

/// Whether this process is the child of one that asked before.
///
/// A process has one page that its children find wiped. The first mark of a child stores a number there that no mark of
/// its parents has.
#[cfg(target_os = "linux")]
pub(crate) struct ForkMark {
    /// A kernel before 4.14 cannot wipe; there a child is not recognised.
    of_process: Option<&'static AtomicU64>,
    number: u64,
}

#[cfg(target_os = "linux")]
impl ForkMark {
    pub fn new() -> io::Result<Self> {
        static OF_PROCESS: OnceLock<Option<Memory>> = OnceLock::new();
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let page = match OF_PROCESS.get() {
            Some(page) => page,
            None => {
                let page = Memory::anonymous(PAGE as u64)?;
                let can_wipe = page.wipe_on_fork().is_ok();
                OF_PROCESS.get_or_init(|| can_wipe.then_some(page))
            }
        };
        let of_process = page.as_ref().map(|page| page.word_to_store(0));
        let number = of_process.map_or(0, |word| {
            let new = NUMBERS.fetch_add(1, Ordering::Relaxed);
            word.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|known| known, |_| new)
        });
        Ok(ForkMark { of_process, number })
    }

    #[inline]
    pub fn is_child(&self) -> bool {
        self.of_process
            .is_some_and(|word| word.load(Ordering::Relaxed) != self.number)
    }
}

/// Whether this process is the child of one that asked before.
#[cfg(not(target_os = "linux"))]
pub(crate) struct ForkMark(u32);

#[cfg(not(target_os = "linux"))]
impl ForkMark {
    pub fn new() -> io::Result<Self> {
        Ok(ForkMark(std::process::id()))
    }

    pub fn is_child(&self) -> bool {
        std::process::id() != self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn memory_of_no_file_keeps_its_contents_when_it_is_released() {
        let memory = Memory::anonymous(PAGE as u64).expect("there is memory");
        memory.word_to_store(8).store(7, Ordering::Relaxed);
        memory.release(0, PAGE as u64);
        assert_eq!(memory.word(8).load(Ordering::Relaxed), 7);
    }
}
