//! The interface to the file system: memory-mapped files of fixed length in one directory.
//!
//! Every byte and word that this crate stores into a file goes through [`Region::store`], [`Region::publish`],
//! [`Region::exchange`] or a claimed slice, so that a simulation sees each of them in order and can compute what a disk
//! would hold if the power failed in between. Names are relative to the journal's directory.
//!
//! [`Mapped`] is real, [`Simulated`] lives in memory and can lose power, [`Failing`] injects faults.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

mod failing;
pub(crate) mod fault;
mod mapped;
pub(crate) mod memory;
#[cfg(test)]
pub(crate) mod modelled;
mod simulated;

pub use failing::{Failing, FailingRegion};
pub use mapped::{FileLock, Mapped, MappedRegion, create_dir_durably, sync_entry};
pub use simulated::{Defect, Simulated, SimulatedLock, SimulatedRegion};

/// The access to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Access {
    /// Only reading: the region refuses every store.
    Read,
    /// Reading and writing.
    Write,
}

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Hold {
    /// Shared with other holders.
    Shared,
    /// Exclusive.
    Exclusive,
}

/// A page of a file that the file system could not load or store.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Fault {
    /// The file.
    pub path: PathBuf,
    /// Where the page begins in it, in bytes.
    pub offset: u64,
    /// The cause, as far as it was found.
    pub source: io::Error,
}

/// Numbers that distinguish a directory from another one that gets its name later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Presence {
    /// The directory: its device, inode, time of birth and mount, all four of which no other directory has.
    pub directory: [u64; 4],
    /// The same of the file that processes share, when there is one.
    pub shared: Option<[u64; 4]>,
}

impl Presence {
    /// Whether this is the directory that was found `before`.
    #[must_use]
    pub fn is_same(&self, before: &Presence) -> bool {
        match before.shared {
            // A directory may be replaced below a mount; the file that is mapped may not.
            Some(_) => self.shared == before.shared,
            None => self.directory == before.directory,
        }
    }
}

/// A directory of files that are memory.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Storage: Clone + Send + Sync + 'static {
    /// An open file.
    type Region: Region;
    /// A lock that is released when dropped, and when its process dies.
    type Lock: Send + Sync + 'static;

    /// The path of `name`, for messages.
    fn path(&self, name: &str) -> PathBuf;
    /// Make the directory and its folders (`writers`, `cursors`).
    ///
    /// # Errors
    /// An error of the system.
    fn prepare(&self) -> io::Result<()>;
    /// The names of the files in `folder`, in any order; `""` is the directory itself.
    ///
    /// # Errors
    /// An error of the system; `NotFound` when there is no such folder.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;
    /// Create a file of `bytes` zeros, with room on the disk for all of them; a shorter file grows.
    ///
    /// # Errors
    /// `StorageFull` when there is no room.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Self::Region>;
    /// Open a file as it is.
    ///
    /// # Errors
    /// An error of the system.
    fn open(&self, name: &str, access: Access) -> io::Result<Self::Region>;
    /// Give a file its name, and never replace one.
    ///
    /// # Errors
    /// `AlreadyExists` when the new name is taken.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Give a file its name in place of the one that has it, if there is one, at once.
    ///
    /// # Errors
    /// An error of the system.
    fn replace(&self, from: &str, to: &str) -> io::Result<()>;
    /// Remove a file. Regions that are open stay as they are.
    ///
    /// # Errors
    /// An error of the system.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Make names that were made, given and removed survive a loss of power.
    ///
    /// # Errors
    /// An error of the system.
    fn sync_names(&self) -> io::Result<()>;
    /// Lock the file `name`, made when there is none. `None` when another holds it.
    ///
    /// # Errors
    /// An error of the system.
    fn lock(&self, name: &str, hold: Hold) -> io::Result<Option<Self::Lock>>;
    /// Make the name of the directory itself survive a loss of power. Its first file comes after that.
    ///
    /// # Errors
    /// An error of the system.
    fn sync_entry(&self) -> io::Result<()> {
        Ok(())
    }
    /// Whether another opening, of this process or another, holds a lock on the file `name`. Nothing is made.
    ///
    /// # Errors
    /// An error of the system.
    fn is_locked(&self, _name: &str) -> io::Result<bool> {
        Ok(true)
    }
    /// Which directory is at this path now, and which file `shared` in it.
    ///
    /// # Errors
    /// `NotFound` when there is none.
    fn presence(&self, _shared: &str) -> io::Result<Presence> {
        Ok(Presence::default())
    }
    /// A number that the file system gets when it is mounted, and no other mount of this boot; 0 is unknown.
    fn mount(&self) -> u64 {
        0
    }
    /// How often this storage, or a clone of it, has created, named or removed a file. While the number stays, so do
    /// the files and their sizes, unless another process changes them.
    fn changes(&self) -> u64 {
        0
    }
    /// A fault of a region that is closed by now, once, unless its sync has reported it.
    fn fault(&self) -> Option<Fault> {
        None
    }
}

