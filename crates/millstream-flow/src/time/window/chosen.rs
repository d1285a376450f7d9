//! Windows that the user chooses for each item: months, trading days, and others that are not on a grid.
//!
//! The windows of a key are stored with their bounds, in the order of their ends; an item is added to each of
//! its windows.

use super::aggregate::{Aggregate, Bounds};
use super::item::{Choose, Copier};
use crate::checkpoint::{StateCodec, pack};
use crate::error::Cause;
use crate::state::Outputs;
use crate::time::{NEVER, Timed};

/// Chooses the windows that contain an item.
///
/// ```
/// use millstream_flow::window::Windower;
/// use millstream_flow::{EventTime, Flow, Options, testing};
///
/// /// Weeks of five days and weekends of two.
/// struct Weeks;
/// impl Windower for Weeks {
///     fn windows(&self, time: i64) -> Vec<(i64, i64)> {
///         let monday = time - time.rem_euclid(7);
///         match time - monday {
///             0..5 => vec![(monday, monday + 5)],
///             _ => vec![(monday + 5, monday + 7)],
///         }
///     }
/// }
///
/// let (flow, out) = (Flow::new("weeks"), testing::Collected::new());
/// flow.source("days", testing::items([0i64, 4, 5, 6, 7]))
///     .event_time(|day| *day, EventTime::default())
///     .key_by(|_| "all")
///     .window_by("weeks", Weeks)
///     .count()
///     .results.values().map(|week| (week.start, week.end, week.value.value)).sink("out", out.sink());
/// flow.run(Options::default())?;
/// assert_eq!(out.take(), [(0, 5, 2), (5, 7, 2), (7, 12, 1)]);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
pub trait Windower: Send + Sync + 'static {
    /// Returns the windows `[start, end)` that contain the moment `time`; nanoseconds. The result must always
    /// be the same for the same moment. An item without a window is dropped; a window that does not contain its
    /// item ends the flow with an error.
    fn windows(&self, time: i64) -> Vec<(i64, i64)>;
}

struct Chosen<A> {
    start: i64,
    end: i64,
    items: u64,
    acc: A,
}

/// The open windows of one key, in the order of their ends.
pub(super) struct ChosenWindows<A>(Vec<Chosen<A>>);

impl<A> Default for ChosenWindows<A> {
    fn default() -> Self {
        ChosenWindows(Vec::new())
    }
}

impl<A> ChosenWindows<A> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the end of the first window.
    pub(super) fn next_end(&self) -> i64 {
        self.0.first().map_or(NEVER, |first| first.end)
    }

    /// Appends `[[start, end, items, accumulator]...]`.
    pub(super) fn save(&self, codec: &dyn StateCodec<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(self.0.len(), out);
        for window in &self.0 {
            pack::list(4, out);
            for number in [window.start, window.end, window.items as i64] {
                pack::integer(number, out);
            }
            codec.save(&window.acc, out)?;
        }
        Ok(())
    }

    pub(super) fn load(codec: &dyn StateCodec<A>, from: &mut &[u8]) -> Result<Self, Cause> {
        let windows = 0..pack::take_list(from)?;
        let windows = windows.map(|_| {
            pack::take_members(4, from)?;
            Ok(Chosen {
                start: pack::take_integer(from)?,
                end: pack::take_integer(from)?,
                items: pack::take_count(from)?,
                acc: codec.load(from)?,
            })
        });
        Ok(ChosenWindows(windows.collect::<Result<_, Cause>>()?))
    }

    /// Adds an item to those of its windows that have not closed by `limit`. It is emitted as late once for
    /// each that has.
    pub(super) fn add<K, G>(
        &mut self,
        item: Timed<G::In>,
        (limit, early): (i64, u64),
        choose: &mut Choose<G::Error>,
        (aggregate, key, copy): (&mut G, &K, Copier<G::In>),
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error>
    where
        G: Aggregate<Acc = A>,
    {
        let mut windows = choose(item.time)?;
        windows.sort_unstable_by_key(|(start, end)| (*end, *start));
        for (start, end) in windows {
            if end <= limit {
                out.late(key, item.copied(copy));
                continue;
            }
            let sought = self
                .0
                .binary_search_by_key(&(end, start), |w| (w.end, w.start));
            let place = match sought {
                Ok(place) => place,
                Err(place) => {
                    let window = Chosen {
                        start,
                        end,
                        items: 0,
                        acc: aggregate.initial()?,
                    };
                    self.0.insert(place, window);
                    place
                }
            };
            let window = &mut self.0[place];
            if let Err(error) = aggregate.add_timed(&mut window.acc, item.copied(copy)) {
                // A window without items is not stored.
                self.0.retain(|window| window.items > 0);
                return Err(error);
            }
            window.items += 1;
            if early > 0 && window.items.is_multiple_of(early) {
                let early = true;
                let bounds = Bounds { start, end, early };
                let result = aggregate.result_of_any(&mut window.acc, bounds)?;
                if let Some(result) = result {
                    out.result(key, item.times().map(|()| result));
                }
            }
        }
        Ok(())
    }

    /// Closes the windows whose end has been reached, in the order of their ends.
    pub(super) fn close<K, G>(
        &mut self,
        until: i64,
        aggregate: &mut G,
        key: &K,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error>
    where
        G: Aggregate<Acc = A>,
    {
        while self.next_end() <= until && !self.0.is_empty() {
            let Chosen {
                start,
                end,
                items,
                mut acc,
            } = self.0.remove(0);
            if items == 0 {
                // The function failed on the only item.
                continue;
            }
            let early = false;
            let result = aggregate.result_of_any(&mut acc, Bounds { start, end, early })?;
            let last = end.saturating_sub(1);
            if let Some(value) = result {
                out.result(
                    key,
                    Timed {
                        time: last,
                        watermark: last,
                        value,
                    },
                );
            }
        }
        Ok(())
    }
}
