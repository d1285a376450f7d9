//! A source that generates its items: for benchmarks, demos and tests of flows.

use std::sync::Arc;

use crate::batch::Data;
use crate::clock::now_ns;
use crate::error::Cause;
use crate::poller::Io;
use crate::source::{Events, Next, Partition, Position, Source};

/// A source whose items a function makes from their numbers. See [`from_fn`].
pub struct Generator<F> {
    make: Arc<F>,
    rate: Option<f64>,
    partitions: usize,
    batch: usize,
}

/// Generates the items `make(0)`, `make(1)`, ... until it returns `None`. Each partition has its own count from
/// 0.
///
/// ```
/// use millstream_flow::{Flow, Options, generator, testing};
/// let flow = Flow::new("numbers");
/// let seen = testing::Collected::new();
/// flow.source("n", generator::from_fn(|i| (i < 3).then_some(i))).sink("out", seen.sink());
/// flow.run(Options::default())?;
/// assert_eq!(seen.take(), [0, 1, 2]);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
pub fn from_fn<T, F: Fn(u64) -> Option<T> + Send + Sync + 'static>(make: F) -> Generator<F> {
    Generator {
        make: Arc::new(make),
        rate: None,
        partitions: 1,
        batch: 1024,
    }
}

impl<F> Generator<F> {
    /// Limits each partition to `per_second` items a second, evenly spaced. It is a finite number above 0: with another
    /// the start of the run is an error, [`FlowError::Open`](crate::FlowError::Open).
    #[must_use]
    pub fn rate(mut self, per_second: f64) -> Self {
        self.rate = Some(per_second);
        self
    }
    /// Sets the number of partitions, which are spread over the workers. The default is 1; with 0 the start of the run
    /// is an error, [`FlowError::Open`](crate::FlowError::Open).
    #[must_use]
    pub fn partitions(mut self, partitions: usize) -> Self {
        self.partitions = partitions;
        self
    }
    /// Sets the largest number of items in a batch. The default is 1,024.
    #[must_use]
    pub fn batch_size(mut self, items: usize) -> Self {
        self.batch = items.max(1);
        self
    }
}

impl<T: Data, F: Fn(u64) -> Option<T> + Send + Sync + 'static> Source<Vec<T>> for Generator<F> {
    fn describe(&self) -> String {
        match self.rate {
            Some(rate) => format!("generator, {rate} a second"),
            None => "generator".to_owned(),
        }
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        if self.partitions == 0 {
            return Err("a generator has 1 partition or more, not 0".into());
        }
        if let Some(rate) = self.rate.filter(|rate| !(rate.is_finite() && *rate > 0.0)) {
            return Err(format!(
                "the rate of a generator is a number of items a second above 0, not {rate}"
            )
            .into());
        }
        Ok((0..self.partitions).map(|p| p.to_string()).collect())
    }
    fn open(
        &self,
        _: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Vec<T>>>, Cause> {
        let first = resume.map_or(Ok(0), Position::require_number)?;
        Ok(Box::new(Generating {
            make: Arc::clone(&self.make),
            next: first,
            pace: self.rate.map(|rate| (now_ns(), 1e9 / rate)),
            first,
            batch: self.batch,
        }))
    }
}

struct Generating<F> {
    make: Arc<F>,
    next: u64,
    first: u64,
    pace: Option<(u64, f64)>,
    batch: usize,
}

impl<F> Generating<F> {
    fn due(&self, (start, interval): (u64, f64)) -> u64 {
        start.saturating_add(((self.next - self.first) as f64 * interval) as u64)
    }
}

impl<T: Data, F: Fn(u64) -> Option<T>> Partition<Vec<T>> for Generating<F> {
    fn next_batch(&mut self, batch: &mut Vec<T>, events: &mut Events<'_>) -> Result<Next, Cause> {
        let most = self.batch.min(events.limit());
        let now = if self.pace.is_some() { now_ns() } else { 0 };
        while batch.len() < most {
            if self.pace.is_some_and(|pace| self.due(pace) > now) {
                break;
            }
            match (self.make)(self.next) {
                Some(item) => batch.push(item),
                None if batch.is_empty() => return Ok(Next::End),
                None => break,
            }
            self.next += 1;
        }
        Ok(if batch.is_empty() {
            Next::Idle
        } else {
            Next::Batch
        })
    }
    fn next_awake(&self) -> Option<u64> {
        self.pace.map(|pace| self.due(pace))
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.next.into())
    }
}
