//! Sources whose positions are bytes of their own resume from them, also under an adapter.

use std::sync::Arc;

use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::testing::Collected;
use millstream_flow::{Flow, Recovery, codec};

use crate::recovery::run;

/// Numbers up to an end. A partition, of which there are as many as workers, knows its place as text only.
struct Counting {
    end: u64,
}

struct Reading {
    next: u64,
    end: u64,
}

impl Source<Frames> for Counting {
    fn describe(&self) -> String {
        "numbers".to_owned()
    }
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        Err("it is asked with the number of workers".into())
    }
    fn partitions_for(&self, workers: usize) -> Result<Vec<String>, Cause> {
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
        Ok(Box::new(Reading {
            next: text.parse()?,
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
fn a_decoded_source_resumes_from_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let out = Collected::new();
    let run_to = |end| {
        let flow = Flow::new("numbers");
        let source: Arc<dyn Source<Frames>> = Arc::new(Counting { end });
        flow.source("in", codec::decode(source, codec::text))
            .sink("out", out.sink());
        run(&flow, 1, Recovery::new(folder.path())).unwrap();
    };
    run_to(3);
    run_to(5);
    assert_eq!(out.take(), ["0", "1", "2", "3", "4"]);
}
