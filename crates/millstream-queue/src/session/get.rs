//! Requests that may wait: `get`, `gets`, `monitor`.
//!
//! A request that waits stays at the front of the input. When its wait has ended it is read again, and goes on behind the keys
//! that it has answered.

use super::{Compat, Progress, Session, State};
use crate::broker::{Broker, Got};
use crate::error::QueueError;
use crate::item::Item;
use crate::moment::Moment;
use crate::protocol::{Get, GetKey, reply};
use crate::storage::Storage;

/// A longer wait ends after this time: a day.
const WAIT_MS_MAX: u64 = 86_400_000;

impl Session {
    #[inline]
    pub(super) fn get<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        get: Get<'_>,
        now: Moment,
    ) -> Progress {
        let (mut served, mut in_line, begun) = match self.state {
            State::Waiting { served, in_line } => (served, in_line, true),
            _ => (0, false, false),
        };
        self.state = State::Ready;
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
            if !in_line && self.output.len() >= self.options.output_bytes {
                return self.blocked(State::Waiting {
                    served,
                    in_line: false,
                });
            }
            let got = if std::mem::take(&mut in_line) {
                match broker.resume(self.id, &key, now) {
                    Ok(None) => Ok(Got::Waiting),
                    Ok(Some(got)) => Ok(got),
                    Err(error) => Err(error),
                }
            } else {
                broker.get(self.id, &key, now)
            };
            match got {
                Ok(Got::Item(item)) if key.details => {
                    let key = self.key_said(word, key.name);
                    reply::value_with_details(&mut self.output, key, &item);
                }
                Ok(Got::Item(item)) => self.say_value(word, key.name, &item, get.with_id),
                Ok(Got::Nothing) => {}
                Ok(Got::Waiting) => {
                    return self.blocked(State::Waiting {
                        served,
                        in_line: true,
                    });
                }
                Ok(Got::NotNow) => {
                    self.say(reply::ERROR);
                    return Progress::Done;
                }
                Err(error) => return self.fail(&error),
            }
            served += 1;
        }
        self.say(reply::END);
        Progress::Done
    }

    /// Items as they come, each open, each with its own `END`; a last `END` when the time is over.
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
        self.state = State::Ready;
        while left > 0 {
            // Rounded up: a wait of less than a millisecond is one all the same.
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
                    .map(|got| got.unwrap_or(Got::Waiting))
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
                Ok(Got::Item(item)) => {
                    self.say_value(name.as_bytes(), name, &item, false);
                    self.say(reply::END);
                    left -= 1;
                }
                Ok(Got::Waiting) => {
                    return self.blocked(State::Monitoring {
                        until_us,
                        left,
                        waiting: true,
                    });
                }
                Ok(Got::Nothing | Got::NotNow) => break,
                Err(error) => return self.fail(&error),
            }
        }
        self.say(reply::END);
        Progress::Done
    }

    #[inline]
    fn say_value(&mut self, word: &[u8], name: &str, item: &Item, with_id: bool) {
        let key = self.key_said(word, name);
        reply::value(
            &mut self.output,
            key,
            item.flags,
            with_id.then_some(item.id),
            &item.body,
        );
    }

    /// How an answer repeats the key.
    #[inline]
    fn key_said<'a>(&self, word: &'a [u8], name: &'a str) -> &'a [u8] {
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
    fn fail(&mut self, error: &QueueError) -> Progress {
        reply::server_error(&mut self.output, error);
        Progress::Done
    }
}
