//! Evaluates the conditions, and remembers since when each holds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use super::{Condition, ConditionSnapshot, PARTS, Severity, all, sort};
use crate::snapshot::Snapshot;

/// The time over which growth is measured.
const WINDOW_MS: u64 = 60_000;
/// The time between two samples that are kept.
const SAMPLE_MS: u64 = 5_000;
/// The least time over which a movement is a trend.
const TREND_MS: u64 = 30_000;
/// The number of subjects of a condition that are reported; the worst ones.
const SUBJECTS_MAX: usize = 20;

/// Evaluates the list for one process, in each of its snapshots.
pub struct Evaluator {
    started: Instant,
    held: BTreeMap<(usize, String), Held>,
    samples: HashMap<(usize, u8, String), Samples>,
}

/// A condition that holds.
struct Held {
    since_ms: u64,
    found_ms: u64,
    finding: Finding,
}

struct Finding {
    kind: &'static str,
    severity: Severity,
    words: String,
}

/// A value over the last minute, with the times of a clock that never jumps.
#[derive(Default)]
struct Samples(VecDeque<(u64, f64)>);

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
    index: usize,
    now_ms: u64,
    samples: &'a mut HashMap<(usize, u8, String), Samples>,
    found: Vec<(String, Finding)>,
}

impl Default for Evaluator {
    fn default() -> Self {
        Evaluator {
            started: crate::now(),
            held: BTreeMap::new(),
            samples: HashMap::new(),
        }
    }
}

impl Evaluator {
    /// Adds to a snapshot what needs attention now. Growth is that since the snapshots before.
    pub fn complete(&mut self, snapshot: &mut Snapshot) {
        let now_ms = self.started.elapsed().as_millis() as u64;
        snapshot.conditions = self.evaluate(snapshot, now_ms);
    }

    /// Returns the conditions that hold, the worst first. `now_ms` is the time of a clock that never jumps.
    pub(super) fn evaluate(&mut self, snapshot: &Snapshot, now_ms: u64) -> Vec<ConditionSnapshot> {
        let mut shown = Vec::new();
        let parts = PARTS.into_iter();
        let conditions = parts.flat_map(|(part, list)| list.iter().map(move |one| (part, one)));
        for (index, (part, condition)) in conditions.enumerate() {
            let mut finder = Finder {
                index,
                now_ms,
                samples: &mut self.samples,
                found: Vec::new(),
            };
            (condition.look)(snapshot, &mut finder);
            for (subject, finding) in finder.found {
                let held = self.held.entry((index, subject)).or_insert(Held {
                    since_ms: now_ms,
                    found_ms: now_ms,
                    finding: Finding {
                        words: String::new(),
                        ..finding
                    },
                });
                held.found_ms = now_ms;
                held.finding = finding;
            }
            let first = (index, String::new());
            let of_this = self.held.range(first..(index + 1, String::new()));
            let time_ms = snapshot.time_ms;
            shown.extend(reported((part, condition), of_this, (time_ms, now_ms)));
        }
        let lasts: Vec<u64> = all().map(|condition| condition.lasts * 1000).collect();
        self.held
            .retain(|(index, _), held| now_ms - held.found_ms < lasts[*index].max(1));
        let is_known = |samples: &Samples| samples.0.back().is_some_and(|one| one.0 == now_ms);
        self.samples.retain(|_, samples| is_known(samples));
        sort(&mut shown);
        shown
    }
}

