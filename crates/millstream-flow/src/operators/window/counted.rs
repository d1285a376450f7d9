//! Windows by number of items. They do not depend on time, and no item is late for them.

use super::aggregate::{Aggregate, Bounds};
use super::group::{self, Group, Groups};
use crate::state::Outputs;
use crate::time::Timed;

/// The size of the windows.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) items: u64,
    pub(super) early: u64,
}

impl Size {
    /// Adds an item, and closes the window if it is full.
    pub(super) fn add<K, G: Aggregate>(
        &self,
        held: &mut Groups<G::Acc>,
        item: Timed<G::In>,
        (aggregate, key): (&mut G, &K),
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        let time = item.time;
        let stamp = item.times();
        if held.is_empty() {
            held.insert(0, Group::new(time, time, aggregate.initial()?));
        }
        let group = held.group(0);
        let added = aggregate.add_timed(&mut group.acc, item);
        if let Err(error) = added {
            // A window without items is not stored.
            if group.items == 0 {
                held.remove(0);
            }
            return Err(error);
        }
        group.first = group.first.min(time);
        group.last = group.last.max(time);
        group.items += 1;
        let full = group.items >= self.items;
        if full || (self.early > 0 && group.items.is_multiple_of(self.early)) {
            let bounds = bounds(group, !full);
            let result = aggregate.result_of_any(&mut group.acc, bounds);
            if full {
                held.remove(0);
            }
            if let Some(result) = result? {
                out.result(key, stamp.map(|()| result));
            }
        }
        Ok(())
    }

    /// Closes the window after all input has ended, even if it is not full.
    pub(super) fn close<K, G: Aggregate>(
        &self,
        held: &mut Groups<G::Acc>,
        watermark: i64,
        aggregate: &mut G,
        key: &K,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        match held.remove(0) {
            Some(group) => {
                let bounds = bounds(&group, false);
                let moment = (group.last, watermark);
                group::close(group, bounds, moment, (aggregate, key), out)
            }
            None => Ok(()),
        }
    }
}

fn bounds<A>(group: &Group<A>, early: bool) -> Bounds {
    Bounds {
        start: group.first,
        end: group.last,
        early,
    }
}
