//! A storage in memory whose disk can lose power, and whose processes can be killed between any two stores.
//!
//! Each file is memory, which all processes see, and a disk image, which holds the synced contents. Between them is a
//! history: every store since the last sync, page by page. When the power fails, each page has the contents of its own
//! moment of that history, and the last store of it may be torn. Changes of names since they were synced are kept up to
//! some moment too.
//!
//! ```
//! use millstream_journal::{Host, Journal, Options, storage::Simulated};
//!
//! let host = Host::simulated(|| 0, || 7);
//! let options = Options { host: host.clone(), ..Options::default().with_segment_bytes(1 << 16) };
//! let machine = Simulated::new();
//! let journal = Journal::open_in(machine.process(), options.clone())?;
//! journal.writer()?.append(b"kept")?;
//! journal.sync()?;
//! journal.writer()?.append(b"perhaps lost")?;
//!
//! let mut state = 1_u64;
//! let after = machine.lose_power(&mut |limit| { state = state.wrapping_mul(6364136223846793005).wrapping_add(1); (state >> 33) % limit });
//! let journal = Journal::open_in(after.process(), Options { host: host.with_boot(2), ..options })?;
//! assert!(journal.next()? >= 1);
//! # Ok::<(), millstream_journal::Error>(())
//! ```

mod defect;
mod history;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub use self::defect::Defect;
use self::defect::{LateBytes, LateStore, LateStores};
use self::history::{History, PAGE};
use super::memory::Memory;
use super::{Access, Hold, Region, Storage};
use crate::mutex::lock;

/// A machine, or one process on it: see [`process`](Self::process).
#[derive(Clone)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Simulated {
    machine: Arc<Machine>,
    process: Arc<Process>,
    /// What names of this storage begin with on the machine: nothing, or a folder and a colon.
    folder: Arc<str>,
}

#[derive(Default)]
struct Machine {
    names: Mutex<Names>,
    locks: Mutex<Vec<LockEntry>>,
    locks_taken: AtomicU64,
    defect: Mutex<Option<Defect>>,
    /// Syncs until one fails; 0 and less is never.
    syncs_left: AtomicI64,
    sync_failed: AtomicBool,
    during_sync: Mutex<Option<DuringSync>>,
}

impl Machine {
    fn defect(&self) -> Option<Defect> {
        *lock(&self.defect)
    }

    fn syncs_names(&self) -> bool {
        !matches!(self.defect(), Some(Defect::NoSyncs | Defect::NoNameSyncs))
    }
}

type DuringSync = Arc<dyn Fn() + Send + Sync>;

/// The directory: as processes see it, and as the disk holds it.
#[derive(Default)]
struct Names {
    seen: BTreeMap<String, Arc<File>>,
    synced: BTreeMap<String, Arc<File>>,
    changes: Vec<(String, Option<Arc<File>>)>,
    /// What the names of folders begin with whose own entry is on the disk.
    entered: BTreeSet<String>,
}

impl Names {
    fn change(&mut self, name: &str, file: Option<Arc<File>>) {
        apply(&mut self.seen, name, file.clone());
        self.changes.push((name.to_owned(), file));
    }

    /// The changes in one folder are on the disk.
    fn sync(&mut self, folder: &str) {
        let synced = &mut self.synced;
        self.changes
            .extract_if(.., |(name, _)| name.starts_with(folder))
            .for_each(|(name, file)| apply(synced, &name, file));
    }
}

/// What the names of a file's folder begin with: nothing, or the folder and a colon.
fn folder_of(name: &str) -> &str {
    name.find(':').map_or("", |at| &name[..=at])
}

fn apply(names: &mut BTreeMap<String, Arc<File>>, name: &str, file: Option<Arc<File>>) {
    match file {
        Some(file) => names.insert(name.to_owned(), file),
        None => names.remove(name),
    };
}

struct LockEntry {
    name: String,
    process: Arc<Process>,
    hold: Hold,
    id: u64,
}

struct Process {
    late: Mutex<LateStores<File>>,
    dead: AtomicBool,
    /// Stores until it dies; negative is never.
    stores_left: AtomicI64,
}

impl Process {
    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Count a store; returns whether it still happens.
    fn may_store(&self) -> bool {
        if !self.is_dead()
            && self.stores_left.load(Ordering::SeqCst) >= 0
            && self.stores_left.fetch_sub(1, Ordering::SeqCst) <= 0
        {
            self.dead.store(true, Ordering::SeqCst);
        }
        !self.is_dead()
    }

    fn check(&self) -> io::Result<()> {
        if self.is_dead() {
            Err(io::Error::other("this process was killed"))
        } else {
            Ok(())
        }
    }

