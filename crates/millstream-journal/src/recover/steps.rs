//! The plan of a recovery: its steps, and what is true after them.

use crate::format::control::Facts;
use crate::format::files;
use crate::format::segment::{Mark, Times};
use crate::retain::start::Start;

/// A step of a recovery; they are executed in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Remove a file that is no segment: a draft that was not completed, a cut that has ended.
    RemoveFile(String),
    /// Remove a segment after the end; the last one comes first.
    Remove(u64),
    /// Make the first segment.
    Create,
    /// Write the start of the journal, if it is not written yet, and sync it.
    Start(Start),
    /// The segment begins with this sequence number.
    Begin { number: u64, base: u64 },
    /// The segment's frames end here.
    Tail {
        number: u64,
        mark: Mark,
        times: Times,
    },
    /// The segment has a record that is earlier than one before it.
    Disorder(u64),
    /// Nothing but zeros from here to the end of the segment.
    Clear { number: u64, from: u64 },
    /// Store all of a segment once more and sync it: a sync has failed, and the kernel may take the pages for clean.
    Refresh(u64),
    /// All that the segment holds is durable.
    Durable { number: u64, mark: Mark },
}

/// The plan of a recovery and what will be true after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub facts: Facts,
    pub steps: Vec<Step>,
}

impl Plan {
    /// Whether there is nothing yet.
    pub fn is_new(&self) -> bool {
        self.steps.contains(&Step::Create)
    }

    /// Whether this completes a cut that a process has begun.
    pub fn ends_cut(&self) -> bool {
        let cut = |step: &Step| matches!(step, Step::RemoveFile(name) if name == files::CUT);
        self.steps.iter().any(cut)
    }

    /// The segments at the end of the journal that are removed or truncated, in order, and the offset where that is not
    /// the beginning.
    pub fn cleared(&self) -> Vec<(u64, Option<u64>)> {
        let mut cleared: Vec<_> = self
            .steps
            .iter()
            .filter_map(|step| match step {
                Step::Clear { number, from } => Some((*number, Some(*from))),
                Step::Remove(number) if *number > self.facts.tail_segment => Some((*number, None)),
                _ => None,
            })
            .collect();
        cleared.sort_unstable();
        cleared
    }

    /// Whether the recovery has found a record in this segment that is earlier than one before it.
    pub fn is_disordered(&self, segment: u64) -> bool {
        self.steps.contains(&Step::Disorder(segment))
    }

    /// The planned first sequence number of a segment, where it differs from what is stored.
    pub fn base(&self, segment: u64) -> Option<u64> {
        self.steps.iter().find_map(|step| match step {
            Step::Begin { number, base } if *number == segment => Some(*base),
            _ => None,
        })
    }

    /// The planned end of a segment, where it was looked for.
    pub fn tail(&self, segment: u64) -> Option<Mark> {
        self.steps.iter().find_map(|step| match step {
            Step::Tail { number, mark, .. } if *number == segment => Some(*mark),
            _ => None,
        })
    }
}
