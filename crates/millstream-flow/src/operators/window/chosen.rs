//! Windows that the user chooses for each item: months, trading days, and others that are not on a grid.
//!
//! The windows of a key are stored with their bounds, in the order of their ends; an item is added to each of
//! its windows. `first` and `last` of a group are the start and the end of its window.

use super::aggregate::{Aggregate, Bounds};
use super::group::{self, Group, Groups};
use super::item::{Choose, Copier};
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

/// Returns the end of the first window; the windows of a key are in the order of their ends.
pub(super) fn next_end<A>(held: &Groups<A>) -> i64 {
    held.first().map_or(NEVER, |first| first.last)
}

/// Adds an item to those of its windows that have not closed by `limit`. It is emitted as late once for
/// each that has.
pub(super) fn add<K, G: Aggregate>(
    held: &mut Groups<G::Acc>,
    item: Timed<G::In>,
    (limit, early): (i64, u64),
    choose: &mut Choose<G::Error>,
    (aggregate, key, copy): (&mut G, &K, Copier<G::In>),
    out: &mut impl Outputs<K, G::Out, G::In>,
) -> Result<(), G::Error> {
    let mut windows = choose(item.time)?;
    windows.sort_unstable_by_key(|(start, end)| (*end, *start));
    for (start, end) in windows {
        if end <= limit {
            out.late(key, item.copied(copy));
            continue;
        }
        let place = held.partition_point(|group| (group.last, group.first) < (end, start));
        let is_open = |group: &Group<_>| (group.last, group.first) == (end, start);
        if !held.get(place).is_some_and(is_open) {
            held.insert(place, Group::new(start, end, aggregate.initial()?));
        }
        let group = held.group(place);
        if let Err(error) = aggregate.add_timed(&mut group.acc, item.copied(copy)) {
            // A window without items is not stored.
            if group.items == 0 {
                held.remove(place);
            }
            return Err(error);
        }
        group.items += 1;
        if early > 0 && group.items.is_multiple_of(early) {
            let early = true;
            let bounds = Bounds { start, end, early };
            if let Some(result) = aggregate.result_of_any(&mut group.acc, bounds)? {
                out.result(key, item.times().map(|()| result));
            }
        }
    }
    Ok(())
}

/// Closes the windows whose end has been reached, in the order of their ends.
pub(super) fn close<K, G: Aggregate>(
    held: &mut Groups<G::Acc>,
    until: i64,
    aggregate: &mut G,
    key: &K,
    out: &mut impl Outputs<K, G::Out, G::In>,
) -> Result<(), G::Error> {
    while next_end(held) <= until
        && let Some(group) = held.remove(0)
    {
        let bounds = Bounds {
            start: group.first,
            end: group.last,
            early: false,
        };
        let last = bounds.end.saturating_sub(1);
        group::close(group, bounds, (last, last), (aggregate, key), out)?;
    }
    Ok(())
}