    /// Count a call of the system like a store.
    fn step(&self) -> io::Result<()> {
        self.may_store();
        self.check()
    }
}

struct File {
    /// What processes see; made when the first of them opens the file.
    memory: OnceLock<Reused>,
    history: Mutex<History>,
}

impl Default for Simulated {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulated {
    /// A machine with an empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Arc::default())
    }

    fn on(machine: Arc<Machine>) -> Self {
        let process = Process {
            late: Mutex::default(),
            dead: AtomicBool::new(false),
            stores_left: AtomicI64::new(-1),
        };
        Simulated {
            process: Arc::new(process),
            machine,
            folder: "".into(),
        }
    }

    /// A folder of the machine, seen by the same process: a process that uses several journals dies in all of them at
    /// once.
    #[must_use]
    pub fn folder(&self, name: &str) -> Self {
        Simulated {
            folder: format!("{name}:").into(),
            ..self.clone()
        }
    }

    /// The folders in which there is anything.
    #[must_use]
    pub fn folders(&self) -> BTreeSet<String> {
        let names = lock(&self.machine.names);
        let folders = names.seen.keys().filter_map(|name| name.split_once(':'));
        folders.map(|(folder, _)| folder.to_owned()).collect()
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.folder)
    }

    /// Another process on the same machine.
    #[must_use]
    pub fn process(&self) -> Self {
        Self::on(Arc::clone(&self.machine))
    }

    /// Kill this process after this many more stores. Its later stores reach no other process, and its locks are free.
    pub fn kill_after(&self, stores: u64) {
        self.process
            .stores_left
            .store(stores as i64, Ordering::SeqCst);
    }

    /// Kill this process now.
    pub fn kill(&self) {
        self.process.dead.store(true, Ordering::SeqCst);
    }

    /// Whether this process was killed: results of its calls since then mean nothing.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.process.is_dead()
    }

    /// Let the machine have a defect from now on, or none. A test that does not notice is no test.
    pub fn set_defect(&self, defect: Option<Defect>) {
        *lock(&self.machine.defect) = defect;
    }

    /// Let the `nth` sync of a file from now on fail (1 is the next). As kernels do, it takes the pages that it could
    /// not write for clean: a later sync succeeds without them, unless the page was stored to again. Every process that
    /// has the file open gets the error at its next sync.
    pub fn fail_sync(&self, nth: u32) {
        self.machine.syncs_left.store(nth.into(), Ordering::SeqCst);
    }

    /// Sets a function that runs while a file is being synced, before any of it is durable: time passes, other
    /// processes append.
    pub fn during_syncs(&self, happens: impl Fn() + Send + Sync + 'static) {
        *lock(&self.machine.during_sync) = Some(Arc::new(happens));
    }

    /// Whether a sync has failed since the machine was started.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.machine.sync_failed.load(Ordering::SeqCst)
    }

    /// The machine after a loss of power, with one of the states that its disk may be in; `random` returns a number
    /// below its argument. This machine continues as if nothing had happened.
    #[must_use]
    pub fn lose_power(&self, random: &mut dyn FnMut(u64) -> u64) -> Self {
        let names = lock(&self.machine.names);
        let mut kept = names.synced.clone();
        let whole = random(names.changes.len() as u64 + 1) as usize;
        for (name, file) in &names.changes[..whole] {
            apply(&mut kept, name, file.clone());
        }
        let machine = Machine::default();
        // A folder whose entry was not synced may be gone with all that was synced in it.
        let folders: BTreeSet<_> = kept.keys().map(|name| folder_of(name).to_owned()).collect();
        for folder in folders {
            if !names.entered.contains(&folder) && random(2) == 0 {
                kept.retain(|name, _| folder_of(name) != folder);
            }
        }
        let mut after = lock(&machine.names);
        after.entered = kept.keys().map(|name| folder_of(name).to_owned()).collect();
        let mut images: BTreeMap<*const File, Arc<File>> = BTreeMap::new();
        for (name, file) in kept {
            let image = match images.get(&Arc::as_ptr(&file)) {
                Some(image) => Arc::clone(image),
                None => Arc::new(File::of(lock(&file.history).after_power_loss(random))),
            };
            images.insert(Arc::as_ptr(&file), Arc::clone(&image));
            after.seen.insert(name.clone(), Arc::clone(&image));
            after.synced.insert(name, image);
        }
        drop(after);
        Self::on(Arc::new(machine))
    }

    /// Change a byte of a file on the disk and in memory, as a failing disk does. Returns whether the file is that
    /// long.
    pub fn damage(&self, name: &str, at: u64, change: impl FnOnce(u8) -> u8) -> bool {
        let names = lock(&self.machine.names);
        let Some(file) = names.seen.get(name) else {
            return false;
        };
        let memory = file.memory();
        if at >= memory.len() {
            return false;
        }
        let mut history = lock(&file.history);
        let word = memory.word_to_store(at / 8 * 8);
        let shift = at % 8 * 8;
        let found = word.load(Ordering::SeqCst);
        let new = change((found >> shift) as u8);
        word.store(
            found & !(0xFF << shift) | u64::from(new) << shift,
            Ordering::SeqCst,
        );
        Arc::make_mut(&mut history.disk)[at as usize] = new;
        true
    }
}