/// The contents of an open file, shared by all processes that have it open. Offsets of words are multiples of 8.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Region: Send + Sync + 'static {
    /// The length in bytes.
    fn bytes_len(&self) -> u64;
    /// Whether it may be stored to.
    fn is_writable(&self) -> bool;
    /// Read a word, and see all that was stored before it was published.
    fn load(&self, at: u64) -> u64;
    /// Store a word after all that was stored before it.
    fn publish(&self, at: u64, word: u64);
    /// Replace a word if it is `current`, with full ordering before and after; otherwise return the word that is there.
    ///
    /// # Errors
    /// The word that is there.
    fn exchange(&self, at: u64, current: u64, new: u64) -> Result<(), u64>;
    /// The bytes from `at` on.
    ///
    /// # Safety
    /// No thread or process stores into them while the slice lives.
    #[expect(
        unsafe_code,
        reason = "the caller knows which bytes are at rest, the region cannot"
    )]
    unsafe fn bytes(&self, at: u64, length: u64) -> &[u8];
    /// The bytes from `at` on, to be filled. [`claimed`](Self::claimed) follows.
    ///
    /// # Safety
    /// No other thread or process reads or stores them while the slice lives.
    #[expect(
        unsafe_code,
        reason = "the caller holds the append lock, the region cannot know"
    )]
    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is shared with other processes: there is no unique owner"
    )]
    unsafe fn claim(&self, at: u64, length: u64) -> &mut [u8];
    /// A claimed slice has been filled. A simulation records it.
    ///
    /// # Safety
    /// The caller has [claimed](Self::claim) these bytes and has no slice of them any more, and no other thread or
    /// process stores to them.
    #[expect(unsafe_code, reason = "as for `claim`")]
    unsafe fn claimed(&self, at: u64, length: u64);
    /// Wait until all that was stored in these bytes survives a loss of power.
    ///
    /// # Errors
    /// An error of the system. The bytes must then be taken for lost.
    fn sync(&self, from: u64, to: u64) -> io::Result<()>;
    /// Load the pages of these bytes into memory, so that touching them does not fault; a hint.
    fn populate(&self, from: u64, to: u64);
    /// Release the pages of these bytes, which this process will hardly touch again; they are loaded again when it
    /// does. A hint.
    fn release(&self, _from: u64, _to: u64) {}
    /// Load these bytes into the processor's cache, ready to be stored to; a hint.
    #[inline]
    fn prefetch(&self, _from: u64, _to: u64) {}
    /// Sleep until the word's lower half is no longer `seen`, a process [wakes](Self::wake), or the time is over. May
    /// return early.
    fn wait(&self, at: u64, seen: u32, limit: Duration);
    /// Wake all that wait for this word.
    fn wake(&self, at: u64);
    /// The first page that the file system could not load or store. From then on loads from this region may give zeros,
    /// and stores may be lost; a sync fails.
    fn fault(&self) -> Option<Fault> {
        None
    }

    /// Store bytes.
    ///
    /// # Safety
    /// No other thread or process reads or stores them meanwhile.
    #[inline]
    #[expect(unsafe_code, reason = "as for `claim`")]
    unsafe fn store(&self, at: u64, bytes: &[u8]) {
        // SAFETY: the caller vouches for the same range, and the slice ends with the statement.
        unsafe {
            self.claim(at, bytes.len() as u64).copy_from_slice(bytes);
            self.claimed(at, bytes.len() as u64);
        }
    }
}
