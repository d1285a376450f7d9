//! Evaluates the conditions, and remembers since when each holds.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use super::condition::{Condition, Finder, Finding, Samples};
use super::list::PARTS;
use crate::sections::service_figures::ServiceSnapshot;
use crate::snapshot::{
    Bottleneck, ConditionSnapshot, Mark, Snapshot, StepSnapshot, sort_conditions,
};

/// The number of subjects of a condition that are reported; the worst ones.
const SUBJECTS_MAX: usize = 20;

/// Conditions that follow from another one of the same thing, which alone is reported while it holds. None of them makes
/// the process unready.
const EFFECTS: [(&str, &[&str]); 3] = [
    (
        "MillstreamWorkerStuck",
        &[
            "MillstreamStepSaturated",
            "MillstreamSourceLagGrows",
            "MillstreamWatermarkHeldBack",
        ],
    ),
    ("MillstreamStepSaturated", &["MillstreamSourceLagGrows"]),
    (
        "MillstreamServiceDown",
        &["MillstreamServiceLags", "MillstreamServiceRestarts"],
    ),
];

/// The conditions of a flow that has failed.
const OF_DOWN: [&str; 2] = ["MillstreamFlowDown", "MillstreamFlowRestarts"];

/// Evaluates the list for one process, in each of its snapshots.
pub struct Evaluator {
    started: Instant,
    /// By the number of the condition, and the kind and name of what it is of.
    held: BTreeMap<(usize, &'static str, String), Held>,
    samples: HashMap<(usize, u8, String), Samples>,
}

/// A condition that holds.
struct Held {
    /// By the time of day.
    since_ms: u64,
    /// When it was found last, by a clock that never jumps.
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

impl Held {
    /// Whether it still holds, of a condition of the list.
    fn holds(&self, condition: &Condition, now_ms: u64) -> bool {
        now_ms - self.found_ms < (condition.lasts * 1000).max(1)
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
        let conditions = PARTS
            .iter()
            .flat_map(|(part, list)| list.iter().map(move |one| (*part, one)));
        let mut shown = Vec::new();
        for (index, (part, condition)) in conditions.enumerate() {
            // Of a flow that has failed the other figures are its last ones.
            let is_of_now =
                part != "flow" || snapshot.down.is_none() || OF_DOWN.contains(&condition.name);
            if is_of_now {
                self.look(index, condition, snapshot, now_ms);
            } else {
                self.held.retain(|(of, ..), _| *of != index);
            }
            let of_this = self.held.range((index, "", String::new())..);
            let held = of_this.take_while(|((of, ..), _)| *of == index);
            let held = held.map(|((_, kind, subject), held)| ConditionSnapshot {
                name: Cow::Borrowed(condition.name),
                severity: held.finding.severity,
                part: Cow::Borrowed(part),
                kind: Cow::Borrowed(kind),
                subject: subject.clone(),
                words: held.finding.words.clone(),
                action: Cow::Borrowed(condition.action),
                since_ms: held.since_ms,
                process: None,
            });
            shown.extend(worst(held.collect()));
        }
        self.samples.retain(|_, samples| samples.is_of(now_ms));
        let causes: Vec<_> = shown.iter().filter(|one| is_cause(one)).cloned().collect();
        shown.retain(|one| !causes.iter().any(|cause| follows(snapshot, cause, one)));
        sort_conditions(&mut shown);
        shown
    }

