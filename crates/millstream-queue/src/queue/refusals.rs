//! What a queue has refused: counted by reason, and logged when it begins and when it is over.

use std::fmt::Display;

use tracing::{info, warn};

use crate::moment::Moment;

/// The time without a refusal after which an item that is taken is the end of the refusals.
const QUIET_US: u64 = 10_000_000;
/// The time after the last set that failed for which the failure is reported: nothing may be set meanwhile.
const FAULT_US: u64 = 60_000_000;

/// Why a queue did not take an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is full, and the item is in no queue.
    Full,
    /// It is full, and got no copy of an item of its parent.
    Skipped,
    /// The item is longer than its limits.
    TooLarge,
    /// It remembers as many ids as it may.
    TooManyIds,
    /// It keeps no items and has no fan-out queue.
    NoFanout,
    /// Its log cannot be written.
    Disk,
}

/// The number of items that a queue has refused since the server started, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct RefusedItems {
    /// The queue was full.
    pub full: u64,
    /// Larger than an item may be.
    pub too_large: u64,
    /// Their ids were new, and the queue remembered as many as it may.
    pub too_many_ids: u64,
    /// The queue keeps no items and had no fan-out queue.
    pub no_fanout: u64,
    /// The disk was full, or failed.
    pub disk: u64,
}

impl RefusedItems {
    /// All together.
    pub fn total(&self) -> u64 {
        self.full + self.too_large + self.too_many_ids + self.no_fanout + self.disk
    }

    pub(super) fn add(&mut self, why: Refused) {
        match why {
            Refused::Full => self.full += 1,
            Refused::TooLarge => self.too_large += 1,
            Refused::TooManyIds => self.too_many_ids += 1,
            Refused::NoFanout => self.no_fanout += 1,
            Refused::Disk => self.disk += 1,
            Refused::Skipped => {}
        }
    }
}

/// Refusals that are not over.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    items: u64,
    last_us: u64,
    /// The reasons that the log has.
    logged: Vec<Refused>,
    /// Why the disk took no item, and until when that is reported.
    fault: Option<(String, u64)>,
}

impl Refusals {
    /// Notes an item that was refused; `words` say by which queue and why.
    pub(super) fn add(&mut self, why: Refused, words: &dyn Display, now: Moment) {
        self.items += 1;
        self.last_us = now.steady_us;
        if why == Refused::Disk {
            let until_us = now.steady_us.saturating_add(FAULT_US);
            let until_us = until_us.max(self.fault.as_ref().map_or(0, |fault| fault.1));
            self.fault = Some((words.to_string(), until_us));
        }
        if !self.logged.contains(&why) {
            self.logged.push(why);
            warn!("items are refused: {words}");
        }
    }

    /// Notes that the disk takes no more items of the queue `name` before a restart.
    pub(super) fn add_failed_sync(&mut self, name: &str) {
        let words = format!(
            "queue \"{name}\": a sync has failed: it takes no items until the server is restarted"
        );
        self.fault = Some((words, u64::MAX));
    }

    /// Notes that the queue `name` took an item. Returns whether the refusals are over.
    pub(super) fn end(&mut self, name: &str, now: Moment) -> bool {
        self.fault = None;
        let is_over = now.steady_us.saturating_sub(self.last_us) >= QUIET_US;
        if is_over && self.items > 0 {
            let items = self.items;
            info!("queue \"{name}\" takes items again; it had refused {items}");
        }
        is_over
    }

    /// Why the disk took no item, unless that is long ago.
    #[cfg(feature = "server")]
    pub(super) fn fault(&self, now: Moment) -> Option<&str> {
        let (words, until_us) = self.fault.as_ref()?;
        (now.steady_us < *until_us).then_some(words)
    }
}
