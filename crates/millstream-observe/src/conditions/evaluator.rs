//! Evaluates the conditions, and remembers since when each holds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::condition::{Condition, Finder, Finding, Samples};
use super::list::{PARTS, all};
use crate::snapshot::{ConditionSnapshot, Snapshot, sort_conditions};

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
        self.samples.retain(|_, samples| samples.is_of(now_ms));
        sort_conditions(&mut shown);
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
    sort_conditions(&mut shown);
    let more = shown.len().saturating_sub(SUBJECTS_MAX);
    shown.truncate(SUBJECTS_MAX);
    if let (Some(last), true) = (shown.last_mut(), more > 0) {
        last.words = format!("{} ({more} more are like this.)", last.words);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Severity, SourceSnapshot, State, StepSnapshot};

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