    /// Notes of what a condition holds now.
    fn look(&mut self, index: usize, condition: &Condition, snapshot: &Snapshot, now_ms: u64) {
        let mut finder = Finder {
            index,
            now_ms,
            samples: &mut self.samples,
            found: Vec::new(),
        };
        (condition.look)(snapshot, &mut finder);
        for (kind, subject, finding) in finder.found {
            let key = (index, kind, subject);
            let known = self.held.get(&key);
            let since_ms = known.map_or(snapshot.time_ms, |held| held.since_ms);
            let held = Held {
                since_ms,
                found_ms: now_ms,
                finding,
            };
            self.held.insert(key, held);
        }
        self.held
            .retain(|(of, ..), held| *of != index || held.holds(condition, now_ms));
    }
}

fn is_cause(one: &ConditionSnapshot) -> bool {
    EFFECTS.iter().any(|(cause, _)| *cause == one.name)
}

/// Whether a condition follows from another one: that is of the same thing, of the step for which the source waits, or of
/// the process that runs the service.
fn follows(snapshot: &Snapshot, cause: &ConditionSnapshot, effect: &ConditionSnapshot) -> bool {
    let is_listed = EFFECTS
        .iter()
        .any(|(name, effects)| *name == cause.name && effects.contains(&&*effect.name));
    let (of, subject) = (&cause.subject, &effect.subject);
    let limits = |found: &Bottleneck| found.step == *of;
    let waits = |step: &StepSnapshot| step.name == *subject && step.mark == Mark::Waiting;
    let runs = |one: &ServiceSnapshot| one.name == *subject && one.process.as_ref() == Some(of);
    let mut services = snapshot.services.iter().flat_map(|all| &all.services);
    is_listed
        && (of == subject
            || snapshot.bottleneck.as_ref().is_some_and(limits) && snapshot.steps.iter().any(waits)
            || services.any(runs))
}

/// The worst of those that hold of one condition, and how many more there are.
fn worst(mut held: Vec<ConditionSnapshot>) -> Vec<ConditionSnapshot> {
    sort_conditions(&mut held);
    let more = held.len().saturating_sub(SUBJECTS_MAX);
    held.truncate(SUBJECTS_MAX);
    if let (Some(last), true) = (held.last_mut(), more > 0) {
        last.words = format!("{} ({more} more are like this.)", last.words);
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::list;
    use crate::snapshot::{Severity, SourceSnapshot, State, WorkerSnapshot};

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
    fn one_cause_is_one_condition() {
        for (cause, effects) in EFFECTS {
            let of = |name: &str| list::all().find(|one| one.name == name);
            assert!(of(cause).is_some(), "{cause}");
            for effect in effects {
                assert!(of(effect).is_some_and(|one| !one.is_obstacle), "{effect}");
            }
        }
        let mut evaluator = Evaluator::default();
        let named = |name: &str, mark| StepSnapshot {
            name: name.to_owned(),
            mark,
            ..StepSnapshot::default()
        };
        let mut at = |seconds: u64, inside: Option<f64>| {
            let mut all = snapshot(seconds, step(100, 0));
            if inside.is_some() {
                all.steps = vec![
                    named("before", Mark::Waiting),
                    named("book", Mark::Cause),
                    named("beside", Mark::None),
                ];
                all.bottleneck = Some(Bottleneck {
                    step: "book".to_owned(),
                    ..Bottleneck::default()
                });
            }
            let lagging = |name: &str| SourceSnapshot {
                name: name.to_owned(),
                lag_seconds: Some(100.0 + seconds as f64),
                ..SourceSnapshot::default()
            };
            all.sources = ["before", "beside"].map(lagging).into();
            all.workers = vec![WorkerSnapshot {
                step: inside.map(|_| "book".to_owned()),
                inside_seconds: inside,
                ..WorkerSnapshot::default()
            }];
            let held = evaluator.evaluate(&all, seconds * 1000);
            let of = |one: ConditionSnapshot| format!("{} of {}", one.name, one.subject);
            held.into_iter().map(of).collect::<Vec<_>>()
        };
        assert!(at(0, None).is_empty());
        let lags = |name: &str| format!("MillstreamSourceLagGrows of {name}");
        // A source that does not wait for the step lags for another reason.
        let stuck = "MillstreamWorkerStuck of book".to_owned();
        assert_eq!(at(40, Some(40.0)), [stuck, lags("beside")]);
        assert_eq!(at(41, None), [lags("before"), lags("beside")]);
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
