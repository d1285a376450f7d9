//! A condition of the list, and what it looks with.

use std::collections::{HashMap, VecDeque};

use crate::snapshot::{Severity, Snapshot};

/// The time over which growth is measured.
const WINDOW_MS: u64 = 60_000;
/// The time between two samples that are kept.
const SAMPLE_MS: u64 = 5_000;
/// The least time over which a movement is a trend.
const TREND_MS: u64 = 30_000;
/// The seconds for which an event, for instance a skipped item, needs attention.
pub(super) const EVENT_SECONDS: u64 = 300;

/// A condition of the list.
pub struct Condition {
    /// Its name, which is also that of its alert.
    pub name: &'static str,
    /// How bad it is, in words: `warning; critical from one item in ten`.
    pub severity: &'static str,
    /// How long it must hold before the alert fires, as Prometheus writes it.
    pub after: &'static str,
    /// What has happened, in one sentence.
    pub summary: &'static str,
    /// What to do.
    pub action: &'static str,
    /// How it ends.
    pub ends: &'static str,
    /// Whether the process is not ready while it holds.
    pub is_obstacle: bool,
    /// The seconds for which it holds after it was found last.
    pub(super) lasts: u64,
    pub(super) look: fn(&Snapshot, &mut Finder<'_>),
}

/// What was found.
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) words: String,
}

/// A value over the last minute, with the times of a clock that never jumps.
#[derive(Default)]
pub(super) struct Samples(VecDeque<(u64, f64)>);

/// By how much a counter has grown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    /// Since the last look.
    pub(super) now: u64,
    /// In the last minute.
    pub(super) minute: u64,
}

/// What a condition looks with.
pub(super) struct Finder<'a> {
    pub(super) index: usize,
    pub(super) now_ms: u64,
    pub(super) samples: &'a mut HashMap<(usize, u8, String), Samples>,
    /// By kind and name of what it is of.
    pub(super) found: Vec<(&'static str, String, Finding)>,
}

impl Samples {
    /// Whether there is a value of this moment.
    pub(super) fn is_of(&self, now_ms: u64) -> bool {
        self.0.back().is_some_and(|one| one.0 == now_ms)
    }
}

impl Finder<'_> {
    /// The condition holds of `subject`.
    pub(super) fn found(
        &mut self,
        (kind, subject): (&'static str, &str),
        severity: Severity,
        words: String,
    ) {
        let finding = Finding { severity, words };
        self.found.push((kind, subject.to_owned(), finding));
    }

    /// By how much a counter has grown, which began at 0. After a smaller value than before it begins anew: the sum of
    /// several falls when one of them is gone. `slot` tells the counters of a subject apart.
    pub(super) fn grown(&mut self, slot: u8, subject: &str, value: u64) -> Growth {
        let now_ms = self.now_ms;
        let Samples(kept) = self.samples(slot, subject);
        if kept.is_empty() {
            kept.push_back((now_ms, 0.0));
        }
        let value = value as f64;
        let last = kept.back().map_or(0.0, |last| last.1);
        let first = kept.front().map_or(0.0, |first| first.1);
        if last > value {
            kept.clear();
            kept.push_back((now_ms, value));
            return Growth::default();
        }
        self.keep(slot, subject, value);
        Growth {
            now: (value - last) as u64,
            minute: (value - first) as u64,
        }
    }

    /// By how much a value has changed in the last minute; `None` while it is known for less than half of one.
    pub(super) fn moved(&mut self, slot: u8, subject: &str, value: f64) -> Option<f64> {
        let now_ms = self.now_ms;
        let first = self.samples(slot, subject).0.front().copied();
        self.keep(slot, subject, value);
        let (at, before) = first?;
        (now_ms - at >= TREND_MS).then_some(value - before)
    }

    fn samples(&mut self, slot: u8, subject: &str) -> &mut Samples {
        let key = (self.index, slot, subject.to_owned());
        self.samples.entry(key).or_default()
    }

    fn keep(&mut self, slot: u8, subject: &str, value: f64) {
        let now_ms = self.now_ms;
        let Samples(kept) = self.samples(slot, subject);
        // The newest one replaces the one before it, unless that is old enough to stay.
        let count = kept.len();
        if count >= 2 && kept[count - 1].0 - kept[count - 2].0 < SAMPLE_MS {
            kept.pop_back();
        }
        kept.push_back((now_ms, value));
        while kept.len() >= 2 && now_ms - kept[1].0 >= WINDOW_MS {
            kept.pop_front();
        }
    }
}