impl File {
    fn of(disk: Arc<Vec<u8>>) -> Self {
        File {
            memory: OnceLock::new(),
            history: Mutex::new(History::of(disk)),
        }
    }

    /// The caller must not hold the lock on the history when it calls this for the first time.
    fn memory(&self) -> &Memory {
        self.memory
            .get_or_init(|| Reused::filled(&lock(&self.history).disk))
    }
}

/// Memory that is reused for the next file of its length: mapping new memory takes longer than using it.
struct Reused(Arc<Memory>);

thread_local! {
    /// By length.
    static FREE: RefCell<BTreeMap<u64, Vec<Arc<Memory>>>> = const { RefCell::new(BTreeMap::new()) };
}

impl Reused {
    /// How many of one length are kept.
    const KEPT: usize = 256;

    /// Memory of `len` bytes with old contents; the caller overwrites them.
    fn of(len: u64) -> Self {
        let free = FREE.with_borrow_mut(|free| free.get_mut(&len)?.pop());
        Reused(free.unwrap_or_else(|| {
            Arc::new(Memory::anonymous(len).expect("there is memory to simulate with"))
        }))
    }

    /// The memory of a file with these contents. One without any has a page, so that there is something to map.
    #[expect(unsafe_code, reason = "memory of one's own is filled")]
    fn filled(disk: &[u8]) -> Self {
        let memory = Self::of((disk.len() as u64).max(PAGE));
        // SAFETY: no other thread has this memory.
        let bytes = unsafe { memory.claim(0, memory.len()) };
        bytes[..disk.len()].copy_from_slice(disk);
        bytes[disk.len()..].fill(0);
        memory
    }
}

impl Deref for Reused {
    type Target = Memory;
    fn deref(&self) -> &Memory {
        &self.0
    }
}

impl Drop for Reused {
    fn drop(&mut self) {
        FREE.with_borrow_mut(|free| {
            let free = free.entry(self.0.len()).or_default();
            if free.len() < Self::KEPT {
                free.push(Arc::clone(&self.0));
            }
        });
    }
}

/// A lock of a simulated process.
#[doc(hidden)] // For the other crates of Millstream.
pub struct SimulatedLock {
    machine: Arc<Machine>,
    id: u64,
}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        lock(&self.machine.locks).retain(|held| held.id != self.id);
    }
}

