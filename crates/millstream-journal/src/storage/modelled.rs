//! A storage whose shared words are those of `loom`, so that the real writer and reader run in every interleaving, and
//! every load returns each value that its ordering allows.
//!
//! It is built on a simulated storage, which holds the bytes. A function decides for each file which words are
//! modelled; the others behave as on a machine that executes one instruction after the other. Each modelled word has a
//! cell that records which threads have read and stored it: bytes that are used while another thread stores to them, or
//! without an order between the two, fail the run.

#![expect(
    unsafe_code,
    reason = "passes contracts on, and shares cells that loom watches"
)]

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, fence};

use super::{Access, Hold, Region, Simulated, SimulatedLock, SimulatedRegion, Storage};
use crate::format::segment;
use crate::mutex::lock;

/// The orderings of the stores of this machine. A weaker ordering than the default must be found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Orders {
    /// Of [`Region::publish`].
    pub publish: Ordering,
    /// Whether an exchange orders the accesses before and after it.
    pub fences: bool,
    /// Whether the bytes of a frame are stored after its first word.
    pub late_bytes: bool,
    /// Whether the base of a segment is stored after the next two words.
    pub late_base: bool,
}

impl Default for Orders {
    fn default() -> Self {
        Orders {
            publish: Ordering::Release,
            fences: true,
            late_bytes: false,
            late_base: false,
        }
    }
}

/// A machine whose memory is modelled from [`begin`](Self::begin) on.
#[derive(Clone)]
pub(crate) struct Modelled {
    inner: Simulated,
    shared: Arc<Shared>,
}

struct Shared {
    orders: Orders,
    modelled: fn(&str) -> &'static [Range<u64>],
    files: Mutex<BTreeMap<String, Arc<Words>>>,
    late: Mutex<Option<LateBase>>,
    kernel: OnceLock<Kernel>,
}

/// The base of a segment that is not stored yet.
struct LateBase {
    file: Arc<Words>,
    base: u64,
    stores_left: u32,
}

/// What calls of the system and sleeps are ordered by.
#[derive(Default)]
struct Kernel {
    lock: loom::sync::Mutex<()>,
    woken: loom::sync::Condvar,
}

impl Shared {
    /// The kernel, once the model has begun. In a run that has failed, what is dropped on the way out is no part of it.
    fn kernel(&self) -> Option<&Kernel> {
        self.kernel.get().filter(|_| !std::thread::panicking())
    }
}

/// The words of a file that are modelled.
#[derive(Default)]
struct Words(OnceLock<BTreeMap<u64, Word>>);

struct Word {
    value: AtomicU64,
    /// Records which threads use the bytes of this word.
    bytes: UnsafeCell<()>,
}

// SAFETY: `value` is loom's atomic, which threads may share. `bytes` is a cell of loom, which holds nothing and is not
// `Sync`: loom runs one thread at a time, and fails the run when two threads use the cell without an order between
// them, which is what it is there for.
unsafe impl Sync for Word {}

impl Modelled {
    /// A machine on which these offsets of each file are modelled.
    pub fn new(orders: Orders, modelled: fn(&str) -> &'static [Range<u64>]) -> Self {
        let shared = Shared {
            orders,
            modelled,
            files: Mutex::default(),
            late: Mutex::default(),
            kernel: OnceLock::new(),
        };
        Modelled {
            inner: Simulated::new(),
            shared: Arc::new(shared),
        }
    }

    /// Another process.
    pub fn process(&self) -> Self {
        Modelled {
            inner: self.inner.process(),
            shared: Arc::clone(&self.shared),
        }
    }

    /// From here on loom chooses the order of operations.
    pub fn begin(&self) -> io::Result<()> {
        self.shared.kernel.get_or_init(Kernel::default);
        for (name, words) in lock(&self.shared.files).iter() {
            self.model(name, words, &self.inner.open(name, Access::Read)?);
        }
        Ok(())
    }

