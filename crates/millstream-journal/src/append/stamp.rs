//! The time of a record.
//!
//! Threads read the clock before they take the append lock, so a record may have an earlier time than the one before it
//! by as long as that takes. Then it gets the time of that record. A clock that shows more than a second less was
//! ahead, and has been put right: the record gets the time of the clock, or no record would have a right time until the
//! wrong one has come.

/// How much earlier than the last record a clock may be without having been set back, in ns.
const BEHIND_MAX_NS: u64 = 1_000_000_000;

/// The time of the next record, in ns since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stamp {
    /// What the clock has shown.
    Clock(u64),
    /// Stored as it is: a copy has the times of its original.
    Given(u64),
}

impl Stamp {
    /// The time that the record gets after a record of the time `last_ns`.
    #[inline(always)]
    pub fn after(self, last_ns: u64) -> u64 {
        match self {
            Stamp::Clock(now_ns) if last_ns.saturating_sub(now_ns) <= BEHIND_MAX_NS => {
                now_ns.max(last_ns)
            }
            Stamp::Clock(time_ns) | Stamp::Given(time_ns) => time_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_counts_unless_it_is_slightly_slow() {
        let last_ns = 5 * BEHIND_MAX_NS;
        for (now_ns, time_ns) in [
            (last_ns + 7, last_ns + 7),
            (last_ns, last_ns),
            (last_ns - 1, last_ns),
            (last_ns - BEHIND_MAX_NS, last_ns),
            (last_ns - BEHIND_MAX_NS - 1, last_ns - BEHIND_MAX_NS - 1),
            (0, 0),
            (u64::MAX, u64::MAX),
        ] {
            assert_eq!(Stamp::Clock(now_ns).after(last_ns), time_ns);
            assert_eq!(Stamp::Given(now_ns).after(last_ns), now_ns);
        }
    }
}
