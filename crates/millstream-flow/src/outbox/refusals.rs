//! Records that the destination refuses: it leaves them out, or a batch is halved until they are alone, so that they
//! hold up no other record.
//!
//! Invariant: the ends of the parts that wait are in descending order, the next part last. A part is never read beyond
//! its end.

use std::fmt;
use std::sync::{Arc, Mutex};

use crate::error::Cause;
use crate::framing::Frames;
use crate::mutex::lock;
use crate::outbox::refused::RefusedLog;

/// What becomes of the records of an outbox that its destination refuses. Clones are one.
#[derive(Clone, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Refusals {
    are_skipped: bool,
    write: Arc<Mutex<Write>>,
}

/// The write in progress.
#[derive(Default)]
struct Write {
    first: u64,
    records: u64,
    /// Those that it has left out, each with the reason.
    left_out: Vec<(u64, String)>,
    /// Where they are kept, if they become dead letters: with a copy of the batch.
    log: Option<(Arc<RefusedLog>, Frames)>,
}

impl Refusals {
    pub(super) fn new(are_skipped: bool, log: Option<Arc<RefusedLog>>) -> Self {
        let write = Write {
            log: log.map(|log| (log, Frames::default())),
            ..Write::default()
        };
        Refusals {
            are_skipped,
            write: Arc::new(Mutex::new(write)),
        }
    }

    /// Whether the sink skips records that its destination refuses, or makes dead letters of them; otherwise one fails
    /// the flow.
    #[must_use]
    pub fn are_skipped(&self) -> bool {
        self.are_skipped
    }

    /// Leaves the record `number` out of the write in progress, since the destination refuses it; `reason` is for
    /// people. When it returns, a record that becomes a dead letter is stored durably: then the position of the
    /// destination may pass it.
    ///
    /// # Errors
    /// Refused records are not skipped; the write has no such record; an error of the system.
    pub fn leave_out(&self, number: u64, reason: &str) -> Result<(), Cause> {
        let mut write = lock(&self.write);
        let at = number.checked_sub(write.first);
        match at.filter(|at| *at < write.records && self.are_skipped) {
            Some(at) => {
                if write.left_out.iter().any(|(known, _)| *known == number) {
                    return Ok(());
                }
                if let Some((log, batch)) = &write.log {
                    log.add(number, reason, batch.get(at as usize))?;
                }
                write.left_out.push((number, reason.to_owned()));
                Ok(())
            }
            None if self.are_skipped => Err(format!(
                "record {number} is none of the write, which has {} records from {} on",
                write.records, write.first
            )
            .into()),
            None => Err(format!("record {number} is refused: {reason}").into()),
        }
    }

    /// A write of these records begins.
    pub(super) fn begin(&self, batch: &Frames, first: u64) {
        let write = &mut *lock(&self.write);
        (write.first, write.records) = (first, batch.spans.len() as u64);
        write.left_out.clear();
        if let Some((_, copy)) = &mut write.log {
            copy.clone_from(batch);
        }
    }

    /// Takes what the write has left out.
    pub(super) fn take(&self) -> Vec<(u64, String)> {
        std::mem::take(&mut lock(&self.write).left_out)
    }
}

impl fmt::Debug for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusals")
            .field("are_skipped", &self.are_skipped)
            .finish_non_exhaustive()
    }
}

/// The parts of a batch of which some record is refused.
#[derive(Debug, Default)]
pub(super) struct Parts {
    ends: Vec<u64>,
    /// The next record is alone in its batch, was refused, and is skipped.
    pub(super) skips_next: bool,
}

impl Parts {
    /// The records from `first` to below `end` are refused: halves them. Returns the number of records of the first
    /// half.
    pub(super) fn halve(&mut self, first: u64, end: u64) -> u64 {
        if self.ends.last() != Some(&end) {
            self.ends.push(end);
        }
        let half = (end - first) / 2;
        self.ends.push(first + half);
        half
    }

    /// The records below `next` are delivered or skipped.
    pub(super) fn advance(&mut self, next: u64) {
        self.ends.retain(|end| *end > next);
        self.skips_next = false;
    }

    /// Forgets all parts.
    pub(super) fn clear(&mut self) {
        *self = Parts::default();
    }

    /// Returns the end of the next part, if there are parts.
    pub(super) fn end(&self) -> Option<u64> {
        self.ends.last().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_records_of_the_write_are_left_out() {
        let mut batch = Frames::default();
        for record in ["a", "b"] {
            batch
                .append(|out| out.extend_from_slice(record.as_bytes()))
                .unwrap();
        }
        let refusals = Refusals::new(true, None);
        refusals.begin(&batch, 7);
        for reason in ["why", "another reason"] {
            assert!(refusals.leave_out(8, reason).is_ok());
        }
        for number in [6, 9] {
            let error = refusals.leave_out(number, "why").unwrap_err();
            let says =
                format!("record {number} is none of the write, which has 2 records from 7 on");
            assert_eq!(error.to_string(), says);
        }
        assert_eq!(refusals.take(), [(8, "why".to_owned())]);
        assert!(refusals.take().is_empty());
        let fails = Refusals::default();
        fails.begin(&batch, 7);
        assert!(fails.leave_out(7, "why").is_err());
    }

    #[test]
    fn parts_end_where_halves_do() {
        let mut parts = Parts::default();
        assert_eq!(parts.end(), None);
        assert_eq!(parts.halve(10, 17), 3);
        assert_eq!(parts.end(), Some(13));
        assert_eq!(parts.halve(10, 13), 1);
        assert_eq!(parts.end(), Some(11));
        for (next, end) in [(11, Some(13)), (12, Some(13)), (13, Some(17)), (17, None)] {
            parts.advance(next);
            assert_eq!(parts.end(), end);
        }
    }
}
