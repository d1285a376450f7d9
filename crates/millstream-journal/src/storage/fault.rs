//! Faults of mapped memory: a load or a store that the file system cannot serve is an error of the journal, not the
//! death of the process.
//!
//! The kernel sends SIGBUS to a thread that touches a mapped page for which there is no room on the disk, which the
//! device cannot read, or which another process has truncated. The handler here finds the mapping in a table, maps a
//! page of zeros in its place, and records the fault; the instruction is then repeated and succeeds. The invariant: a
//! fault is recorded before anything is read from or stored to the zeros. An operation that acknowledges calls [`any`]
//! after its last store, and one that reads calls it after its last load, so that neither takes the zeros for the file.
//! A mapping that has had a fault stays unusable.
//!
//! A signal for an address outside of these mappings goes to the handler that was there before.

#![expect(
    unsafe_code,
    reason = "handles a signal, and replaces pages of memory that this crate has mapped"
)]

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Faults of all mappings of this process, and journals that were found removed.
static FAULTS: AtomicU64 = AtomicU64::new(0);
static FIRST: Chunk = Chunk::new();
/// The size of a page, known before the handler is installed.
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Handlers that were installed before this one, the latest last.
static PREVIOUS: [AtomicPtr<libc::sigaction>; PREVIOUS_MAX] =
    [const { AtomicPtr::new(ptr::null_mut()) }; PREVIOUS_MAX];
const PREVIOUS_MAX: usize = 8;
static PREVIOUS_LEN: AtomicUsize = AtomicUsize::new(0);
static INSTALLING: Mutex<()> = Mutex::new(());

const SLOTS: usize = 128;
/// After this many faults of one mapping all of it from there on is replaced at once: each page alone costs the kernel
/// a memory area.
const SINGLE_PAGES_MAX: usize = 512;

/// Whether any journal of this process may have failed. The answer covers all loads and stores before the call.
#[inline(always)]
pub(crate) fn any() -> bool {
    // The handler runs on the thread that has the fault, in the middle of its instructions: only the compiler must keep
    // their order.
    compiler_fence(Ordering::SeqCst);
    FAULTS.load(Ordering::Relaxed) != 0
}

/// How many there were so far.
pub(crate) fn count() -> u64 {
    FAULTS.load(Ordering::SeqCst)
}

/// Makes [`any`] return true from now on.
pub(crate) fn note() {
    FAULTS.fetch_add(1, Ordering::SeqCst);
}

/// A mapping in the table, as long as this lives. It goes before the memory is unmapped.
#[derive(Debug)]
pub(crate) struct Watch {
    slot: &'static Slot,
}

impl Watch {
    /// Watch `len` bytes of a mapping from `start` on.
    pub fn new(start: usize, len: usize) -> io::Result<Self> {
        install()?;
        let slot = Slot::take();
        slot.fault.store(0, Ordering::Relaxed);
        slot.count.store(0, Ordering::Relaxed);
        slot.change(start, start + len);
        Ok(Watch { slot })
    }

    /// The offset of the page that had the first fault.
    pub fn fault(&self) -> Option<u64> {
        self.slot.fault.load(Ordering::SeqCst).checked_sub(1)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.slot.change(0, 0);
        self.slot.taken.store(false, Ordering::Release);
    }
}

/// An entry of the table.
#[derive(Debug)]
struct Slot {
    taken: AtomicBool,
    /// Odd while the entry changes.
    version: AtomicUsize,
    start: AtomicUsize,
    end: AtomicUsize,
    /// 1 + the offset of the first fault; 0 is none.
    fault: AtomicU64,
    count: AtomicUsize,
}

impl Slot {
    const fn new() -> Self {
        Slot {
            taken: AtomicBool::new(false),
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            fault: AtomicU64::new(0),
            count: AtomicUsize::new(0),
        }
    }

    /// A free entry. The table grows and never shrinks.
    fn take() -> &'static Slot {
        let mut chunk = &FIRST;
        loop {
            let free = chunk.slots.iter().find(|slot| {
                !slot.taken.load(Ordering::Relaxed) && !slot.taken.swap(true, Ordering::Acquire)
            });
            match free {
                Some(slot) => return slot,
                None => chunk = chunk.next_or_new(),
            }
        }
    }

    fn change(&self, start: usize, end: usize) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.start.store(start, Ordering::SeqCst);
        self.end.store(end, Ordering::SeqCst);
        self.version.fetch_add(1, Ordering::SeqCst);
    }

    /// The mapping, if it holds `address`. One that is just being changed does not: its memory cannot be in use.
    fn holding(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::SeqCst);
        let start = self.start.load(Ordering::SeqCst);
        let end = self.end.load(Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let still = version.is_multiple_of(2) && version == self.version.load(Ordering::SeqCst);
        (still && (start..end).contains(&address)).then_some((start, end))
    }
}

/// A part of the table.
struct Chunk {
    slots: [Slot; SLOTS],
    next: AtomicPtr<Chunk>,
}

