//! A request about many queues, or about all that has expired in one: it is done in rounds, and only its connection
//! waits.
//!
//! A request is about the queues that exist when it comes, each by its name: what other clients do between two rounds
//! is seen by the queues that come later. The answer of a removal is sent when all is done; `stats` is sent as it is
//! found.

use std::sync::Arc;

use millstream_journal::chain;

use super::rights::Grants;
use crate::broker::{Broker, Redrive};
use crate::error::QueueError;
use crate::moment::Moment;
use crate::protocol::reply;
use crate::round::{self, Round};
use crate::storage::Storage;

/// A request that is not done.
#[derive(Debug)]
pub(super) struct Work {
    task: Task,
    /// The queues that are left.
    names: std::vec::IntoIter<Arc<str>>,
    /// When the request came, on the wall clock.
    asked_ms: u64,
}

/// What a request asks of its queues.
#[derive(Debug)]
pub(super) enum Task {
    /// Removes the items of all queues. One that fails keeps none of the others; the first failure is the answer, or
    /// else this.
    Flush {
        answer: &'static [u8],
        failed: Option<QueueError>,
    },
    /// Moves items of the one queue; how that ended.
    Redrive {
        redrive: Redrive,
        last: Result<(), QueueError>,
    },
    /// Removes what had expired when the request came; so many items so far.
    FlushExpired(u64),
    /// Values of the queues, as `stats` has them. The rights say which closed queues are visible.
    Stats { grants: Option<Arc<Grants>> },
    /// The same as `dump_stats` has them.
    DumpStats,
}

impl Work {
    pub(super) fn new(task: Task, names: Vec<Arc<str>>, now: Moment) -> Self {
        Work {
            task,
            names: names.into_iter(),
            asked_ms: now.wall_ms,
        }
    }

    /// Does a round, of which what is found goes to `out`, as long as that is shorter than `out_max`. Returns whether
    /// all is done, and then the answer is there.
    pub(super) fn round<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        (out, out_max): (&mut Vec<u8>, usize),
        now: Moment,
    ) -> bool {
        let mut round = broker.round();
        while round.has_room() && out.len() < out_max {
            let Some(name) = self.names.as_slice().first().cloned() else {
                self.answer(broker, out);
                return true;
            };
            if self.do_queue(broker, &name, out, now, &mut round) {
                self.names.next();
            }
        }
        false
    }

    /// Does what the request asks of a queue. Returns whether that is done.
    fn do_queue<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        name: &str,
        out: &mut Vec<u8>,
        now: Moment,
        round: &mut Round,
    ) -> bool {
        match &mut self.task {
            Task::Flush { failed, .. } => {
                round.took(round::LOG);
                // A queue that was deleted meanwhile has no items.
                if let Err(error) = broker.flush(name, now) {
                    failed.get_or_insert(error);
                }
            }
            Task::FlushExpired(count) => {
                let asked = Moment {
                    wall_ms: self.asked_ms.min(now.wall_ms),
                    ..now
                };
                let (expired, is_unfinished) = broker.flush_expired(name, asked, round);
                *count += expired;
                return !is_unfinished;
            }
            Task::Redrive { redrive, last } => match broker.redrive_some(redrive, now, round) {
                Ok(is_over) => return is_over,
                Err(error) => *last = Err(error),
            },
            Task::Stats { .. } => {
                round.took(round::QUEUE);
                broker.queue_stats(name, now, |key, value| {
                    reply::stat(out, &format!("queue_{name}_{key}"), &value)
                });
            }
            Task::DumpStats => {
                round.took(round::QUEUE);
                broker.dump_stats_of(name, out, now);
            }
        }
        true
    }

    fn answer<S: Storage>(&mut self, broker: &Broker<S>, out: &mut Vec<u8>) {
        match &mut self.task {
            // The client wants no answer.
            Task::Flush { answer: b"", .. } => {}
            Task::Flush {
                failed: Some(error),
                ..
            } => reply::server_error(out, &chain(error)),
            Task::Flush { answer, .. } => out.extend_from_slice(answer),
            Task::Redrive { redrive, last } => {
                let last = std::mem::replace(last, Ok(()));
                answer_redrive(redrive.outcome(last), out);
            }
            Task::FlushExpired(count) => {
                reply::number(out, *count);
                out.extend_from_slice(b"\r\n");
            }
            Task::Stats { grants } => {
                let is_visible = |name: &str| grants.as_ref().is_none_or(|may| may.may_see(name));
                broker.closed_stats(is_visible, out);
                out.extend_from_slice(reply::END);
            }
            Task::DumpStats => out.extend_from_slice(reply::END),
        }
    }
}

fn answer_redrive(outcome: Result<u64, QueueError>, out: &mut Vec<u8>) {
    match outcome {
        Ok(moved) => {
            reply::number(out, moved);
            out.extend_from_slice(b"\r\n");
        }
        Err(QueueError::Missing(_)) => out.extend_from_slice(reply::NOT_FOUND),
        Err(QueueError::Itself(_)) => {
            reply::client_error(out, &"a queue cannot send items to itself");
        }
        Err(error) => reply::server_error(out, &chain(&error)),
    }
}
