//! The current input of the component: shared by the runner, which sets it, and the outlets and the clock, which read
//! it.
//!
//! One thread uses all of it, from a call of the component to its end. A component may be built on one thread and run
//! on another; what it publishes on any other thread, or while it is not called, has no cause, and is refused.

use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream_journal::Journal;
use millstream_journal::clock::monotonic_ns;
use millstream_wire::{Cause, InputName, Lineage, Schema, Take};

use crate::error::ServiceError;
use crate::inputs::names::name_of;
use crate::outputs::earlier::Earlier;
use crate::timers::{OneOffs, Pending};

/// The number that means no input.
const OUTSIDE: u32 = u32::MAX;

/// Instead of a thread: the component is not called.
const CLOSED: usize = 0;
/// Instead of a thread: the component is called again with an input that it was called with before.
const AGAIN: usize = 1;
/// Instead of a thread: the component answers a query.
const ASKED: usize = 2;

/// Why a call is refused that a component makes while it is not called.
#[doc(hidden)] // For the other crates of Millstream.
pub const REFUSAL: &str = "the component may publish only while it is called with an input or by a timer, and on the thread of that call: not in \
                       its constructor, not when its state is saved or restored, not on a thread of its own";

/// A number for this thread: an address that no other thread has.
#[inline]
fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here) as usize)
}

/// The current input.
pub(crate) struct Current {
    input: AtomicU32,
    sequence: AtomicU64,
    checksum: AtomicU32,
    time_ns: AtomicI64,
    /// The latency until the input was taken, and the number of calls that it counts for; 0 where it is not measured.
    take_after_ns: AtomicU64,
    take_calls: AtomicU32,
    /// The thread whose calls are recorded, [`CLOSED`] or [`AGAIN`].
    gate: AtomicUsize,
    /// The thread on which the component is called again.
    thread: AtomicUsize,
    /// Whether the component is in a call, for observers on other threads.
    in_call: AtomicBool,
    /// Since when it waits for an input, by a clock that never jumps; 0 while it does not.
    idle_since_ns: AtomicU64,
    /// How long it has waited for inputs before.
    idle_ns: AtomicU64,
    /// The recorded outputs, while the component is called again.
    earlier: Mutex<Option<Earlier>>,
    failure: Mutex<Option<String>>,
    failed: AtomicU32,
    /// The journals of the inputs, by their number in a lineage.
    pub inputs: Mutex<Vec<Journal>>,
    /// How often an input has become a copy of another journal.
    renamed: AtomicU32,
    /// The time of the machine in a service that runs; the largest number elsewhere.
    wall_ns: AtomicI64,
    /// The methods of one-off timers, once the component is complete.
    handlers: Mutex<Vec<String>>,
    one_offs: Mutex<OneOffs>,
}

impl Default for Current {
    fn default() -> Self {
        Self {
            input: AtomicU32::new(OUTSIDE),
            sequence: AtomicU64::new(0),
            checksum: AtomicU32::new(0),
            time_ns: AtomicI64::new(0),
            take_after_ns: AtomicU64::new(0),
            take_calls: AtomicU32::new(0),
            gate: AtomicUsize::new(CLOSED),
            thread: AtomicUsize::new(CLOSED),
            in_call: AtomicBool::new(false),
            idle_since_ns: AtomicU64::new(0),
            idle_ns: AtomicU64::new(0),
            earlier: Mutex::new(None),
            failure: Mutex::new(None),
            failed: AtomicU32::new(0),
            inputs: Mutex::new(Vec::new()),
            renamed: AtomicU32::new(0),
            wall_ns: AtomicI64::new(i64::MAX),
            handlers: Mutex::default(),
            one_offs: Mutex::default(),
        }
    }
}

impl Current {
    /// The component is about to be called.
    #[inline]
    pub fn begin(&self, lineage: Lineage, time_ns: i64) {
        self.input.store(lineage.input, Relaxed);
        self.sequence.store(lineage.sequence, Relaxed);
        self.checksum.store(lineage.checksum, Relaxed);
        self.time_ns.store(time_ns, Relaxed);
        self.gate.store(this_thread(), Relaxed);
        self.in_call.store(true, Relaxed);
        if self.idle_since_ns.load(Relaxed) != 0 {
            self.idle_ns.store(self.idle_ns(monotonic_ns()), Relaxed);
            self.idle_since_ns.store(0, Relaxed);
        }
    }

    /// There is no input: the component waits until its next call.
    #[inline]
    pub fn wait(&self) {
        if self.idle_since_ns.load(Relaxed) == 0 {
            self.idle_since_ns.store(monotonic_ns(), Relaxed);
        }
    }

    /// How long the component has waited for inputs until now, the present wait included.
    pub fn idle_ns(&self, now_ns: u64) -> u64 {
        let wait_ns = match self.idle_since_ns.load(Relaxed) {
            0 => 0,
            since_ns => now_ns.saturating_sub(since_ns),
        };
        self.idle_ns.load(Relaxed) + wait_ns
    }

