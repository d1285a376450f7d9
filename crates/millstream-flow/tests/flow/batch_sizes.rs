//! A source sets the largest number of items in a batch, and steps receive no more at once.

use std::time::Duration;

use millstream_flow::durable::{Recorded, recorded_input_dir};
use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source, SourceSettings};
use millstream_flow::testing::{Collected, items};
use millstream_flow::{Flow, FlowError, Recovery, SourceExt, codec, files};

use super::support;
use crate::recovery::run;

/// Numbers in batches of 100, which ignore the limit of a turn; steps receive `most` at once.
struct Hundreds {
    most: Option<usize>,
}

struct Reading(u64);

impl Source<Vec<u64>> for Hundreds {
    fn describe(&self) -> String {
        "hundreds".to_owned()
    }
    fn open(
        &self,
        _: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Vec<u64>>>, Cause> {
        let start = resume.map_or(Ok(0), Position::require_number)?;
        Ok(Box::new(Reading(start)))
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            batch_size_max: self.most,
            ..SourceSettings::default()
        }
    }
}

impl Partition<Vec<u64>> for Reading {
    fn next_batch(&mut self, batch: &mut Vec<u64>, _: &mut Events<'_>) -> Result<Next, Cause> {
        if self.0 == 1000 {
            return Ok(Next::End);
        }
        batch.extend(self.0..self.0 + 100);
        self.0 += 100;
        Ok(Next::Batch)
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.0.into())
    }
}

/// The batches of a source as the first step receives them.
fn batches<T: Clone + Send + Sync + 'static>(source: impl Source<Vec<T>>) -> Vec<Vec<T>> {
    let flow = Flow::new("batches");
    let seen = Collected::new();
    flow.source("in", source)
        .map_batch(|batch: Vec<T>| vec![batch])
        .sink("out", seen.sink());
    support::run(&flow, 1).unwrap();
    seen.take()
}

#[test]
fn no_batch_is_larger_and_all_items_arrive_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lines");
    let text: Vec<_> = (0..5000).map(|n| n.to_string()).collect();
    std::fs::write(&path, text.join("\n")).unwrap();
    for most in [1, 7, 1000] {
        let read = batches(files::lines(&path).batch_size(most));
        assert!(read.iter().all(|batch| batch.len() <= most), "{most}");
        assert_eq!(read.concat(), text);
        // Adapters around it do not change it.
        let read = batches(codec::decode(
            files::read([&path]).batch_size(most),
            codec::text,
        ));
        assert!(read.iter().all(|batch| batch.len() <= most), "{most}");
        assert_eq!(read.concat(), text);
        let boxed: Box<dyn Source<Vec<String>>> = Box::new(files::lines(&path).batch_size(most));
        let read = batches(boxed);
        assert!(read.iter().all(|batch| batch.len() <= most), "{most}");
    }
}

#[test]
fn a_larger_batch_is_divided() {
    let all: Vec<u64> = (0..1000).collect();
    for (source, most) in [
        (Hundreds { most: None }.batch_size(1), 1),
        (Hundreds { most: Some(30) }.batch_size(2000), 30),
        (Hundreds { most: Some(30) }.batch_size(7), 7),
        (Hundreds { most: Some(0) }.batch_size(7), 1),
    ] {
        let read = batches(source);
        assert!(read.iter().all(|batch| batch.len() <= most), "{most}");
        assert_eq!(read.concat(), all);
    }
    let read = batches(items(0..50u64).batch_size(0));
    assert!(read.iter().all(|batch| batch.len() == 1));
}

#[test]
fn crashes_between_the_parts_of_a_batch_lose_and_repeat_no_item() {
    let folder = tempfile::tempdir().unwrap();
    let flow = Flow::new("parts");
    let seen = Collected::new();
    flow.source("in", Hundreds { most: Some(9) })
        .sink("out", seen.sink());
    let mut crashes = 0;
    loop {
        let recovery = Recovery::new(folder.path()).epoch(Duration::ZERO);
        match run(&flow, 1, recovery.crash_after(2)) {
            Err(FlowError::Crashed(_)) => crashes += 1,
            ended => break ended.unwrap(),
        }
    }
    assert!(crashes > 2, "{crashes}");
    assert_eq!(seen.take(), (0..1000).collect::<Vec<u64>>());
}

#[test]
fn records_of_a_durable_source_have_no_more_items() {
    let folder = tempfile::tempdir().unwrap();
    let flow = Flow::new("recorded");
    let seen = Collected::new();
    let path = folder.path().join("lines");
    std::fs::write(&path, "line\n".repeat(500)).unwrap();
    let source = files::read([&path]).durable().batch_size(20);
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", seen.sink());
    let state = folder.path().join("state");
    run(&flow, 1, Recovery::new(&state)).unwrap();
    assert_eq!(seen.take().len(), 500);
    let mut recorded = Recorded::open(recorded_input_dir(&state, "in")).unwrap();
    let mut count = 0;
    while let Some(batch) = recorded.next_batch().unwrap() {
        assert!(batch.items().len() <= 20);
        count += batch.items().len();
    }
    assert_eq!(count, 500);
}
