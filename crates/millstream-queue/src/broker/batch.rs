//! `get QUEUE/max=N`: the items after the first one.
//!
//! The invariant: a batch takes what as many requests for one item would take, one after the other, as long as each of
//! them finds an item.

use super::get::Verdict;
use super::{Broker, Status};
use crate::connection::ConnectionId;
use crate::moment::Moment;
use crate::protocol::GetKey;
use crate::queue::Next;
use crate::round::Round;
use crate::storage::Storage;

impl<S: Storage> Broker<S> {
    /// The next item of the queue `name` for a `get` that has taken one of it, if it has at most `length_max` bytes.
    /// Where a request for one item would be an error, the batch ends: the next request has the error.
    #[cold]
    pub(crate) fn take_more(
        &mut self,
        by: ConnectionId,
        (name, key): (&str, &GetKey<'_>),
        length_max: usize,
        now: Moment,
        round: &mut Round,
    ) -> Next {
        let one = GetKey {
            name,
            others: "",
            ..*key
        };
        let Some(&id) = self.names.get(name) else {
            return Next::Nothing;
        };
        if self.status == Status::Quiescent || !self.can_take(by, id, &one) {
            return Next::Nothing;
        }
        let Some(queue) = self.queue_mut(id) else {
            return Next::Nothing;
        };
        let mut next = queue.take_next(now, round).unwrap_or(Next::Nothing);
        if let Next::Item(item) = &next {
            if item.body.len() > length_max {
                queue.reinsert(item.clone());
                next = Next::Nothing;
            } else {
                queue.deliver(item, key.open.then_some(by), now);
                if key.open {
                    self.note_open(by, id, item.id);
                }
                self.counters.cmd_get += 1;
                self.counters.get_hits += 1;
            }
        }
        self.after_take(id, now);
        next
    }

    /// Confirms all items of these queues that the connection has opened. Returns false if some were open no longer;
    /// the others are confirmed.
    #[cold]
    pub(super) fn close_all(&mut self, by: ConnectionId, key: &GetKey<'_>, now: Moment) -> bool {
        let mut are_open = true;
        while self.has_opened(by, key.names()) {
            are_open &= self.end_oldest(by, key.names(), Verdict::Close, now);
        }
        are_open
    }
}
