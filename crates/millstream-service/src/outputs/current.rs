//! The current input of the component: shared by the runner, which sets it, and the outlets and the clock, which read it.
//!
//! One thread uses all of it. The atomics are for the type checker, so that a component may be built on one thread and run on another.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use millstream_journal::Journal;
use millstream_wire::{InputName, Lineage, Take};

use crate::error::ServiceError;
use crate::inputs::names::name_of;

/// The number that means no input.
const OUTSIDE: u32 = u32::MAX;

/// The current input.
pub(crate) struct Current {
    input: AtomicU32,
    sequence: AtomicU64,
    time_ns: AtomicI64,
    /// The latency until the input was taken, and the number of calls that it counts for; 0 where it is not measured.
    take_after_ns: AtomicU64,
    take_calls: AtomicU32,
    /// How many calls are recorded already and must not be recorded again.
    held_back: AtomicU64,
    failure: Mutex<Option<String>>,
    failed: AtomicU32,
    /// The journals of the inputs, by their number in a lineage.
    pub inputs: Mutex<Vec<Journal>>,
    /// How often an input has become a copy of another journal.
    renamed: AtomicU32,
}

impl Default for Current {
    fn default() -> Self {
        Self {
            input: AtomicU32::new(OUTSIDE),
            sequence: AtomicU64::new(0),
            time_ns: AtomicI64::new(0),
            take_after_ns: AtomicU64::new(0),
            take_calls: AtomicU32::new(0),
            held_back: AtomicU64::new(0),
            failure: Mutex::new(None),
            failed: AtomicU32::new(0),
            inputs: Mutex::new(Vec::new()),
            renamed: AtomicU32::new(0),
        }
    }
}

impl Current {
    pub fn begin(&self, lineage: Lineage, time_ns: i64, held_back: u64) {
        self.input.store(lineage.input, Relaxed);
        self.sequence.store(lineage.sequence, Relaxed);
        self.time_ns.store(time_ns, Relaxed);
        self.held_back.store(held_back, Relaxed);
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
        (input != OUTSIDE).then_some(Lineage { input, sequence })
    }

    pub fn held_back(&self) -> u64 {
        self.held_back.load(Relaxed)
    }

    /// Whether the next call is recorded already.
    pub fn holds_back(&self) -> bool {
        let left = self.held_back();
        if left == 0 {
            return false;
        }
        self.held_back.store(left - 1, Relaxed);
        true
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
    pub fn set(&self, now_ns: i64) {
        self.current.time_ns.store(now_ns, Relaxed);
    }

    /// The journal and the sequence number of the record that the component is called with. Nothing outside a service, and in
    /// a timer of a replay.
    #[must_use]
    pub fn record(&self) -> Option<(String, u64)> {
        let lineage = self.current.lineage()?;
        let inputs = self.current.inputs.lock();
        let inputs = inputs.unwrap_or_else(PoisonError::into_inner);
        let path = inputs.get(lineage.input as usize)?.path();
        Some((path.display().to_string(), lineage.sequence))
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        self.current.time_ns.load(Relaxed)
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Clock({})", self.now_ns())
    }
}
