//! Records that the destination refuses: a batch is halved until they are alone, so that they hold up no other record.
//!
//! Invariant: the ends of the parts that wait are in descending order, the next part last. A part is never read beyond its end.

/// The parts of a batch of which some record is refused.
#[derive(Debug, Default)]
pub(super) struct Parts {
    ends: Vec<u64>,
    /// The next record is alone in its batch, was refused, and is skipped.
    pub(super) skips_next: bool,
}

impl Parts {
    /// The records from `first` to below `end` are refused: halves them. Returns the number of records of the first half.
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