    fn model(&self, name: &str, words: &Words, region: &SimulatedRegion) {
        let ranges = (self.shared.modelled)(name).iter();
        let offsets = ranges.flat_map(|range| range.clone().step_by(8));
        let offsets = offsets.filter(|at| *at < region.bytes_len());
        let word = |at| Word {
            value: AtomicU64::new(region.load(at)),
            bytes: UnsafeCell::new(()),
        };
        words
            .0
            .get_or_init(|| offsets.map(|at| (at, word(at))).collect());
    }

    /// All accesses that follow come after all calls before, as in a kernel that has one lock.
    fn enter(&self) -> Option<loom::sync::MutexGuard<'_, ()>> {
        self.shared.kernel()?.lock.lock().ok()
    }

    /// The words of a file that has another name now.
    fn named(&self, from: &str, to: &str) {
        let mut files = lock(&self.shared.files);
        if let Some(words) = files.remove(from) {
            files.insert(to.to_owned(), words);
        }
    }

    fn region(&self, name: &str, inner: SimulatedRegion) -> ModelledRegion {
        let words = Arc::clone(lock(&self.shared.files).entry(name.to_owned()).or_default());
        if self.shared.kernel().is_some() {
            self.model(name, &words, &inner);
        }
        ModelledRegion {
            inner,
            shared: Arc::clone(&self.shared),
            words,
            late_bytes: Mutex::default(),
        }
    }
}

impl Storage for Modelled {
    type Region = ModelledRegion;
    type Lock = SimulatedLock;

    fn path(&self, name: &str) -> PathBuf {
        self.inner.path(name)
    }

    fn prepare(&self) -> io::Result<()> {
        self.inner.prepare()
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let _ordered = self.enter();
        self.inner.list(folder)
    }

    fn create(&self, name: &str, bytes: u64) -> io::Result<ModelledRegion> {
        let _ordered = self.enter();
        Ok(self.region(name, self.inner.create(name, bytes)?))
    }

