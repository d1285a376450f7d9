//! The segments to which a reader has moved by number: some of them stay mapped, so that reading here and there does
//! not map and search them again each time.

use std::collections::{BTreeMap, VecDeque};

use crate::core::{Core, SegmentOf};
use crate::error::Result;
use crate::storage::Storage;

/// How many stay mapped, besides the first one and the one that is appended to.
const MAPPED_MAX: usize = 16;

/// The segments that a reader has visited. It remembers them from its second seek on: most readers move once and read
/// from there.
pub(super) struct Visited<S: Storage> {
    has_moved: bool,
    /// The numbers of segments by the numbers of their first records.
    known: BTreeMap<u64, u64>,
    /// The journal's number of cuts when they were noted.
    cuts: u64,
    /// The most recent first.
    mapped: VecDeque<SegmentOf<S>>,
    ends: Option<(SegmentOf<S>, SegmentOf<S>)>,
}

impl<S: Storage> Default for Visited<S> {
    fn default() -> Self {
        Visited {
            has_moved: false,
            known: BTreeMap::new(),
            cuts: 0,
            mapped: VecDeque::new(),
            ends: None,
        }
    }
}

impl<S: Storage> Visited<S> {
    /// The segment with the record `sequence`, which is there or would be next.
    pub(super) fn locate(&self, core: &Core<S>, sequence: u64, cuts: u64) -> Result<SegmentOf<S>> {
        match self.known(core, sequence).filter(|_| cuts == self.cuts) {
            Some(number) => core.segment(number),
            None => core.locate(sequence),
        }
    }

    /// The number of that segment, if it and the next one are known, or it is the last.
    fn known(&self, core: &Core<S>, sequence: u64) -> Option<u64> {
        let (_, number) = self.known.range(..=sequence).next_back()?;
        let next = self.known.range(sequence + 1..).next();
        let is_last = || *number == core.tail_segment();
        let is_followed = next.map_or_else(is_last, |(_, next)| *next == number + 1);
        (is_followed && *number >= core.first_segment()).then_some(*number)
    }

    /// The reader has moved to this segment, of which `base` is the first record. Returns whether it had moved before.
    pub(super) fn moved_to(
        &mut self,
        core: &Core<S>,
        segment: &SegmentOf<S>,
        base: u64,
        cuts: u64,
    ) -> bool {
        if !std::mem::replace(&mut self.has_moved, true) {
            return false;
        }
        if cuts != self.cuts {
            self.known.clear();
            self.mapped.clear();
            self.cuts = cuts;
        }
        let first = core.first_segment();
        while self
            .known
            .first_key_value()
            .is_some_and(|(_, number)| *number < first)
        {
            self.known.pop_first();
        }
        self.known.insert(base, segment.number());
        // The files of removed segments use space as long as they are mapped.
        self.mapped
            .retain(|other| other.number() >= first && other.number() != segment.number());
        self.mapped.push_front(segment.clone());
        self.mapped.truncate(MAPPED_MAX);
        self.ends = match (core.segment(first), core.segment(core.tail_segment())) {
            (Ok(first), Ok(last)) => Some((first, last)),
            _ => None,
        };
        true
    }
}