/// The worst of those that hold of one condition.
fn reported<'a>(
    (part, condition): (&'static str, &'static Condition),
    held: impl Iterator<Item = (&'a (usize, String), &'a Held)>,
    (time_ms, now_ms): (u64, u64),
) -> Vec<ConditionSnapshot> {
    let holds = |held: &Held| now_ms - held.found_ms < (condition.lasts * 1000).max(1);
    let held = held.filter(|(_, held)| holds(held));
    let mut shown: Vec<_> = held
        .map(|((_, subject), held)| ConditionSnapshot {
            name: Cow::Borrowed(condition.name),
            severity: held.finding.severity,
            part: Cow::Borrowed(part),
            kind: Cow::Borrowed(held.finding.kind),
            subject: subject.clone(),
            words: held.finding.words.clone(),
            action: Cow::Borrowed(condition.action),
            since_ms: time_ms.saturating_sub(now_ms - held.since_ms),
            process: None,
        })
        .collect();
    sort(&mut shown);
    let more = shown.len().saturating_sub(SUBJECTS_MAX);
    shown.truncate(SUBJECTS_MAX);
    if let (Some(last), true) = (shown.last_mut(), more > 0) {
        last.words = format!("{} ({more} more are like this.)", last.words);
    }
    shown
}

impl Finder<'_> {
    /// The condition holds of `subject`.
    pub(super) fn found(
        &mut self,
        (kind, subject): (&'static str, &str),
        severity: Severity,
        words: String,
    ) {
        let finding = Finding {
            kind,
            severity,
            words,
        };
        self.found.push((subject.to_owned(), finding));
    }

    /// By how much a counter has grown, which began at 0. After a smaller value than before it begins anew: the sum of several
    /// falls when one of them is gone. `slot` tells the counters of a subject apart.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{SourceSnapshot, State, StepSnapshot};

    fn snapshot(seconds: u64, step: StepSnapshot) -> Snapshot {
        Snapshot {
            flow: "f".to_owned(),
            state: State::Running,
            time_ms: 1_000_000 + seconds * 1000,
            steps: vec![step],
            ..Snapshot::default()
        }
    }

    fn step(items_in: u64, skipped: u64) -> StepSnapshot {
        StepSnapshot {
            name: "book".to_owned(),
            items_in,
            skipped,
            ..StepSnapshot::default()
        }
    }

    #[test]
    fn an_event_holds_for_five_minutes_and_its_severity_is_its_share() {
        let mut evaluator = Evaluator::default();
        let mut at = |seconds: u64, items_in, skipped| {
            let snapshot = snapshot(seconds, step(items_in, skipped));
            let held = evaluator.evaluate(&snapshot, seconds * 1000);
            let name = |one: &ConditionSnapshot| (one.severity, one.since_ms / 1000 - 1000);
            held.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(at(0, 100, 0), []);
        assert_eq!(at(1, 200, 1), [(Severity::Warning, 1)]);
        assert_eq!(at(2, 300, 90), [(Severity::Critical, 1)]);
        assert_eq!(at(301, 900_000, 90), [(Severity::Critical, 1)]);
        assert_eq!(at(302, 900_100, 90), []);
    }

    #[test]
    fn a_lag_is_reported_while_it_grows() {
        let mut evaluator = Evaluator::default();
        let mut at = |seconds: u64, lag: f64| {
            let mut snapshot = snapshot(seconds, StepSnapshot::default());
            snapshot.sources = vec![SourceSnapshot {
                name: "in".to_owned(),
                lag_seconds: Some(lag),
                ..SourceSnapshot::default()
            }];
            let held = evaluator.evaluate(&snapshot, seconds * 1000);
            held.iter()
                .any(|one| one.name == "MillstreamSourceLagGrows")
        };
        for seconds in 0..30 {
            assert!(!at(seconds, 100.0 + seconds as f64), "not known yet");
        }
        assert!(at(30, 130.0));
        // It falls: over a minute, not from one look to the next.
        assert!(at(31, 129.0));
        assert!(!at(90, 100.0));
    }

    #[test]
    fn of_many_subjects_some_are_reported() {
        let mut evaluator = Evaluator::default();
        let mut all = snapshot(0, StepSnapshot::default());
        all.steps = (0..50)
            .map(|number| StepSnapshot {
                name: format!("step {number}"),
                ..step(100, 50)
            })
            .collect();
        let held = evaluator.evaluate(&all, 0);
        assert_eq!(held.len(), SUBJECTS_MAX);
        assert!(
            held[SUBJECTS_MAX - 1]
                .words
                .ends_with("(30 more are like this.)")
        );
    }
}