    fn open(&self, name: &str, access: Access) -> io::Result<ModelledRegion> {
        let _ordered = self.enter();
        Ok(self.region(name, self.inner.open(name, access)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let _ordered = self.enter();
        self.inner.rename(from, to)?;
        self.named(from, to);
        Ok(())
    }

    fn replace(&self, from: &str, to: &str) -> io::Result<()> {
        let _ordered = self.enter();
        self.inner.replace(from, to)?;
        self.named(from, to);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let _ordered = self.enter();
        lock(&self.shared.files).remove(name);
        self.inner.remove(name)
    }

    fn sync_names(&self) -> io::Result<()> {
        let _ordered = self.enter();
        self.inner.sync_names()
    }

    fn lock(&self, name: &str, hold: Hold) -> io::Result<Option<SimulatedLock>> {
        let _ordered = self.enter();
        self.inner.lock(name, hold)
    }

    fn is_locked(&self, name: &str) -> io::Result<bool> {
        let _ordered = self.enter();
        self.inner.is_locked(name)
    }
}

/// An open file of a modelled machine.
pub(crate) struct ModelledRegion {
    inner: SimulatedRegion,
    shared: Arc<Shared>,
    words: Arc<Words>,
    /// The bytes that were stored last: where, and how many.
    late_bytes: Mutex<Option<(u64, u64)>>,
}

impl ModelledRegion {
    fn word(&self, at: u64) -> Option<&Word> {
        self.words()?.get(&at)
    }

    fn words(&self) -> Option<&BTreeMap<u64, Word>> {
        self.shared.kernel()?;
        self.words.0.get()
    }

    /// What a machine with the wrong order stores after a word at `at`.
    fn store_late(&self, at: u64) {
        let orders = self.shared.orders;
        let bytes =
            lock(&self.late_bytes).take_if(|(from, _)| orders.late_bytes && *from == at + 16);
        if let Some((from, length)) = bytes {
            for (at, word) in self.touched(from, length) {
                word.bytes.with_mut(|_| ());
                word.value.store(self.inner.load(at), Ordering::Relaxed);
            }
        }
        let base = lock(&self.shared.late).take_if(|late| {
            late.stores_left -= 1;
            late.stores_left == 0
        });
        if let Some(late) = &base
            && let Some(words) = late.file.0.get()
            && let Some(word) = words.get(&segment::BASE)
        {
            word.bytes.with_mut(|_| ());
            word.value.store(late.base, orders.publish);
        }
    }

    /// The modelled words that these bytes touch.
    fn touched(&self, at: u64, length: u64) -> impl Iterator<Item = (u64, &Word)> {
        let words = self.words().into_iter();
        let range = at / 8 * 8..at + length;
        words
            .flat_map(move |words| words.range(range.clone()))
            .map(|(at, word)| (*at, word))
    }
}

impl Region for ModelledRegion {
    fn bytes_len(&self) -> u64 {
        self.inner.bytes_len()
    }

    fn is_writable(&self) -> bool {
        self.inner.is_writable()
    }

    fn load(&self, at: u64) -> u64 {
        match self.word(at) {
            Some(word) => word.value.load(Ordering::Acquire),
            None => self.inner.load(at),
        }
    }

    fn publish(&self, at: u64, new: u64) {
        self.inner.publish(at, new);
        let Some(word) = self.word(at) else {
            return;
        };
        let orders = self.shared.orders;
        if orders.late_base && at == segment::BASE && new != u64::MAX {
            *lock(&self.shared.late) = Some(LateBase {
                file: Arc::clone(&self.words),
                base: new,
                stores_left: 2,
            });
            return;
        }
        word.bytes.with_mut(|_| ());
        word.value.store(new, orders.publish);
        self.store_late(at);
    }

    fn exchange(&self, at: u64, current: u64, new: u64) -> Result<(), u64> {
        let Some(word) = self.word(at) else {
            return self.inner.exchange(at, current, new);
        };
        if !self.shared.orders.fences {
            let done = Ordering::AcqRel;
            let failed = Ordering::Acquire;
            let exchanged = word.value.compare_exchange(current, new, done, failed);
            return exchanged.map(drop);
        }
        // Loom takes an exchange for a release and an acquire; the fences model the processor.
        fence(Ordering::SeqCst);
        let exchanged =
            word.value
                .compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        exchanged.map(drop)
    }

    unsafe fn bytes(&self, at: u64, length: u64) -> &[u8] {
        for (_, word) in self.touched(at, length) {
            word.bytes.with(|_| ());
        }
        // SAFETY: the same contract.
        unsafe { self.inner.bytes(at, length) }
    }

    unsafe fn claim(&self, at: u64, length: u64) -> &mut [u8] {
        for (_, word) in self.touched(at, length) {
            word.bytes.with_mut(|_| ());
        }
        // SAFETY: the same contract.
        unsafe { self.inner.claim(at, length) }
    }

    unsafe fn claimed(&self, at: u64, length: u64) {
        // SAFETY: the same contract.
        unsafe { self.inner.claimed(at, length) };
        *lock(&self.late_bytes) = Some((at, length));
        for (at, word) in self.touched(at, length) {
            // Bytes have no order of their own: another thread that loads them as a word may see them at any time.
            word.value.store(self.inner.load(at), Ordering::Relaxed);
        }
    }

    fn sync(&self, from: u64, to: u64) -> io::Result<()> {
        self.inner.sync(from, to)
    }

    fn populate(&self, _from: u64, _to: u64) {}

    /// Sleeps without a limit: a missing wake-up is found as a deadlock.
    fn wait(&self, at: u64, seen: u32, _limit: Duration) {
        if let Some(kernel) = self.shared.kernel()
            && let Ok(asleep) = kernel.lock.lock()
            && self.load(at) as u32 == seen
        {
            drop(kernel.woken.wait(asleep));
        }
    }

    fn wake(&self, _at: u64) {
        if let Some(kernel) = self.shared.kernel()
            && let Ok(_ordered) = kernel.lock.lock()
        {
            kernel.woken.notify_all();
        }
    }
}
