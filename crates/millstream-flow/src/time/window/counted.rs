//! Windows by number of items. They do not depend on time, and no item is late for them.

use super::aggregate::{Aggregate, Bounds};
use super::group::Group;
use crate::checkpoint::{StateCodec, pack};
use crate::error::Cause;
use crate::state::Outputs;
use crate::time::Timed;

/// The open window of one key.
pub(super) struct Counted<A>(Option<Group<A>>);

impl<A> Default for Counted<A> {
    fn default() -> Self {
        Counted(None)
    }
}

impl<A> Counted<A> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Appends `[[first, last, items, accumulator]]`.
    pub(super) fn save(&self, codec: &dyn StateCodec<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(self.0.iter().len(), out);
        self.0.iter().try_for_each(|group| group.save(codec, out))
    }

    pub(super) fn load(codec: &dyn StateCodec<A>, from: &mut &[u8]) -> Result<Self, Cause> {
        Ok(Counted(match pack::take_list(from)? {
            0 => None,
            _ => Some(Group::load(codec, from)?),
        }))
    }
}

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
        held: &mut Counted<G::Acc>,
        item: Timed<G::In>,
        (aggregate, key): (&mut G, &K),
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        let (time, stamp) = (item.time, item.times());
        let mut group = match held.0.take() {
            Some(group) => group,
            None => Group {
                first: time,
                last: time,
                items: 0,
                acc: aggregate.initial()?,
            },
        };
        let added = aggregate.add_timed(&mut group.acc, item);
        if added.is_ok() {
            group.first = group.first.min(time);
            group.last = group.last.max(time);
            group.items += 1;
        }
        let full = group.items >= self.items;
        let early = self.early > 0 && group.items.is_multiple_of(self.early);
        if added.is_ok() && (full || early) {
            let bounds = bounds(&group, !full);
            let result = aggregate.result_of_any(&mut group.acc, bounds);
            if !full {
                held.0 = Some(group);
            }
            if let Some(result) = result? {
                out.result(key, stamp.map(|()| result));
            }
            return Ok(());
        }
        // A window without items is not stored.
        held.0 = Some(group).filter(|group| group.items > 0);
        added
    }

    /// Closes the window after all input has ended, even if it is not full.
    pub(super) fn close<K, G: Aggregate>(
        &self,
        held: &mut Counted<G::Acc>,
        watermark: i64,
        aggregate: &mut G,
        key: &K,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        if let Some(mut group) = held.0.take() {
            let bounds = bounds(&group, false);
            if let Some(value) = aggregate.result_of_any(&mut group.acc, bounds)? {
                let output = Timed {
                    time: group.last,
                    watermark,
                    value,
                };
                out.result(key, output);
            }
        }
        Ok(())
    }
}

fn bounds<A>(group: &Group<A>, early: bool) -> Bounds {
    Bounds {
        start: group.first,
        end: group.last,
        early,
    }
}
