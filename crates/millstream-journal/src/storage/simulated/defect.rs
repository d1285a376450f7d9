//! What may be wrong with a simulated machine. A defect shows what a bug of the journal would: a simulation must find
//! each.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What is wrong with a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Defect {
    /// Syncs of files and of names are reported as done, and are not.
    NoSyncs,
    /// Syncs of files are reported as done, and are not.
    NoFileSyncs,
    /// Of a file only the first page is synced.
    FirstPageSyncs,
    /// Syncs of names are reported as done, and are not.
    NoNameSyncs,
    /// A sync that fails is reported as done.
    HiddenFailures,
    /// Zeros that are stored after the first two pages of a file are lost.
    LostZeros,
    /// Bytes that were claimed are stored after the word two words before them, and the next two words.
    LateBytes,
    /// The word at offset 64 of a file of more than two pages is stored after the next three words, or with the next
    /// sync.
    LateBase,
}

/// The offset of the word that [`Defect::LateBase`] delays.
const BASE: u64 = 64;
/// The bytes of a frame begin so long after its first word.
const FRAME_HEADER: u64 = 16;
/// How many stores the word there waits for: the end frame of the segment before, and the number of the segment in the
/// control page.
const BASE_DELAY: u32 = 3;
/// How many stores bytes wait for after the first word of their frame: both times and the tail of the segment.
const BYTES_DELAY: u32 = 3;

/// Stores of a process into files `F` that have not happened yet.
pub(super) struct LateStores<F>(VecDeque<LateStore<F>>);

pub(super) struct LateStore<F> {
    pub file: Arc<F>,
    pub at: u64,
    pub word: u64,
    stores_left: u32,
}

impl<F> Default for LateStores<F> {
    fn default() -> Self {
        LateStores(VecDeque::new())
    }
}

impl<F> LateStores<F> {
    /// Whether a word is delayed.
    pub fn takes(&mut self, file: &Arc<F>, at: u64, word: u64) -> bool {
        let is_late = at == BASE && word != u64::MAX;
        if is_late {
            self.0.push_back(LateStore {
                file: Arc::clone(file),
                at,
                word,
                stores_left: BASE_DELAY,
            });
        }
        is_late
    }

    /// The stores that happen after another one.
    pub fn due(&mut self) -> Vec<LateStore<F>> {
        self.0.iter_mut().for_each(|late| late.stores_left -= 1);
        let due = self.0.iter().take_while(|late| late.stores_left == 0);
        let due = due.count();
        self.0.drain(..due).collect()
    }

    /// All of them.
    pub fn all(&mut self) -> Vec<LateStore<F>> {
        self.0.drain(..).collect()
    }
}

/// Bytes of a frame that are not stored yet.
pub(super) struct LateBytes {
    length: u64,
    /// How many stores follow first, once the first word of the frame is stored.
    stores_left: Option<u32>,
}

impl LateBytes {
    pub fn new(length: u64) -> Self {
        LateBytes {
            length,
            stores_left: None,
        }
    }

    /// A word at `at` was stored: the bytes that follow it, by offset and length.
    pub fn due(all: &mut BTreeMap<u64, LateBytes>, at: u64) -> Vec<(u64, u64)> {
        for late in all.values_mut() {
            late.stores_left = late.stores_left.map(|left| left - 1);
        }
        if let Some(late) = all.get_mut(&(at + FRAME_HEADER)) {
            late.stores_left = Some(BYTES_DELAY);
        }
        let mut due = Vec::new();
        all.retain(|from, late| {
            let is_due = late.stores_left == Some(0);
            due.extend(is_due.then_some((*from, late.length)));
            !is_due
        });
        due
    }
}
