//! Partitions that a source finds during a run are read once, on any number of workers, also after crashes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::clock::now_ns;
use millstream_flow::error::Cause;
use millstream_flow::metrics::{Lag, LagGauge};
use millstream_flow::poller::Io;
use millstream_flow::source::{
    Beginning, Events, Growing, Next, Partition, Position, Recording, Resumable, Source,
};
use millstream_flow::testing::Collected;
use millstream_flow::{EventTime, Flow, Options, Recovery, SourceExt, codec, files};

use crate::recovery::{crash_everywhere, lines, run};
use crate::support::finish;

const PARTITIONS: usize = 5;
const ITEMS: i64 = 8;

/// A topic to which a partition is added when half of the one before has been read.
#[derive(Default)]
struct Topic {
    /// The number of partitions that there are.
    made: AtomicUsize,
    /// The number of partitions at the start of the run.
    first: Mutex<Option<usize>>,
    /// The number of partitions that this run has opened.
    opened: AtomicUsize,
}

struct Grows(Arc<Topic>);

struct Reading {
    topic: Arc<Topic>,
    partition: usize,
    next: i64,
    lag: LagGauge,
}

fn grows() -> Grows {
    let topic = Topic::default();
    topic.made.store(1, Ordering::SeqCst);
    Grows(Arc::new(topic))
}

fn expected() -> Vec<i64> {
    let all = 0..PARTITIONS as i64;
    all.flat_map(|partition| (0..ITEMS).map(move |item| partition * 100 + item))
        .collect()
}

impl Source<Vec<i64>> for Grows {
    fn describe(&self) -> String {
        "a topic that grows".to_owned()
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        let mut first = self.0.first.lock().unwrap_or_else(PoisonError::into_inner);
        let first = first.get_or_insert_with(|| self.0.made.load(Ordering::SeqCst));
        Ok((0..*first).map(|number| format!("p{number}")).collect())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Vec<i64>>>, Cause> {
        self.0.opened.fetch_max(partition + 1, Ordering::SeqCst);
        Ok(Box::new(Reading {
            topic: Arc::clone(&self.0),
            partition,
            next: resume.map_or(Ok(0), Position::require_number)? as i64,
            lag: io.lag_gauge(),
        }))
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
    fn growing(&self) -> Option<&dyn Growing> {
        Some(self)
    }
}

impl Resumable for Grows {
    fn begin(&self, _: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        *self.0.first.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.opened.store(0, Ordering::SeqCst);
        Ok(None)
    }
}

impl Growing for Grows {
    fn found(&self, known: usize) -> Result<Vec<String>, Cause> {
        let made = self.0.made.load(Ordering::SeqCst);
        Ok((known..made).map(|number| format!("p{number}")).collect())
    }
}

impl Partition<Vec<i64>> for Reading {
    fn next_batch(&mut self, batch: &mut Vec<i64>, _: &mut Events<'_>) -> Result<Next, Cause> {
        if self.next == ITEMS / 2 {
            let made = (self.partition + 2).min(PARTITIONS);
            self.topic.made.fetch_max(made, Ordering::SeqCst);
        }
        if self.next == ITEMS {
            let waits_for = (self.partition + 2).min(PARTITIONS);
            return Ok(if self.topic.opened.load(Ordering::SeqCst) >= waits_for {
                Next::End
            } else {
                Next::Idle
            });
        }
        batch.push(self.partition as i64 * 100 + self.next);
        self.next += 1;
        self.lag.set(Lag {
            records: Some((ITEMS - self.next) as u64),
            bytes: Some(8 * (ITEMS - self.next) as u64),
            age: Some(Duration::from_secs(self.partition as u64)),
            ..Lag::default()
        });
        Ok(Next::Batch)
    }
    fn next_awake(&self) -> Option<u64> {
        Some(now_ns() + 1_000_000)
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(Position::from(self.next as u64))
    }
}

#[test]
fn partitions_that_are_found_are_read_without_a_state_directory() {
    for workers in 1..=3 {
        let flow = Flow::new("grows");
        let out = Collected::new();
        // An adapter passes the ability on.
        flow.source("in", grows().batch_size(3))
            .sink("out", out.sink());
        let running = flow.start(Options::workers(workers)).unwrap();
        let control = running.control();
        let mut items: Vec<i64> = Vec::new();
        while items.len() < expected().len() {
            items.extend(out.take());
            std::thread::yield_now();
        }
        // Without epochs a source that may grow ends by a stop.
        control.stop();
        let report = finish(running).unwrap();
        items.sort_unstable();
        assert_eq!(items, expected(), "{workers} workers");
        let names: Vec<_> = report.lags.iter().map(|lag| &*lag.partition).collect();
        assert_eq!(names, ["p0", "p1", "p2", "p3", "p4"]);
    }
}

#[test]
fn partitions_that_are_found_are_read_once_over_crashes_and_numbers_of_workers() {
    for commits in [1, 2, 5] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let state = folder.path().join("state");
        let flow = Flow::new("grows");
        let items = flow.source("in", grows());
        items
            .map(|item: i64| item)
            .sink("out", codec::encode(files::write(&out), codec::display));
        let mut workers = 0;
        crash_everywhere(&flow, &state, commits, || {
            workers = workers % 3 + 1;
            workers
        });
        let mut items: Vec<i64> = lines(&out)
            .iter()
            .map(|line| line.parse().unwrap())
            .collect();
        items.sort_unstable();
        assert_eq!(items, expected(), "crashed after {commits}");
    }
}

#[test]
fn event_time_has_the_partitions_that_are_found() {
    for workers in 1..=2 {
        let folder = tempfile::tempdir().unwrap();
        let flow = Flow::new("grows");
        let out = Collected::new();
        let items = flow.source("in", grows());
        // After an exchange the watermark of all partitions decides when items are emitted.
        items
            .event_time(|item| *item, EventTime::default())
            .key_by(|item| item.value % 2)
            .values()
            .map(|item| item.time)
            .sink("out", out.sink());
        let recovery = Recovery::new(folder.path()).epoch(Duration::from_millis(1));
        run(&flow, workers, recovery).unwrap();
        let mut items = out.take();
        items.sort_unstable();
        assert_eq!(items, expected(), "{workers} workers");
    }
}

#[test]
fn a_report_has_the_lag_of_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let flow = Flow::new("lags");
    let out = Collected::new();
    flow.source("in", grows()).sink("out", out.sink());
    let mut options = Options::workers(2);
    options.recovery = Some(Recovery::new(folder.path()).epoch(Duration::from_millis(1)));
    let report = finish(flow.start(options).unwrap()).unwrap();
    assert_eq!(report.lags.len(), PARTITIONS);
    let json = report.to_json();
    assert_eq!(
        json["lags"][3],
        serde_json::json!({"source": "in", "partition": "p3", "records": 0, "bytes": 0, "seconds": 3.0, "withheld": null})
    );
    let text = report.to_string();
    let line = "lag of in: 0 records, 0 bytes, 4.0 s (5 partitions)";
    assert!(text.lines().any(|found| found == line), "{text}");
}
