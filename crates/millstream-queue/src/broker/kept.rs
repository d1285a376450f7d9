//! What a fan-out queue gets that cannot be opened: nothing, so that its parent refuses items, or a place where its
//! copies are kept.
//!
//! The copies of a closed queue `orders+audit` are kept in the queue `orders%2Baudit.kept`. When the closed one is open
//! again, or begins anew, they move to its end before it gets another copy.

use millstream_journal::chain;
use tracing::{info, warn};

use super::Broker;
use super::connection::QueueId;
use super::put::add_target;
use crate::config::OnClosed;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::name;
use crate::storage::Storage;

impl<S: Storage> Broker<S> {
    /// A fan-out queue that is closed is still a member: its settings say whether it may miss an item. Adds the queues
    /// that keep the copies of such members.
    #[cold]
    pub(super) fn closed_children(
        &mut self,
        parent: &str,
        targets: &mut Vec<QueueId>,
        now: Moment,
    ) -> Result<(), QueueError> {
        for child in self.closed.children_of(parent) {
            if self.closed.may_reopen(&child, now) && self.create(&child, now).is_ok() {
                continue;
            }
            match self.config.settings(&child).on_closed {
                OnClosed::Refuse => self.check_not_closed(&child)?,
                OnClosed::Skip => self.closed.skip(&child),
                OnClosed::Keep => add_target(
                    targets,
                    self.get_or_create(&name::place_of_kept(&child), now)?,
                ),
            }
        }
        Ok(())
    }

    /// Moves to a fan-out queue that was opened or created what was kept for it.
    pub(super) fn take_kept(&mut self, child: &str, now: Moment) {
        let place = name::place_of_kept(child);
        if name::parent(child).is_none() || !self.names.contains_key(place.as_str()) {
            return;
        }
        if let Err(error) = self.move_kept(&place, child, now) {
            warn!(
                "the copies of queue \"{child}\" that were kept while it was closed stay in \"{place}\": {}; \
                 redrive them from there",
                chain(&error)
            );
        }
    }

    fn move_kept(&mut self, place: &str, child: &str, now: Moment) -> Result<(), QueueError> {
        let mut moved = 0;
        loop {
            match self.redrive(place, child, u64::MAX, now)? {
                0 => break,
                count => moved += count,
            }
        }
        let from = self.names.get(place).copied();
        let to = self.names.get(child).copied();
        let sources = from
            .and_then(|from| self.queue(from))
            .map(|from| from.sources());
        // A flow that repeats an item must find that it is here.
        for (source, next) in sources.into_iter().flatten() {
            if let Some(to) = to.and_then(|to| self.queue_mut(to))
                && to.next_index(source) < next
            {
                to.set_next_index(source, next)?;
            }
        }
        let ids = from
            .and_then(|from| self.queue(from))
            .map(|from| from.known_ids());
        // So must a client that repeats a set.
        if let (Some(ids), Some(to)) = (ids, to.and_then(|to| self.queue_mut(to))) {
            to.learn_ids(ids, now)?;
        }
        let kept = from.and_then(|from| self.queue(from));
        let open = kept.map_or(0, |kept| kept.open_items());
        if open > 0 {
            warn!(
                "{open} item(s) of \"{place}\", which were kept for queue \"{child}\", are open and stay there; redrive them when they are not"
            );
            return Ok(());
        }
        self.delete(place, now)?;
        info!("queue \"{child}\" has got {moved} item(s) that were kept while it was closed");
        Ok(())
    }
}