    /// The component has returned.
    #[inline]
    pub fn end(&self) {
        self.in_call.store(false, Relaxed);
    }

    /// The input of the call that the component is in, and the number of its record.
    pub fn call(&self) -> Option<(u32, u64)> {
        let call = (self.input.load(Relaxed), self.sequence.load(Relaxed));
        self.in_call.load(Relaxed).then_some(call)
    }

    /// The component is about to be called again: [`Earlier`] says which of its calls are recorded.
    pub fn begin_again(&self, lineage: Lineage, time_ns: i64) {
        self.begin(lineage, time_ns);
        self.thread.store(this_thread(), Relaxed);
        self.gate.store(AGAIN, Relaxed);
    }

    /// The component is not called: it may not publish.
    pub fn close(&self) {
        self.gate.store(CLOSED, Relaxed);
    }

    /// Whether a call on this thread is recorded at once.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.gate.load(Relaxed) == this_thread()
    }

    /// Whether the component makes a call again that it may have made before.
    ///
    /// # Errors
    /// It is not called, or not on this thread. The service ends with this, too.
    pub fn is_again(&self) -> Result<bool, Cause> {
        match self.gate.load(Relaxed) {
            AGAIN if self.thread.load(Relaxed) == this_thread() => Ok(true),
            gate if gate == this_thread() => Ok(false),
            ASKED => Err("a query makes no calls: it changes nothing".into()),
            _ => {
                self.fail(REFUSAL);
                Err(REFUSAL.into())
            }
        }
    }

    /// When the input was taken, if that is measured.
    #[inline]
    pub fn set_take(&self, take: Option<Take>) {
        if let Some(take) = take {
            self.take_after_ns.store(take.after_ns, Relaxed);
        }
        self.take_calls
            .store(take.map_or(0, |take| take.calls), Relaxed);
    }

    #[inline]
    pub fn take(&self) -> Option<Take> {
        let calls = self.take_calls.load(Relaxed);
        let after_ns = self.take_after_ns.load(Relaxed);
        (calls > 0).then_some(Take { after_ns, calls })
    }

    pub fn lineage(&self) -> Option<Lineage> {
        let input = self.input.load(Relaxed);
        let sequence = self.sequence.load(Relaxed);
        let checksum = self.checksum.load(Relaxed);
        (input != OUTSIDE).then_some(Lineage {
            input,
            sequence,
            checksum,
        })
    }

    /// Whether a call with these contents is not recorded, while the component is called again.
    pub fn holds_back(&self, contents: &[u8], schemas: &[Arc<Schema>]) -> bool {
        let mut earlier = self.earlier();
        earlier
            .as_mut()
            .is_none_or(|earlier| earlier.holds_back(contents, schemas))
    }

    /// The recorded outputs, while the component is called again.
    pub fn earlier(&self) -> MutexGuard<'_, Option<Earlier>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `query`, which may not call an output.
    pub fn asked<T>(&self, query: impl FnOnce() -> T) -> T {
        let gate = self.gate.swap(ASKED, Relaxed);
        let had_failed = self.failed.load(Relaxed);
        let answered = query();
        self.gate.store(gate, Relaxed);
        if had_failed == 0 && self.failed.swap(0, Relaxed) != 0 {
            // The query has the error; the service goes on.
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.take();
        }
        answered
    }

    pub fn fail(&self, reason: &str) {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.get_or_insert_with(|| reason.to_owned());
        self.failed.store(1, Relaxed);
    }

    pub fn failure(&self) -> Option<String> {
        if self.failed.load(Relaxed) == 0 {
            return None;
        }
        let failure = self.failure.lock();
        failure.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn add_input(&self, journal: &Journal) -> u32 {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        inputs.push(journal.clone());
        inputs.len() as u32 - 1
    }

    /// The journal of an input.
    pub fn input_name(&self, number: u32) -> Result<Option<InputName>, ServiceError> {
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        inputs.get(number as usize).map(name_of).transpose()
    }

    /// An input has another identity than in the records so far: it was empty, and has become a copy.
    pub fn rename_inputs(&self) {
        self.renamed.fetch_add(1, Relaxed);
    }

    /// How often that has happened: after each time the records state the names again.
    #[inline]
    pub fn renamed(&self) -> u32 {
        self.renamed.load(Relaxed)
    }

    /// The one-off timers of the component.
    pub fn one_offs(&self) -> MutexGuard<'_, OneOffs> {
        self.one_offs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names a method that one-off timers may call.
    pub fn add_handler(&self, name: &str) {
        let mut handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        handlers.push(name.to_owned());
    }

    fn has_handler(&self, name: &str) -> bool {
        let handlers = self.handlers.lock().unwrap_or_else(PoisonError::into_inner);
        handlers.iter().any(|known| known == name)
    }

    /// Sets the time of the machine: no time of a record after it counts for one-off timers.
    pub fn set_wall(&self, now_ns: i64) {
        self.wall_ns.store(now_ns, Relaxed);
    }

    /// Drops the journals.
    pub fn forget_inputs(&self) {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        inputs.clear();
    }

    /// The names of the inputs as the next record must state them.
    pub fn input_names(&self) -> Result<Vec<InputName>, ServiceError> {
        let inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        inputs.iter().map(name_of).collect()
    }
}

