//! Event time by a clock of the user, which returns the times of items, and watermarks with items and without.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Assign, PartitionTime, TimeSource};
use crate::batch::{Data, timed};
use crate::describe::stream::Stream;
use crate::error::Failure;
use crate::mutex::lock;
use crate::step::Context;
use crate::time::{BEFORE_ALL, Timed};

/// The clock of one partition of a source, created when the partition is opened.
///
/// ```
/// use millstream_flow::assign::EventClock;
/// use millstream_flow::{Flow, Options, testing};
///
/// /// Items are in order, except for marks that raise the watermark.
/// struct Marked(i64);
/// impl EventClock<(i64, bool)> for Marked {
///     fn on_item(&mut self, item: &(i64, bool), _: i64) -> (i64, i64) {
///         if item.1 {
///             self.0 = self.0.max(item.0);
///         }
///         (item.0, self.0)
///     }
///     fn resume(&mut self, watermark: i64) {
///         self.0 = watermark;
///     }
/// }
///
/// let (flow, out) = (Flow::new("marked"), testing::Collected::new());
/// flow.source("in", testing::items([(5i64, false), (9, true), (7, false)]))
///     .event_clock(|_| Marked(i64::MIN))
///     .sink("out", out.sink());
/// flow.run(Options::default())?;
/// let watermarks: Vec<i64> = out.take().iter().map(|item| item.watermark).collect();
/// assert_eq!(watermarks, [i64::MIN, 9, 9]);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
pub trait EventClock<T>: 'static {
    /// Returns the time of an item, and the watermark after it: no item before the watermark is expected any
    /// more. `now` is the processing time. All are in nanoseconds. A watermark less than the one before has no
    /// effect.
    fn on_item(&mut self, item: &T, now: i64) -> (i64, i64);
    /// Returns the watermark when there are no items, if it advances without them; called about every 10 ms.
    fn on_pause(&mut self, now: i64) -> Option<i64> {
        let _ = now;
        None
    }
    /// Called at the start of a run that resumes, with the watermark of the partition at the last commit. It is
    /// the first call, and is not made in the very first run.
    fn resume(&mut self, watermark: i64) {
        let _ = watermark;
    }
}

struct ByClocks<C, M> {
    make: Arc<M>,
    clocks: HashMap<usize, C>,
}

impl<C, M: Fn(&str) -> C> ByClocks<C, M> {
    fn clock<T>(&mut self, partition: &PartitionTime) -> &mut C
    where
        C: EventClock<T>,
    {
        let make = &self.make;
        self.clocks.entry(partition.number()).or_insert_with(|| {
            let mut clock = make(partition.name());
            if partition.watermark() != BEFORE_ALL {
                clock.resume(partition.watermark());
            }
            clock
        })
    }
}

impl<T, C, M> Assign<Vec<T>, Vec<Timed<T>>> for ByClocks<C, M>
where
    T: Data,
    C: EventClock<T>,
    M: Fn(&str) -> C + Send + Sync + 'static,
{
    fn assign(
        &mut self,
        input: &mut Vec<T>,
        output: &mut Vec<Timed<T>>,
        partition: &mut PartitionTime,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let clock = self.clock::<T>(partition);
        for value in input.drain(..) {
            let (time, reached) = clock.on_item(&value, cx.now());
            let watermark = partition.pass_item(time, reached);
            output.push(Timed {
                time,
                watermark,
                value,
            });
        }
        Ok(())
    }
    fn pause(&mut self, partition: &mut PartitionTime, cx: &mut Context) -> Result<(), Failure> {
        if let Some(reached) = self.clock::<T>(partition).on_pause(cx.now()) {
            partition.pass_to(reached);
        }
        Ok(())
    }
}

impl<T: Data> Stream<T> {
    /// Adds to each item the time that an [`EventClock`] returns for it. The clock also returns the watermark.
    ///
    /// `make` is called with the name of each partition. The step must come before the first exchange or merge.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::TimeMisplaced`](crate::FlowError::TimeMisplaced) when an exchange
    /// or merge is before it.
    ///
    /// ```
    /// use millstream_flow::assign::EventClock;
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// /// Items come in the order of their times.
    /// struct Exact;
    /// impl EventClock<i64> for Exact {
    ///     fn on_item(&mut self, item: &i64, _now: i64) -> (i64, i64) {
    ///         (*item, *item - 1)
    ///     }
    /// }
    ///
    /// let (flow, out) = (Flow::new("clock"), testing::Collected::new());
    /// flow.source("in", testing::items([5, 9]))
    ///     .event_clock(|_partition| Exact)
    ///     .map(|item| (item.time, item.watermark))
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// // The watermark of an item includes the item.
    /// assert_eq!(out.take(), [(5, 4), (9, 8)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn event_clock<C: EventClock<T>>(
        &self,
        make: impl Fn(&str) -> C + Send + Sync + 'static,
    ) -> Stream<Timed<T>> {
        lock(&self.graph).codecs.derive(timed::<T>);
        let make = Arc::new(make);
        self.assigned("", TimeSource::Clock, move |_| {
            Ok(ByClocks {
                make: Arc::clone(&make),
                clocks: HashMap::new(),
            })
        })
    }
}
