//! Sources whose positions are bytes in their own format resume from them, also inside an adapter.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_flow::durable::{Recorded, place};
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::testing::Collected;
use millstream_flow::{Flow, FlowError, Recovery, SourceExt, codec};

use crate::recovery::run;

/// Numbers up to an end. There is a partition for each worker, and its position exists as text only.
struct Counting {
    end: u64,
    /// The positions at which it was opened.
    opened: Arc<Mutex<Vec<u64>>>,
}

struct Reading {
    next: u64,
    end: u64,
}

impl Source<Frames> for Counting {
    fn describe(&self) -> String {
        "numbers".to_owned()
    }
    fn partitions(&self, workers: usize) -> Result<Vec<String>, Cause> {
        Ok((0..workers).map(|number| number.to_string()).collect())
    }
    fn open(
        &self,
        _: usize,
        _: Option<Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        Err("it is opened at a place".into())
    }
    fn open_at(
        &self,
        _: usize,
        _: Option<Position>,
        place: Option<&[u8]>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let text = std::str::from_utf8(place.unwrap_or(b"0"))?;
        let next = text.parse()?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.push(next);
        Ok(Box::new(Reading {
            next,
            end: self.end,
        }))
    }
}

impl Partition<Frames> for Reading {
    fn next_batch(&mut self, batch: &mut Frames, _: &mut Events<'_>) -> Result<Next, Cause> {
        if self.next == self.end {
            return Ok(Next::End);
        }
        batch.clear();
        batch.data.extend(self.next.to_string().bytes());
        batch.spans.push((0, batch.data.len() as u32));
        self.next += 1;
        Ok(Next::Batch)
    }
    fn position(&self) -> Position {
        0
    }
    fn place(&self) -> Result<Option<Vec<u8>>, Cause> {
        Ok(Some(self.next.to_string().into_bytes()))
    }
}

#[test]
fn a_decoded_source_resumes_from_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    let run_to = |end| {
        let flow = Flow::new("numbers");
        let source: Arc<dyn Source<Frames>> = Arc::new(Counting {
            end,
            opened: Arc::default(),
        });
        flow.source("in", codec::decode(source, codec::text))
            .sink("out", out.sink());
        run(&flow, 1, Recovery::new(folder.path())).unwrap();
    };
    run_to(3);
    run_to(5);
    assert_eq!(out.take(), ["0", "1", "2", "3", "4"]);
}

/// A flow of the numbers from a durable source, and the positions at which it is opened.
fn durable(end: u64, out: &Collected<String>) -> (Flow, Arc<Mutex<Vec<u64>>>) {
    let (flow, opened) = (Flow::new("numbers"), Arc::default());
    let source = Counting {
        end,
        opened: Arc::clone(&opened),
    };
    flow.source("in", codec::decode(source.durable(), codec::text))
        .sink("out", out.sink());
    (flow, opened)
}

fn numbers(end: u64) -> Vec<String> {
    (0..end).map(|number| number.to_string()).collect()
}

#[test]
fn a_durable_source_resumes_from_the_position_of_its_last_record() {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    let (mut crashes, mut end) = (0, 200);
    let recorded = || {
        let mut last = 0;
        let path = place(folder.path(), "in");
        let mut recorded = Recorded::open(path).unwrap();
        while let Some(batch) = recorded.next_batch().unwrap() {
            let text = batch.place.map(|place| std::str::from_utf8(place).unwrap());
            last = text.map_or(0, |text| text.parse().unwrap());
        }
        last
    };
    for attempt in 0.. {
        let before = match attempt {
            0 => 0,
            _ => recorded(),
        };
        let (flow, opened) = durable(end, &out);
        let recovery = Recovery::new(folder.path()).epoch(Duration::ZERO);
        let outcome = run(&flow, 1, recovery.crash_after(1 + attempt % 30));
        // Recorded input is not requested from the source again.
        assert!(opened.lock().unwrap().iter().all(|at| *at == before));
        match outcome {
            Err(FlowError::Crashed(_)) => crashes += 1,
            ended => {
                ended.unwrap();
                if end == 300 {
                    break;
                }
                // It has ended, and resumes from its end.
                assert_eq!(recorded(), 200);
                end = 300;
            }
        }
    }
    assert!(crashes > 5, "{crashes}");
    assert_eq!(out.take(), numbers(300));
}

#[test]
fn a_source_that_becomes_durable_resumes_from_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    let flow = Flow::new("numbers");
    let source = Counting {
        end: 5,
        opened: Arc::default(),
    };
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", out.sink());
    run(&flow, 1, Recovery::new(folder.path())).unwrap();
    for end in [8, 8, 9] {
        let (flow, _) = durable(end, &out);
        run(&flow, 1, Recovery::new(folder.path())).unwrap();
    }
    assert_eq!(out.take(), numbers(9));
}
