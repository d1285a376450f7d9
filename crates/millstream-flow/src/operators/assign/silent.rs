//! Partitions without an item, for which event time waits.
//!
//! A topic with more partitions than keys has some that stay empty. The times of their next items are not known, so
//! that without `idle` no window of any key closes. That is right, and it looks like a flow that does nothing: the log
//! names the partitions.

use std::collections::HashMap;

use crate::clock::now_ns;
use crate::metrics::progress::Progress;

/// A partition that has had no item for so long, while others of its source had some, is named.
const SILENT_NS: u64 = 60_000_000_000;
/// How often the partitions are looked at.
const LOOK_NS: u64 = 1_000_000_000;

/// The partitions of a source, on one worker, that have had no item yet.
#[derive(Default)]
pub(super) struct Silent {
    looks_at_ns: u64,
    /// Since when event time waits for each of them; `None` once that was reported.
    since_ns: HashMap<usize, Option<u64>>,
}

impl Silent {
    /// Warns of partitions of `source` that have held up event time for a minute, each once. `silent` has the numbers
    /// and names of those that have had no item and may have one.
    pub(super) fn report<'a>(
        &mut self,
        source: &str,
        silent: impl Iterator<Item = (usize, &'a str)>,
        progress: &Progress,
    ) {
        let now = now_ns();
        if now < self.looks_at_ns {
            return;
        }
        self.looks_at_ns = now + LOOK_NS;
        let silent: Vec<_> = silent.collect();
        // Before any partition of the source has an item, nothing waits.
        if silent.is_empty() || !progress.has_begun(source) {
            return;
        }
        for name in self.due(&silent, now) {
            tracing::warn!(
                source,
                "source \"{source}\": partition {name} has had no item for a minute, and event time waits for its first one: no window \
                 closes. With idle= of event_time (EventTime::idle) a partition without items does not hold it up"
            );
        }
    }

    /// Returns the names of the silent partitions for which event time has waited long enough.
    fn due<'a>(&mut self, silent: &[(usize, &'a str)], now_ns: u64) -> Vec<&'a str> {
        let mut due = Vec::new();
        for (number, name) in silent {
            let since = self.since_ns.entry(*number).or_insert(Some(now_ns));
            if since.is_some_and(|since| now_ns.saturating_sub(since) >= SILENT_NS) {
                *since = None;
                due.push(*name);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_without_an_item_is_named_once_after_a_minute() {
        let mut silent = Silent::default();
        let one = [(0, "t/0")];
        let both = [(0, "t/0"), (3, "t/3")];
        assert!(silent.due(&one, 5).is_empty());
        assert!(silent.due(&both, 4 + SILENT_NS).is_empty());
        assert_eq!(silent.due(&both, 5 + SILENT_NS), ["t/0"]);
        assert_eq!(silent.due(&both, 4 + 2 * SILENT_NS), ["t/3"]);
        assert!(silent.due(&both, 9 * SILENT_NS).is_empty());
    }
}
