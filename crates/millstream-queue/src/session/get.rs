//! Requests that may wait: `get`, `gets`, `monitor`.
//!
//! A request that waits stays at the front of the input. After the wait it is parsed again, and resumes after the
//! keys that it has answered.

use std::sync::Arc;

use millstream_journal::chain;

use super::batch::{Asked, Batch};
use super::{Compat, Progress, Session, State};
use crate::broker::{Broker, GetOutcome};
use crate::error::QueueError;
use crate::item::Item;
use crate::moment::Moment;
use crate::protocol::{Get, GetKey, reply};
use crate::queue::Next;
use crate::storage::Storage;

/// No line of an item is longer than its key and this.
const LINE_BYTES_MAX: usize = 1 << 10;
/// The longest wait: a day.
const WAIT_MS_MAX: u64 = 86_400_000;

impl Session {
    #[inline]
    pub(super) fn get<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        get: Get<'_>,
        now: Moment,
    ) -> Progress {
        let (mut served, mut queued, begun) = match self.state {
            State::Waiting { served, queued } => (served, queued, true),
            _ => (0, false, false),
        };
        (self.state, self.is_searching) = (State::Ready, false);
        if !begun
            && let Err(fault) = { get.keys }.try_for_each(|key| GetKey::parse(key).map(|_| ()))
        {
            reply::client_error(&mut self.output, &fault);
            return Progress::Done;
        }
        for word in get.keys.skip(served) {
            let Ok(mut key) = GetKey::parse(word) else {
                break;
            };
            key.wait_ms = key.wait_ms.min(WAIT_MS_MAX);
            if !queued && self.output.len() >= self.options.output_bytes {
                return self.blocked(waiting(served, false));
            }
            let asked = Asked {
                word,
                key: &key,
                with_id: get.with_id,
            };
            let got = if !std::mem::take(&mut queued) {
                broker.get(self.id, &key, now)
            } else if self.batch.is_some() {
                // Its first items were sent.
                Ok(GetOutcome::Nothing)
            } else {
                resumed(broker.resume(self.id, &key, now))
            };
            match got {
                Ok(GetOutcome::Item(item)) => self.write_found(&asked, None, &item),
                Ok(GetOutcome::ItemOf(item, queue)) => {
                    self.write_found(&asked, Some(&queue), &item);
                }
                Ok(GetOutcome::Nothing) => {}
                Ok(
                    outcome @ (GetOutcome::Waiting | GetOutcome::Searching | GetOutcome::Creating),
                ) => {
                    self.is_searching = outcome == GetOutcome::Searching;
                    return self.blocked(waiting(served, true));
                }
                Ok(GetOutcome::Refused) => {
                    self.write(reply::ERROR);
                    return Progress::Done;
                }
                Ok(GetOutcome::NotOpen) => {
                    self.write(reply::NOT_FOUND);
                    return Progress::Done;
                }
                Err(error) => return self.write_error(&error),
            }
            if key.items_max.is_some() && !self.take_batch(broker, &asked, now) {
                self.is_searching = true;
                return self.blocked(waiting(served, true));
            }
            served += 1;
        }
        self.write(reply::END);
        Progress::Done
    }

    /// Sends items as they come, each open and each with its own `END`; a last `END` follows when the time is over.
    pub(super) fn monitor<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        name: &str,
        seconds: u64,
        items_max: Option<u64>,
        now: Moment,
    ) -> Progress {
        let (until_us, mut left, mut waiting) = match self.state {
            State::Monitoring {
                until_us,
                left,
                waiting,
            } => (until_us, left, waiting),
            _ => {
                let wait_ms = seconds.saturating_mul(1_000).min(WAIT_MS_MAX);
                (
                    now.steady_us.saturating_add(wait_ms * 1_000),
                    items_max.unwrap_or(u64::MAX),
                    false,
                )
            }
        };
        (self.state, self.is_searching) = (State::Ready, false);
        while left > 0 {
            // Rounded up: a wait of less than a millisecond is still a wait.
            let wait_ms = until_us.saturating_sub(now.steady_us).div_ceil(1_000);
            let key = GetKey {
                name,
                open: true,
                wait_ms,
                items_max: Some(left),
                ..GetKey::default()
            };
            let got = if std::mem::take(&mut waiting) {
                resumed(broker.resume(self.id, &key, now))
            } else if self.output.len() >= self.options.output_bytes {
                return self.blocked(State::Monitoring {
                    until_us,
                    left,
                    waiting: false,
                });
            } else {
                broker.get(self.id, &key, now)
            };
            match got {
                Ok(GetOutcome::Item(item)) => {
                    self.write_value(name.as_bytes(), name, &item, false);
                    self.write(reply::END);
                    left -= 1;
                }
                Ok(
                    outcome @ (GetOutcome::Waiting | GetOutcome::Searching | GetOutcome::Creating),
                ) => {
                    self.is_searching = outcome == GetOutcome::Searching;
                    return self.blocked(State::Monitoring {
                        until_us,
                        left,
                        waiting: true,
                    });
                }
                Ok(_) => break,
                Err(error) => return self.write_error(&error),
            }
        }
        self.write(reply::END);
        Progress::Done
    }

    /// Writes the item that a key has found, the first one of a batch.
    #[inline]
    fn write_found(&mut self, asked: &Asked<'_>, queue: Option<&Arc<str>>, item: &Item) {
        let before = self.output.len();
        self.write_item(asked, queue.map(|queue| &**queue), item);
        if let Some(items_max) = asked.key.items_max {
            let bytes = self.output.len() - before;
            self.batch = Some(Batch::after_first(bytes, queue.cloned(), items_max));
        }
    }

    /// Does a round of the batch, if there is one. Returns whether it is complete.
    #[cold]
    pub(super) fn take_batch<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        asked: &Asked<'_>,
        now: Moment,
    ) -> bool {
        let Some(mut batch) = self.batch.take() else {
            return true;
        };
        let name = batch.queue.as_deref().unwrap_or(asked.key.name);
        let line_bytes = asked.word.len() + LINE_BYTES_MAX;
        let mut round = broker.round();
        while batch.left > 0 && round.has_room() {
            let used = batch.bytes.saturating_add(line_bytes);
            let room = self.options.output_bytes.saturating_sub(used);
            // As for one item: it ends all delays that are over, so that items are in order.
            let mut search = broker.round();
            let units = search.left();
            let next = broker.take_more(self.id, (name, asked.key), room, now, &mut search);
            round.took(units - search.left());
            match next {
                Next::Item(item) => {
                    let before = self.output.len();
                    self.write_item(asked, batch.queue.as_deref(), &item);
                    batch.bytes += self.output.len() - before;
                    batch.left -= 1;
                    round.took_item(item.body.len());
                }
                Next::Nothing => return true,
                Next::Unfinished => {}
            }
        }
        let is_complete = batch.left == 0;
        if !is_complete {
            self.batch = Some(batch);
        }
        is_complete
    }

    /// Writes an item; `queue` is that of several from which it comes.
    #[inline]
    pub(super) fn write_item(&mut self, asked: &Asked<'_>, queue: Option<&str>, item: &Item) {
        let name = queue.unwrap_or(asked.key.name);
        if !asked.key.details {
            return self.write_value(asked.word, name, item, asked.with_id);
        }
        let key = match queue {
            Some(queue) => queue.as_bytes(),
            None => self.reply_key(asked.word, name),
        };
        reply::value_with_details(&mut self.output, key, item);
    }

    #[inline]
    fn write_value(&mut self, word: &[u8], name: &str, item: &Item, with_id: bool) {
        let key = self.reply_key(word, name);
        reply::value(
            &mut self.output,
            key,
            item.flags,
            with_id.then_some(item.id),
            &item.body,
        );
    }

    /// The key in an answer.
    #[inline]
    fn reply_key<'a>(&self, word: &'a [u8], name: &'a str) -> &'a [u8] {
        match self.options.compat {
            Compat::Memcached => word,
            Compat::Kestrel => name.as_bytes(),
        }
    }

    fn blocked(&mut self, until: State) -> Progress {
        self.state = until;
        Progress::Blocked
    }

    #[cold]
    fn write_error(&mut self, error: &QueueError) -> Progress {
        reply::server_error(&mut self.output, &chain(error));
        Progress::Done
    }
}

/// The outcome of a wait, which resumes where there is none.
#[inline]
fn resumed(got: Result<Option<GetOutcome>, QueueError>) -> Result<GetOutcome, QueueError> {
    got.map(|got| got.unwrap_or(GetOutcome::Waiting))
}

/// The state of a `get` of which so many keys are answered; `queued` if the next one has begun.
fn waiting(served: usize, queued: bool) -> State {
    State::Waiting { served, queued }
}
