//! Requests that may wait: `get`, `gets`, `monitor`.
//!
//! A request that waits stays at the front of the input. After the wait it is parsed again, and resumes after the
//! keys that it has answered.

use super::{Compat, Progress, Session, State};
use crate::broker::{Broker, GetOutcome};
use crate::error::QueueError;
use crate::item::Item;
use crate::moment::Moment;
use crate::protocol::{Get, GetKey, reply};
use crate::storage::Storage;

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
            && let Err(fault) = get
                .keys
                .into_iter()
                .try_for_each(|key| GetKey::parse(key).map(|_| ()))
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
                return self.blocked(State::Waiting {
                    served,
                    queued: false,
                });
            }
            let got = if std::mem::take(&mut queued) {
                match broker.resume(self.id, &key, now) {
                    Ok(None) => Ok(GetOutcome::Waiting),
                    Ok(Some(got)) => Ok(got),
                    Err(error) => Err(error),
                }
            } else {
                broker.get(self.id, &key, now)
            };
            match got {
                Ok(GetOutcome::Item(item)) => {
                    self.write_item(word, &key, None, &item, get.with_id);
                }
                Ok(GetOutcome::ItemOf(item, queue)) => {
                    self.write_item(word, &key, Some(&queue), &item, get.with_id);
                }
                Ok(GetOutcome::Nothing) => {}
                Ok(outcome @ (GetOutcome::Waiting | GetOutcome::Searching)) => {
                    self.is_searching = outcome == GetOutcome::Searching;
                    return self.blocked(State::Waiting {
                        served,
                        queued: true,
                    });
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
                ..GetKey::default()
            };
            let got = if std::mem::take(&mut waiting) {
                broker
                    .resume(self.id, &key, now)
                    .map(|got| got.unwrap_or(GetOutcome::Waiting))
            } else if self.output.len() >= self.options.output_bytes {
                return self.blocked(State::Monitoring {
                    until_us,
                    left,
                    waiting: false,
                });
            } else {
                broker.monitor(self.id, &key, usize::MAX, now)
            };
            match got {
                Ok(GetOutcome::Item(item)) => {
                    self.write_value(name.as_bytes(), name, &item, false);
                    self.write(reply::END);
                    left -= 1;
                }
                Ok(outcome @ (GetOutcome::Waiting | GetOutcome::Searching)) => {
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

    /// Writes an item; `queue` is that of several from which it comes.
    #[inline]
    fn write_item(
        &mut self,
        word: &[u8],
        key: &GetKey<'_>,
        queue: Option<&str>,
        item: &Item,
        with_id: bool,
    ) {
        let name = queue.unwrap_or(key.name);
        if !key.details {
            return self.write_value(word, name, item, with_id);
        }
        let key = match queue {
            Some(queue) => queue.as_bytes(),
            None => self.reply_key(word, name),
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
        reply::server_error(&mut self.output, error);
        Progress::Done
    }
}
