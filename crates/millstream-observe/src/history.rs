//! The last 15 minutes of a flow, one moment a second.
//!
//! Invariant: at most [`MOMENTS_MAX`] moments of at most [`STEPS_MAX`] steps, so that memory is bounded.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::snapshot::Snapshot;

/// The number of moments: 15 minutes.
const MOMENTS_MAX: usize = 900;
/// The number of steps, sources, sinks and workers each that have a history; further ones have none.
const STEPS_MAX: usize = 512;

/// The names of the values of a step.
const STEP: [&str; 6] = ["in_rate", "out_rate", "busy", "p50", "p99", "p999"];
const SOURCE: [&str; 4] = [
    "lag_records",
    "lag_bytes",
    "lag_seconds",
    "watermark_lag_seconds",
];
const SINK: [&str; 3] = ["waiting_records", "waiting_bytes", "waiting_seconds"];
const WORKER: [&str; 2] = ["busy", "in_flight_items"];
const EPOCHS: [&str; 5] = ["waiting", "saving", "syncing", "bytes", "age"];

/// The values of one moment. What is not known is not a number.
struct Entry {
    time_ms: u64,
    steps: Vec<[f32; 6]>,
    sources: Vec<[f32; 4]>,
    sinks: Vec<[f32; 3]>,
    workers: Vec<[f32; 2]>,
    epochs: [f32; 5],
}

/// The last 15 minutes of one run.
#[derive(Default)]
pub(crate) struct History(VecDeque<Entry>);

impl History {
    /// Adds a moment, and drops the oldest if there are too many.
    pub(crate) fn add(&mut self, snapshot: &Snapshot) {
        if self.0.len() == MOMENTS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(entry(snapshot));
    }

    /// Returns the values of one thing: `{times_ms: [...], series: {NAME: [...]}}`, with null for what is not known.
    /// `None` if there is no such thing.
    pub(crate) fn of(&self, newest: &Snapshot, of: &str, name: &str) -> Option<Value> {
        match of {
            "step" => {
                let index = newest.steps.iter().position(|step| step.name == name)?;
                Some(self.series(&STEP, |entry| entry.steps.get(index)))
            }
            "source" => {
                let index = newest
                    .sources
                    .iter()
                    .position(|source| source.name == name)?;
                Some(self.series(&SOURCE, |entry| entry.sources.get(index)))
            }
            "sink" => {
                let index = newest.sinks.iter().position(|sink| sink.name == name)?;
                Some(self.series(&SINK, |entry| entry.sinks.get(index)))
            }
            "worker" => {
                let index: usize = name.parse().ok()?;
                newest.workers.get(index)?;
                Some(self.series(&WORKER, |entry| entry.workers.get(index)))
            }
            "epochs" => {
                newest.epochs?;
                Some(self.series(&EPOCHS, |entry| Some(&entry.epochs)))
            }
            _ => None,
        }
    }

    fn series<'a, const N: usize>(
        &'a self,
        names: &[&str; N],
        values: impl Fn(&'a Entry) -> Option<&'a [f32; N]>,
    ) -> Value {
        let times: Vec<u64> = self.0.iter().map(|entry| entry.time_ms).collect();
        let mut series = serde_json::Map::new();
        for (index, name) in names.iter().enumerate() {
            let value = |entry: &'a Entry| values(entry).map_or(f32::NAN, |all| all[index]);
            // JSON has no number that is none: it becomes null.
            let all: Vec<f32> = self.0.iter().map(value).collect();
            series.insert((*name).to_owned(), json!(all));
        }
        json!({"times_ms": times, "series": series})
    }
}

fn entry(snapshot: &Snapshot) -> Entry {
    let number = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
    let count = |value: Option<u64>| value.map_or(f32::NAN, |value| value as f32);
    let epochs = snapshot.epochs.map_or([f32::NAN; 5], |epochs| {
        let [waiting, saving, syncing] = epochs.last_seconds;
        [
            waiting,
            saving,
            syncing,
            epochs.last_bytes,
            epochs.age_seconds,
        ]
        .map(|value| value as f32)
    });
    let steps = snapshot.steps.iter().take(STEPS_MAX).map(|step| {
        let age = |of: fn(&crate::ages::Ages) -> f64| number(step.ages.as_ref().map(of));
        [
            step.in_rate.map_or(f32::NAN, |rate| rate as f32),
            step.out_rate.map_or(f32::NAN, |rate| rate as f32),
            step.busy as f32,
            age(|ages| ages.p50),
            age(|ages| ages.p99),
            age(|ages| ages.p999),
        ]
    });
    let sources = snapshot.sources.iter().take(STEPS_MAX).map(|source| {
        [
            count(source.lag_records),
            count(source.lag_bytes),
            number(source.lag_seconds),
            number(source.watermark_lag_seconds),
        ]
    });
    let sinks = snapshot.sinks.iter().take(STEPS_MAX).map(|sink| {
        [
            sink.waiting_records as f32,
            sink.waiting_bytes as f32,
            sink.waiting_seconds as f32,
        ]
    });
    let workers = snapshot
        .workers
        .iter()
        .take(STEPS_MAX)
        .map(|worker| [worker.busy as f32, worker.in_flight_items as f32]);
    Entry {
        time_ms: snapshot.time_ms,
        steps: steps.collect(),
        sources: sources.collect(),
        sinks: sinks.collect(),
        workers: workers.collect(),
        epochs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{StepSnapshot, WorkerSnapshot};

    fn snapshot(time_ms: u64) -> Snapshot {
        Snapshot {
            time_ms,
            steps: vec![StepSnapshot {
                name: "a".to_owned(),
                in_rate: Some(time_ms as f64),
                ..StepSnapshot::default()
            }],
            workers: vec![WorkerSnapshot::default()],
            ..Snapshot::default()
        }
    }

    #[test]
    fn the_oldest_moment_is_dropped_and_what_is_not_known_is_null() {
        let mut history = History::default();
        for time in 0..1000 {
            history.add(&snapshot(time));
        }
        let step = history.of(&snapshot(0), "step", "a").unwrap();
        let times = step["times_ms"].as_array().unwrap();
        assert_eq!((times.len(), &times[0]), (900, &json!(100)));
        assert_eq!(step["series"]["in_rate"][0], json!(100.0));
        assert_eq!(step["series"]["p99"][0], Value::Null);
    }

    #[test]
    fn only_what_there_is_has_a_history() {
        let history = History::default();
        let newest = snapshot(0);
        assert!(history.of(&newest, "worker", "0").is_some());
        for (of, name) in [
            ("step", "b"),
            ("worker", "1"),
            ("worker", "x"),
            ("epochs", ""),
            ("x", "a"),
        ] {
            assert_eq!(history.of(&newest, of, name), None, "{of} {name}");
        }
    }
}