/// The time as a component may see it: that of the record that it is called with. It is the same in a replay.
///
/// It does not go back where inputs arrive in another order than that of their times, by less than a second. Where a
/// record is older than that, the clock of a machine was ahead and has been put right: then it has the time of the
/// record.
#[derive(Clone)]
pub struct Clock {
    pub(crate) current: Arc<Current>,
}

impl Clock {
    /// A clock outside a service, for tests; it shows what it is [`set`](Self::set) to, at first 0.
    #[must_use]
    pub fn of_test() -> Self {
        Self {
            current: Arc::default(),
        }
    }

    /// Sets the time. In a service the next input sets it again.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn set(&self, now_ns: i64) {
        self.current.time_ns.store(now_ns, Relaxed);
    }

    /// The journal and the sequence number of the record that the component is called with. Nothing outside a service,
    /// and in a timer of a replay.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn record(&self) -> Option<(String, u64)> {
        let lineage = self.current.lineage()?;
        let inputs = self.current.inputs.lock();
        let inputs = inputs.unwrap_or_else(PoisonError::into_inner);
        let path = inputs.get(lineage.input as usize)?.path();
        Some((path.display().to_string(), lineage.sequence))
    }

    /// The one-off timers of the same component.
    #[must_use]
    pub fn timers(&self) -> Timers {
        Timers {
            current: Arc::clone(&self.current),
        }
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        self.current.time_ns.load(Relaxed)
    }
}

/// The one-off timers of a component: it starts and cancels them in its calls, each under a name.
///
/// The service calls the [method](crate::Setup::one_off) of a timer when it is due, and records that in its schedule,
/// so that a start after a crash repeats it. A timer that came due while the service was down is called at the start.
///
/// ```
/// use std::time::Duration;
/// use millstream_service::{Clock, Timers, testing::Trial};
///
/// struct Desk {
///     timers: Timers,
///     expired: Vec<String>,
/// }
///
/// # fn main() -> Result<(), millstream_wire::Cause> {
/// let clock = Clock::of_test();
/// let desk = Desk { timers: clock.timers(), expired: Vec::new() };
/// let mut trial = Trial::new(desk, clock).one_off("expire", |desk, name, _| {
///     desk.expired.push(name.to_owned());
///     Ok(())
/// });
/// for order in ["A-1", "A-2"] {
///     trial.component().timers.start("expire", order, Duration::from_secs(1800))?;
/// }
/// trial.component().timers.cancel("expire", "A-1")?;
/// trial.advance(Duration::from_secs(3600))?;
/// assert_eq!(trial.component().expired, ["A-2"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Timers {
    current: Arc<Current>,
}

impl Timers {
    /// Starts a timer: the method `timer` is called once, with `name`, when `length` has passed since the current call.
    /// A timer of the same method and name that has not come due is replaced.
    ///
    /// # Errors
    /// [`ServiceError::NoTimer`]: the component has no such method, or is not complete yet.
    pub fn start(&self, timer: &str, name: &str, length: Duration) -> Result<(), ServiceError> {
        self.check(timer)?;
        let length_ns = i64::try_from(length.as_nanos()).unwrap_or(i64::MAX).max(1);
        let current = &self.current;
        let now_ns = current
            .time_ns
            .load(Relaxed)
            .min(current.wall_ns.load(Relaxed));
        current.one_offs().start(Pending {
            timer: timer.to_owned(),
            name: name.to_owned(),
            due_ns: now_ns.saturating_add(length_ns),
            length_ns,
        });
        Ok(())
    }

    /// Cancels a timer. Returns whether there was one that had not come due.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn cancel(&self, timer: &str, name: &str) -> Result<bool, ServiceError> {
        self.check(timer)?;
        Ok(self.current.one_offs().cancel(timer, name))
    }

    fn check(&self, timer: &str) -> Result<(), ServiceError> {
        if self.current.gate.load(Relaxed) == ASKED {
            return Err(ServiceError::Query);
        }
        if self.current.has_handler(timer) {
            Ok(())
        } else {
            Err(ServiceError::NoTimer {
                name: timer.to_owned(),
            })
        }
    }
}

impl std::fmt::Debug for Timers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Timers({} pending)",
            self.current.one_offs().pending().len()
        )
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({})", self.now_ns())
    }
}
