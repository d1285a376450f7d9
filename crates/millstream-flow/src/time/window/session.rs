//! Sessions: items of a key with at most a gap between one and the next.
//!
//! Two items that are exactly one gap apart are in one session, as in Flink, Kafka Streams and Bytewax. So a
//! session may close when no item at `last + gap` is expected any more: when the watermark is after that
//! moment, not at it.

use std::collections::VecDeque;

use super::aggregate::{Aggregate, Bounds};
use super::group::Group;
use crate::checkpoint::{StateCodec, pack};
use crate::error::Cause;
use crate::state::Outputs;
use crate::time::{NEVER, Timed};

/// The open sessions of one key, in the order of time, with more than a gap between them.
pub(super) struct Sessions<A>(VecDeque<Group<A>>);

impl<A> Default for Sessions<A> {
    fn default() -> Self {
        Sessions(VecDeque::new())
    }
}

impl<A> Sessions<A> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends `[[first, last, items, accumulator]...]`.
    pub(super) fn save(&self, codec: &dyn StateCodec<A>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(self.0.len(), out);
        for session in &self.0 {
            session.save(codec, out)?;
        }
        Ok(())
    }

    pub(super) fn load(codec: &dyn StateCodec<A>, from: &mut &[u8]) -> Result<Self, Cause> {
        let sessions = 0..pack::take_list(from)?;
        let sessions = sessions.map(|_| Group::load(codec, from));
        Ok(Sessions(sessions.collect::<Result<_, Cause>>()?))
    }
}

/// The gap and the early results of sessions.
#[derive(Clone, Copy)]
pub(super) struct SessionRule {
    pub(super) gap: i64,
    pub(super) early: u64,
}

impl SessionRule {
    /// Returns the watermark at which the first session closes.
    pub(super) fn next_close<A>(&self, held: &Sessions<A>) -> i64 {
        let first = held.0.front();
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
        held: &mut Sessions<G::Acc>,
        item: Timed<G::In>,
        limit: i64,
        (aggregate, key): (&mut G, &K),
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        if item.time < limit {
            out.late(key, item);
            return Ok(());
        }
        let (time, stamp) = (item.time, item.times());
        let behind = held.0.iter().rev();
        let place = held.0.len() - behind.take_while(|s| s.first > time).count();
        let reaches = |session: &Group<G::Acc>| {
            time.saturating_sub(session.last) <= self.gap
                && session.first.saturating_sub(time) <= self.gap
        };
        // It may belong to the session before it, to the one after it, or join the two.
        let before = place > 0 && reaches(&held.0[place - 1]);
        let after = held.0.get(place).is_some_and(reaches);
        let place = match (before, after) {
            (true, true) => {
                let (left, right) = (place - 1, place);
                let mut acc = aggregate.initial()?;
                aggregate.merge(&mut acc, &held.0[left].acc)?;
                aggregate.add_timed(&mut acc, item)?;
                aggregate.merge(&mut acc, &held.0[right].acc)?;
                if let Some(joined) = held.0.remove(right) {
                    let session = &mut held.0[left];
                    session.acc = acc;
                    session.last = joined.last;
                    session.items += joined.items + 1;
                }
                left
            }
            (false, false) => {
                let mut acc = aggregate.initial()?;
                aggregate.add_timed(&mut acc, item)?;
                let session = Group {
                    first: time,
                    last: time,
                    items: 1,
                    acc,
                };
                held.0.insert(place, session);
                place
            }
            (before, _) => {
                let place = if before { place - 1 } else { place };
                let session = &mut held.0[place];
                aggregate.add_timed(&mut session.acc, item)?;
                session.first = session.first.min(time);
                session.last = session.last.max(time);
                session.items += 1;
                place
            }
        };
        let session = &mut held.0[place];
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
        held: &mut Sessions<G::Acc>,
        until: i64,
        aggregate: &mut G,
        key: &K,
        out: &mut impl Outputs<K, G::Out, G::In>,
    ) -> Result<(), G::Error> {
        while self.next_close(held) <= until
            && let Some(mut session) = held.0.pop_front()
        {
            let bounds = self.bounds(&session, false);
            let Some(result) = aggregate.result_of_any(&mut session.acc, bounds)? else {
                continue;
            };
            // Its last moment is its end: the watermark may have reached it before the session closed.
            let output = Timed {
                time: bounds.end,
                watermark: bounds.end,
                value: result,
            };
            out.result(key, output);
        }
        Ok(())
    }
}
