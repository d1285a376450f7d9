//! A source and a sink of one's own: the ticks of a clock, of which each run has three, and a sink that writes a batch
//! as one line.
//!
//! Run: `cargo run --release --example own_connectors`. With the state directory `state`, in the current directory, the
//! next run continues with the next tick. A sink for a system outside of the machine is an outbox: see
//! `docs/guide/outbox.md`.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;

use millstream::flow::control::Control;
use millstream::flow::poller::Io;
use millstream::flow::sink::{Sink, Writer};
use millstream::flow::source::{Events, Next, Partition, Position, Source};
use millstream::prelude::*;

/// Numbers that continue after those of the last run.
struct Ticks {
    each_run: u64,
}

struct Ticking {
    next: u64,
    end: u64,
}

impl Source<Vec<u64>> for Ticks {
    fn describe(&self) -> String {
        format!("{} ticks", self.each_run)
    }

    fn open(
        &self,
        _partition: usize,
        resume: Option<&Position>,
        _io: &Io,
    ) -> Result<Box<dyn Partition<Vec<u64>>>, Cause> {
        let next = resume.map_or(Ok(0), Position::require_number)?;
        let end = next + self.each_run;
        Ok(Box::new(Ticking { next, end }))
    }
}

impl Partition<Vec<u64>> for Ticking {
    fn next_batch(&mut self, batch: &mut Vec<u64>, events: &mut Events<'_>) -> Result<Next, Cause> {
        let to = self.end.min(self.next + events.limit() as u64);
        batch.extend(self.next..to);
        self.next = to;
        Ok(if batch.is_empty() {
            Next::End
        } else {
            Next::Batch
        })
    }

    fn position(&self) -> Result<Position, Cause> {
        Ok(self.next.into())
    }
}

/// Standard output, a line for each batch.
struct Lines;

impl<T: Display + 'static> Sink<Vec<T>> for Lines {
    fn describe(&self) -> String {
        "lines of batches".to_owned()
    }

    fn open(
        &self,
        _worker: usize,
        _control: &Arc<Control>,
    ) -> Result<Box<dyn Writer<Vec<T>>>, Cause> {
        Ok(Box::new(Lines))
    }
}

impl<T: Display> Writer<Vec<T>> for Lines {
    fn write_batch(&mut self, batch: &mut Vec<T>) -> Result<(), Cause> {
        let items: Vec<_> = batch.drain(..).map(|item| item.to_string()).collect();
        Ok(writeln!(std::io::stdout(), "{}", items.join(" "))?)
    }

    fn flush(&mut self) -> Result<(), Cause> {
        Ok(std::io::stdout().flush()?)
    }
}

fn main() -> Result<(), FlowError> {
    let flow = Flow::new("ticks");
    flow.source("ticks", Ticks { each_run: 3 })
        .map(|tick| format!("tick {tick}"))
        .sink("out", Lines);
    flow.run(Options {
        recovery: Some(Recovery::new("state")),
        ..Options::default()
    })?;
    Ok(())
}
