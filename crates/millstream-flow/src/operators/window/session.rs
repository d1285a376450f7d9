//! Sessions: items of a key with at most a gap between one and the next.
//!
//! Two items that are exactly one gap apart are in one session, as in Flink, Kafka Streams and Bytewax. So a
//! session may close when no item at `last + gap` is expected any more: when the watermark is after that
//! moment, not at it. The open sessions of a key are in the order of time, with more than a gap between them.

use super::aggregate::{Aggregate, Bounds};
use super::group::{self, Group, Groups};
use crate::state::Outputs;
use crate::time::{NEVER, Timed};

/// The gap and the early results of sessions.
#[derive(Clone, Copy)]
pub(super) struct SessionRule {
    pub(super) gap: i64,
    pub(super) early: u64,
}

impl SessionRule {
    /// Returns the watermark at which the first session closes.
    pub(super) fn next_close<A>(&self, held: &Groups<A>) -> i64 {
        let first = held.first();
        first.map_or(NEVER, |first| self.end(first).saturating_add(1))
    }

    fn end<A>(&self, session: &Group<A>) -> i64 {
        session.last.saturating_add(self.gap)
    }

    fn bounds<A>(&self, session: &Group<A>, early: bool) -> Bounds {
        Bounds {
            start: session.first,
            end: self.end(session),
            early,
        }
    }

    /// Adds an item to its session, unless its time is before the watermark `limit`.
    pub(super) fn add<K, G: Aggregate>(
        &self,
        held: &mut Groups<G::Acc>,
        item: Timed<G::In>,
        limit: i64,
        (aggregate, key): (&mut G, &K),
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        if item.time < limit {
            out.late(key, item);
            return Ok(());
        }
        let time = item.time;
        let stamp = item.times();
        let behind = held.iter().rev();
        let place = held.len() - behind.take_while(|s| s.first > time).count();
        let reaches = |session: &Group<G::Acc>| {
            time.saturating_sub(session.last) <= self.gap
                && session.first.saturating_sub(time) <= self.gap
        };
        // It may belong to the session before it, to the one after it, or join the two.
        let before = place > 0 && reaches(&held[place - 1]);
        let after = held.get(place).is_some_and(reaches);
        let place = match (before, after) {
            (true, true) => {
                let left = place - 1;
                let right = place;
                let mut acc = aggregate.initial()?;
                aggregate.merge(&mut acc, &held[left].acc)?;
                aggregate.add_timed(&mut acc, item)?;
                aggregate.merge(&mut acc, &held[right].acc)?;
                if let Some(joined) = held.remove(right) {
                    let session = held.group(left);
                    session.acc = acc;
                    session.last = joined.last;
                    session.items += joined.items + 1;
                }
                left
            }
            (false, false) => {
                let mut acc = aggregate.initial()?;
                aggregate.add_timed(&mut acc, item)?;
                let mut session = Group::new(time, time, acc);
                session.items = 1;
                held.insert(place, session);
                place
            }
            (before, _) => {
                let place = if before { place - 1 } else { place };
                let session = held.group(place);
                aggregate.add_timed(&mut session.acc, item)?;
                session.first = session.first.min(time);
                session.last = session.last.max(time);
                session.items += 1;
                place
            }
        };
        let session = held.group(place);
        if self.early > 0 && session.items.is_multiple_of(self.early) {
            let bounds = self.bounds(session, true);
            if let Some(result) = aggregate.result_of_any(&mut session.acc, bounds)? {
                out.result(key, stamp.map(|()| result));
            }
        }
        Ok(())
    }

    /// Closes the sessions whose end is before the watermark `until`.
    pub(super) fn close<K, G: Aggregate>(
        &self,
        held: &mut Groups<G::Acc>,
        until: i64,
        aggregate: &mut G,
        key: &K,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        while self.next_close(held) <= until
            && let Some(session) = held.remove(0)
        {
            let bounds = self.bounds(&session, false);
            // Its last moment is its end: the watermark may have reached it before the session closed.
            let moment = (bounds.end, bounds.end);
            group::close(session, bounds, moment, (&mut *aggregate, key), out)?;
        }
        Ok(())
    }
}