impl Chunk {
    const fn new() -> Self {
        Chunk {
            slots: [const { Slot::new() }; SLOTS],
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    fn next(&self) -> Option<&'static Chunk> {
        // SAFETY: it is null or a chunk that was leaked in `next_or_new`.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    fn next_or_new(&self) -> &'static Chunk {
        if let Some(next) = self.next() {
            return next;
        }
        let new = Box::into_raw(Box::new(Chunk::new()));
        let placed =
            self.next
                .compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        match placed {
            // SAFETY: it was made above, and is never freed.
            Ok(_) => unsafe { &*new },
            Err(other) => {
                // SAFETY: it was made above, and no other thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: another thread has placed it, and it is never freed.
                unsafe { &*other }
            }
        }
    }
}

/// Install the handler. If another library has installed its own since, this one is installed above that.
fn install() -> io::Result<()> {
    // In the child of a fork that happened meanwhile it would stay locked forever, and the handler is there.
    let Ok(_alone) = INSTALLING.try_lock() else {
        return Ok(());
    };
    PAGE.store(rustix::param::page_size(), Ordering::SeqCst);
    let mut found = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: `found` is room for the answer, and nothing is changed.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), found.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeros are a value of it, and the call has filled it.
    let found = unsafe { found.assume_init() };
    let ours = on_bus_error as *const () as usize;
    if found.sa_sigaction == ours {
        return Ok(());
    }
    remember(found);
    // SAFETY: zeros are a value of it.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = ours;
    // A handler before this one may raise the signal again, and means the one before itself.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART | libc::SA_NODEFER;
    // SAFETY: the handler does only what a handler may do: atomics, and system calls.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Push a handler onto the stack of earlier handlers. If the handler is on the stack already, those above it are
/// dropped.
fn remember(found: libc::sigaction) {
    let len = PREVIOUS_LEN.load(Ordering::SeqCst);
    let known = PREVIOUS.iter().take(len).position(|previous| {
        // SAFETY: the first `len` are boxes that were leaked below.
        unsafe { previous.load(Ordering::SeqCst).as_ref() }
            .is_some_and(|previous| previous.sa_sigaction == found.sa_sigaction)
    });
    let at = known.unwrap_or(len).min(PREVIOUS_MAX - 1);
    // Leaked: the handler may be reading the old one.
    PREVIOUS[at].store(Box::into_raw(Box::new(found)), Ordering::SeqCst);
    PREVIOUS_LEN.store(at + 1, Ordering::SeqCst);
}

/// The handler.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the information that belongs to the signal.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    if code <= 0 || !replace(address) {
        chain(signal, info, context, code);
    }
}

/// Put zeros in the place of the page at `address`, if it belongs to a mapping of this crate.
fn replace(address: usize) -> bool {
    let mut chunk = Some(&FIRST);
    while let Some(here) = chunk {
        for slot in &here.slots {
            if let Some((start, end)) = slot.holding(address) {
                let page = address & !(PAGE.load(Ordering::Relaxed) - 1);
                let first = (page - start) as u64 + 1;
                let _earlier =
                    slot.fault
                        .compare_exchange(0, first, Ordering::SeqCst, Ordering::SeqCst);
                FAULTS.fetch_add(1, Ordering::SeqCst);
                let single = slot.count.fetch_add(1, Ordering::SeqCst) < SINGLE_PAGES_MAX;
                let length = if single {
                    PAGE.load(Ordering::Relaxed)
                } else {
                    end - page
                };
                return zeros(page, length);
            }
        }
        chunk = here.next();
    }
    false
}

fn zeros(page: usize, length: usize) -> bool {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    let at = ptr::with_exposed_provenance_mut(page);
    // SAFETY: the pages belong to a mapping of this crate that is in use by the thread which had the fault, so that it
    // cannot be unmapped meanwhile. The recorded fault makes every reader and writer of the zeros return an error.
    unsafe { mmap_anonymous(at, length, prot, flags) }.is_ok()
}

/// Pass a signal that is not ours to the handler before.
fn chain(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    let len = PREVIOUS_LEN.load(Ordering::SeqCst);
    let previous = match len.checked_sub(1) {
        Some(last) => PREVIOUS[last].load(Ordering::SeqCst),
        None => ptr::null_mut(),
    };
    // SAFETY: null, or a box that was leaked in `remember`.
    let previous = unsafe { previous.as_ref() };
    let handler = previous.map_or(libc::SIG_DFL, |previous| previous.sa_sigaction);
    if handler == libc::SIG_IGN && code <= 0 {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: the default action; both calls may be made in a handler. An instruction that is repeated then ends
        // the process.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            if code <= 0 {
                libc::raise(signal);
            }
        }
        return;
    }
    // If that one raises the signal again, it goes to the one before it.
    PREVIOUS_LEN.store(len - 1, Ordering::SeqCst);
    let with_info = previous.is_some_and(|previous| previous.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: a handler as it was installed, called as its flags say, with the arguments of the kernel.
    unsafe {
        if with_info {
            type Informed = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
            let handler: Informed = std::mem::transmute(handler as *const ());
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(c_int) = std::mem::transmute(handler as *const ());
            handler(signal);
        }
    }
    let _changed = PREVIOUS_LEN.compare_exchange(len - 1, len, Ordering::SeqCst, Ordering::SeqCst);
}