impl Storage for Simulated {
    type Region = SimulatedRegion;
    type Lock = SimulatedLock;

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("simulated").join(self.name(name))
    }

    fn prepare(&self) -> io::Result<()> {
        self.process.check()
    }

    fn sync_entry(&self) -> io::Result<()> {
        self.process.step()?;
        if self.machine.syncs_names() {
            let mut names = lock(&self.machine.names);
            names.entered.insert(self.folder.to_string());
        }
        Ok(())
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.process.check()?;
        let names = lock(&self.machine.names);
        let names = names
            .seen
            .keys()
            .filter_map(|name| name.strip_prefix(&*self.folder))
            .filter_map(|name| match (folder, name.split_once('/')) {
                ("", None) => Some(name.to_owned()),
                (folder, Some((of, name))) if of == folder => Some(name.to_owned()),
                _ => None,
            });
        Ok(names.collect())
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<SimulatedRegion> {
        self.process.step()?;
        let name = &*self.name(name);
        let mut names = lock(&self.machine.names);
        let file = match names.seen.get(name) {
            Some(file) if lock(&file.history).disk.len() as u64 >= bytes => Arc::clone(file),
            _ => {
                // Only files that are made, or hold nothing yet, grow.
                let file = Arc::new(File::of(Arc::new(vec![0; bytes as usize])));
                names.change(name, Some(Arc::clone(&file)));
                file
            }
        };
        drop(names);
        Ok(self.region(file, Access::Write))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<SimulatedRegion> {
        self.process.check()?;
        let file = lock(&self.machine.names)
            .seen
            .get(&self.name(name))
            .cloned()
            .ok_or(io::ErrorKind::NotFound)?;
        if lock(&file.history).disk.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(self.region(file, access))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.process.step()?;
        let from = &*self.name(from);
        let to = &*self.name(to);
        let mut names = lock(&self.machine.names);
        if names.seen.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let file = names
            .seen
            .get(from)
            .cloned()
            .ok_or(io::ErrorKind::NotFound)?;
        names.change(to, Some(file));
        self.process.step()?;
        names.change(from, None);
        Ok(())
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        self.process.step()?;
        let from = &*self.name(from);
        let to = &*self.name(to);
        let mut names = lock(&self.machine.names);
        let file = names
            .seen
            .get(from)
            .cloned()
            .ok_or(io::ErrorKind::NotFound)?;
        names.change(to, Some(file));
        names.change(from, None);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.process.step()?;
        let name = &*self.name(name);
        let mut names = lock(&self.machine.names);
        if !names.seen.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        names.change(name, None);
        Ok(())
    }

    fn sync_names(&self) -> io::Result<()> {
        self.process.step()?;
        if self.machine.syncs_names() {
            lock(&self.machine.names).sync(&self.folder);
        }
        Ok(())
    }

    fn lock(&self, name: &str, hold: Hold) -> io::Result<Option<SimulatedLock>> {
        self.process.step()?;
        let name = &*self.name(name);
        let mut names = lock(&self.machine.names);
        if !names.seen.contains_key(name) {
            let empty = File::of(Arc::default());
            names.change(name, Some(Arc::new(empty)));
        }
        drop(names);
        let mut locks = lock(&self.machine.locks);
        // As the system does, when a process ends.
        locks.retain(|held| !held.process.is_dead());
        let alone = hold == Hold::Exclusive;
        if locks
            .iter()
            .any(|held| held.name == name && (alone || held.hold == Hold::Exclusive))
        {
            return Ok(None);
        }
        let id = self.machine.locks_taken.fetch_add(1, Ordering::SeqCst);
        let process = Arc::clone(&self.process);
        locks.push(LockEntry {
            name: name.to_owned(),
            process,
            hold,
            id,
        });
        Ok(Some(SimulatedLock {
            machine: Arc::clone(&self.machine),
            id,
        }))
    }

    fn is_locked(&self, name: &str) -> io::Result<bool> {
        self.process.check()?;
        let name = self.name(name);
        let locks = lock(&self.machine.locks);
        let mut living = locks.iter().filter(|held| !held.process.is_dead());
        Ok(living.any(|held| held.name == name))
    }
}

impl Simulated {
    fn region(&self, file: Arc<File>, access: Access) -> SimulatedRegion {
        file.memory();
        let failures_reported = AtomicU64::new(lock(&file.history).failures);
        let machine = Arc::clone(&self.machine);
        let process = Arc::clone(&self.process);
        SimulatedRegion {
            machine,
            process,
            file,
            scratch: OnceLock::new(),
            late_bytes: Mutex::default(),
            access,
            failures_reported,
        }
    }
}

/// An open file of a simulated process.
#[doc(hidden)] // For the other crates of Millstream.
pub struct SimulatedRegion {
    machine: Arc<Machine>,
    process: Arc<Process>,
    file: Arc<File>,
    /// The private copy to which a killed process writes.
    scratch: OnceLock<Reused>,
    /// Bytes of that copy that are stored late, by their offset.
    late_bytes: Mutex<BTreeMap<u64, LateBytes>>,
    access: Access,
    /// The number of failed syncs that this opening has returned, or that failed before it.
    failures_reported: AtomicU64,
}

impl SimulatedRegion {
    fn store_word(&self, at: u64, word: u64) {
        assert!(self.is_writable(), "the region is for reading");
        if !self.process.may_store() {
            return;
        }
        match self.machine.defect() {
            Some(Defect::LostZeros) if word == 0 && at >= 2 * PAGE => {}
            Some(Defect::LateBytes) => {
                self.store_in(&self.file, at, word);
                self.store_late_bytes(at);
            }
            Some(Defect::LateBase) => {
                let mut late = lock(&self.process.late);
                if self.bytes_len() > 2 * PAGE && late.takes(&self.file, at, word) {
                    return;
                }
                self.store_in(&self.file, at, word);
                self.store_due(late.due());
            }
            _ => self.store_in(&self.file, at, word),
        }
    }

    fn store_due(&self, due: Vec<LateStore<File>>) {
        for late in due {
            self.store_in(&late.file, late.at, late.word);
        }
    }

    fn store_in(&self, file: &File, at: u64, word: u64) {
        let stored = file.memory().word_to_store(at);
        // Storing the value that is there changes no possible disk, unless a sync of the page has failed.
        if stored.load(Ordering::SeqCst) == word && !self.machine.sync_failed.load(Ordering::SeqCst)
        {
            return;
        }
        let mut history = lock(&file.history);
        stored.store(word, Ordering::SeqCst);
        history.note(at, &word.to_le_bytes(), true);
    }

    /// The word at `at` was stored: bytes that waited for it follow, unless the process is killed in between.
    #[expect(unsafe_code, reason = "copies what a caller has filled")]
    fn store_late_bytes(&self, at: u64) {
        for (from, length) in LateBytes::due(&mut lock(&self.late_bytes), at) {
            if !self.process.may_store() {
                return;
            }
            // SAFETY: the frame belongs to the process that is publishing it, and a simulation has one thread.
            unsafe {
                let bytes = self.private().bytes(from, length);
                let memory = self.file.memory();
                memory.claim(from, length).copy_from_slice(bytes);
                lock(&self.file.history).note(from, bytes, false);
            }
        }
    }

    fn private(&self) -> &Memory {
        self.scratch
            .get_or_init(|| Reused::of(self.file.memory().len()))
    }
}

impl Region for SimulatedRegion {
    fn bytes_len(&self) -> u64 {
        lock(&self.file.history).disk.len() as u64
    }

    fn is_writable(&self) -> bool {
        self.access == Access::Write
    }

    fn load(&self, at: u64) -> u64 {
        self.file.memory().word(at).load(Ordering::SeqCst)
    }

    fn publish(&self, at: u64, word: u64) {
        self.store_word(at, word);
    }

    fn exchange(&self, at: u64, current: u64, new: u64) -> Result<(), u64> {
        // A killed process gets the answer with which it continues: its stores reach no other process.
        if !self.process.may_store() {
            return Ok(());
        }
        let mut history = lock(&self.file.history);
        let word = self.file.memory().word_to_store(at);
        word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)?;
        history.note(at, &new.to_le_bytes(), true);
        Ok(())
    }

    #[expect(unsafe_code, reason = "passes the contract on")]
    unsafe fn bytes(&self, at: u64, length: u64) -> &[u8] {
        // SAFETY: the same contract.
        unsafe { self.file.memory().bytes(at, length) }
    }

    #[expect(unsafe_code, reason = "passes the contract on")]
    unsafe fn claim(&self, at: u64, length: u64) -> &mut [u8] {
        assert!(self.is_writable(), "the region is for reading");
        let is_late = self.machine.defect() == Some(Defect::LateBytes);
        let memory = if self.process.may_store() && !is_late {
            self.file.memory()
        } else {
            self.private()
        };
        // SAFETY: the same contract; no other process reads what a killed process writes.
        unsafe { memory.claim(at, length) }
    }

    #[expect(unsafe_code, reason = "reads what the caller has filled")]
    unsafe fn claimed(&self, at: u64, length: u64) {
        if self.machine.defect() == Some(Defect::LateBytes) {
            lock(&self.late_bytes).insert(at, LateBytes::new(length));
        } else if !self.process.is_dead() {
            // SAFETY: the caller guarantees that the bytes are not stored to.
            let bytes = unsafe { self.file.memory().bytes(at, length) };
            lock(&self.file.history).note(at, bytes, false);
        }
    }

    fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        self.process.step()?;
        let during = lock(&self.machine.during_sync).clone();
        if let Some(happens) = during {
            happens();
        }
        self.store_due(lock(&self.process.late).all());
        let fails = self.machine.syncs_left.fetch_sub(1, Ordering::SeqCst) == 1;
        let defect = self.machine.defect();
        let mut history = lock(&self.file.history);
        match defect {
            Some(Defect::HiddenFailures) if fails => history.give_up(from, to),
            _ if fails => {
                self.machine.sync_failed.store(true, Ordering::SeqCst);
                history.fail_sync(from, to);
            }
            Some(Defect::NoSyncs | Defect::NoFileSyncs) => {}
            Some(Defect::FirstPageSyncs) => history.sync(from, to.min(PAGE)),
            _ => history.sync(from, to),
        }
        // A failure is returned once to each opening of the file at that time, as Linux does.
        if self
            .failures_reported
            .swap(history.failures, Ordering::SeqCst)
            < history.failures
        {
            return Err(io::Error::other("the disk failed"));
        }
        Ok(())
    }

    fn populate(&self, _from: u64, _to: u64) {}

    fn wait(&self, _at: u64, _seen: u32, _limit: Duration) {
        std::thread::yield_now();
    }

    fn wake(&self, _at: u64) {}
}
