//! The last failures of a run, for a view of it: items that were skipped or passed on as dead letters, and the failure
//! that ended it.
//!
//! Invariant: at most [`KEPT_MAX`] of them, each of bounded length, and at most [`SECOND_MAX`] that are new in a
//! second. The counters of the steps count all.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use crate::clock::{Clock, WallClock};
use crate::error::{Cause, Failure, chain, shorten};
use crate::mutex::lock;

/// The number of failures that are kept.
pub(crate) const KEPT_MAX: usize = 50;
/// The number of failures that are taken in a second; further ones are only counted by their steps.
pub(crate) const SECOND_MAX: u32 = 10;
/// The characters of a traceback that are kept: its end, where the error is.
const TRACEBACK_CHARS: usize = 4000;
/// The characters of an error that are kept.
const ERROR_CHARS: usize = 1000;

/// Returns the traceback of an error, if it has one: the Python package knows those of its exceptions.
#[doc(hidden)] // For the other crates of Millstream.
pub type Traceback = Arc<dyn Fn(&Cause) -> Option<String> + Send + Sync>;

/// What became of an item on which a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Outcome {
    /// It was skipped.
    Skipped,
    /// It was passed on as a dead letter.
    DeadLetter,
    /// The flow has failed.
    Failed,
}

/// A failure, as text.
#[derive(Clone, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct FailureNote {
    /// The number of failures that were taken before it.
    pub number: u64,
    /// When it was, nanoseconds since 1970.
    pub time_ns: i64,
    /// What became of the item.
    pub outcome: Outcome,
    /// The name of the step.
    pub step: String,
    /// The key, shortened.
    pub key: Option<String>,
    /// The item, shortened.
    pub item: Option<String>,
    /// The error and its causes, shortened.
    pub error: String,
    /// The end of the traceback, if the error has one.
    pub traceback: Option<String>,
}

/// The notes so far, and how many came in the current second.
#[derive(Default)]
struct Notes {
    kept: VecDeque<FailureNote>,
    number: u64,
    second: i64,
    in_second: u32,
}

/// The last failures of a run that is watched.
pub(crate) struct Failures {
    traceback: Option<Traceback>,
    notes: Mutex<Notes>,
}

impl Failures {
    pub(crate) fn new(traceback: Option<Traceback>) -> Self {
        Failures {
            traceback,
            notes: Mutex::default(),
        }
    }

    /// Notes a failure of an item, unless there were too many in this second.
    pub(crate) fn note(&self, failure: &Failure, outcome: Outcome) {
        let time_ns = WallClock::default().time_ns();
        if outcome != Outcome::Failed && !self.begin(time_ns) {
            return;
        }
        // The lock is not held while the traceback is made: it may need the interpreter.
        let traceback = self.traceback.as_ref();
        let traceback = traceback.and_then(|traceback| traceback(&failure.cause));
        self.add(FailureNote {
            number: 0,
            time_ns,
            outcome,
            step: failure.step.clone(),
            key: failure.key.as_deref().map(shorten),
            item: failure.item.as_deref().map(shorten),
            error: first(&chain(&*failure.cause).to_string(), ERROR_CHARS),
            traceback: traceback.map(|text| last(&text, TRACEBACK_CHARS)),
        });
    }

    /// Notes a failure that no step caused.
    pub(crate) fn note_other(&self, error: &str) {
        self.add(FailureNote {
            number: 0,
            time_ns: WallClock::default().time_ns(),
            outcome: Outcome::Failed,
            step: String::new(),
            key: None,
            item: None,
            error: first(error, ERROR_CHARS),
            traceback: None,
        });
    }

    /// Returns the failures that are kept, the oldest first.
    pub(crate) fn kept(&self) -> Vec<FailureNote> {
        lock(&self.notes).kept.iter().cloned().collect()
    }

    /// Whether one more failure is taken in this second.
    fn begin(&self, time_ns: i64) -> bool {
        let mut notes = lock(&self.notes);
        let second = time_ns / 1_000_000_000;
        if notes.second != second {
            (notes.second, notes.in_second) = (second, 0);
        }
        notes.in_second += 1;
        notes.in_second <= SECOND_MAX
    }

    fn add(&self, note: FailureNote) {
        let mut notes = lock(&self.notes);
        if notes.kept.len() == KEPT_MAX {
            notes.kept.pop_front();
        }
        let number = notes.number;
        notes.number += 1;
        notes.kept.push_back(FailureNote { number, ..note });
    }
}

/// The first characters of a text.
fn first(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}

/// The last characters of a text.
fn last(text: &str, limit: usize) -> String {
    let skipped = text.chars().count().saturating_sub(limit);
    match text.char_indices().nth(skipped) {
        Some((at, _)) if skipped > 0 => format!("...{}", &text[at..]),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(item: &str) -> Failure {
        Failure {
            item: Some(item.to_owned()),
            ..Failure::new("parse", "bad")
        }
    }

    #[test]
    fn a_flood_is_bounded_and_the_failure_of_the_flow_is_always_kept() {
        let failures = Failures::new(Some(Arc::new(|_| Some("é".repeat(9000)))));
        for _ in 0..1000 {
            failures.note(&failure(&"x".repeat(9000)), Outcome::Skipped);
        }
        failures.note(&failure("the last"), Outcome::Failed);
        let kept = failures.kept();
        assert!(kept.len() <= KEPT_MAX && kept.len() > SECOND_MAX as usize);
        let ended = kept.last().unwrap();
        assert_eq!(
            (ended.outcome, ended.item.as_deref()),
            (Outcome::Failed, Some("the last"))
        );
        for note in &kept {
            assert!(note.item.as_ref().unwrap().len() < 300);
            let traceback = note.traceback.as_ref().unwrap();
            assert_eq!(traceback.chars().count(), TRACEBACK_CHARS + 3);
        }
        let numbers: Vec<u64> = kept.iter().map(|note| note.number).collect();
        assert!(numbers.is_sorted());
    }

    #[test]
    fn the_oldest_is_dropped() {
        let failures = Failures::new(None);
        for number in 0..KEPT_MAX + 3 {
            failures.note_other(&number.to_string());
        }
        let kept = failures.kept();
        assert_eq!((kept.len(), kept[0].error.as_str()), (KEPT_MAX, "3"));
    }
}
