//! Requests that do not wait for items: they are answered at once, or after some rounds of work.

use std::sync::Arc;

use millstream_journal::chain;

use super::expiry::expiry_ms;
use super::work::{Task, Work};
use super::{Compat, Progress, ServerCommand, Session, State};
use crate::broker::{Broker, Confirmation, PutOutcome, Status};
use crate::error::QueueError;
use crate::item::NewItem;
use crate::moment::Moment;
use crate::name;
use crate::protocol::{Request, Set, SetKey, Tokens, item_id, reply};
use crate::storage::Storage;

impl Session {
    #[inline]
    pub(super) fn answer<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        request: &Request<'_>,
        now: Moment,
    ) -> Progress {
        match request {
            _ if self.state == State::Unauthenticated && *request != Request::Quit => {
                self.authenticate(request)
            }
            _ if self.grants.is_some() && self.is_denied(request) => {}
            Request::Set(set) => return self.set(broker, set, now),
            Request::Get(get) => return self.get(broker, *get, now),
            Request::Monitor {
                queue,
                seconds,
                items_max,
            } => match name::check(queue) {
                Ok(name) => return self.monitor(broker, name, *seconds, *items_max, now),
                Err(fault) => reply::client_error(&mut self.output, &fault),
            },
            _ => self.answer_other(broker, request, now),
        }
        Progress::Done
    }

    #[inline]
    fn set<S: Storage>(&mut self, broker: &mut Broker<S>, set: &Set<'_>, now: Moment) -> Progress {
        let length = self.output.len();
        match SetKey::parse(set.key) {
            Err(fault) => reply::client_error(&mut self.output, &fault),
            Ok(key) => {
                let item = NewItem {
                    flags: set.flags,
                    expiry_ms: expiry_ms(set.expiry, now),
                    body: set.data,
                    ..NewItem::default()
                };
                match broker.put(&key, &item, now) {
                    Ok(PutOutcome::Stored) => self.write(reply::STORED),
                    Ok(PutOutcome::Refused(_)) => self.write(reply::NOT_STORED),
                    Err(QueueError::BeingCreated { .. }) => {
                        broker.await_creation(self.id);
                        self.state = State::Creating;
                        return Progress::Blocked;
                    }
                    Err(error @ QueueError::NoDedupe { .. }) => {
                        reply::client_error(&mut self.output, &error);
                    }
                    Err(error) => reply::server_error(&mut self.output, &chain(&error)),
                }
            }
        }
        if set.noreply {
            self.output.truncate(length);
        }
        Progress::Done
    }

    #[cold]
    fn answer_other<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        request: &Request<'_>,
        now: Moment,
    ) {
        let length = self.output.len();
        let kestrel = self.options.compat == Compat::Kestrel;
        let mut quiet = false;
        match *request {
            Request::Set(_) | Request::Get(_) | Request::Monitor { .. } => {}
            Request::Delete { queue, noreply } => {
                quiet = noreply;
                self.delete(broker, queue, kestrel, now);
            }
            Request::Flush { queue } => self.with_name(queue, |session, name| {
                let flushed = broker.flush(name, now);
                session.write_or_error(flushed, reply::END);
            }),
            Request::FlushAll { noreply } => {
                let answer: &[u8] = if noreply {
                    b""
                } else if kestrel {
                    reply::FLUSHED_ALL
                } else {
                    reply::OK
                };
                let failed = None;
                self.begin(broker, Task::Flush { answer, failed }, broker.names(), now);
            }
            Request::FlushExpired { queue } => self.with_name(queue, |session, name| {
                session.begin(broker, Task::FlushExpired(0), vec![name.into()], now);
            }),
            Request::FlushAllExpired => {
                self.begin(broker, Task::FlushExpired(0), broker.names(), now)
            }
            Request::Stats { queue } => self.stats(broker, queue, now),
            Request::DumpStats { queues: names } => self.dump_stats(broker, names, now),
            Request::Version => reply::version(&mut self.output),
            Request::Verbosity { noreply } => {
                quiet = noreply;
                self.write(reply::OK);
            }
            Request::Quit => self.state = State::Closed,
            Request::Status { to } => self.status(broker, to),
            Request::Reload => {
                self.command = Some(ServerCommand::Reload);
                self.state = State::Reloading;
            }
            Request::Shutdown if self.options.shutdown => self.shut_down(),
            Request::Shutdown => self.write(reply::ERROR),
            Request::Confirm { queue, count } => self.with_name(queue, |session, name| {
                let confirmed = broker.confirm(session.id, name, count, now);
                session.write_confirmation(confirmed);
            }),
            Request::ConfirmIds { queue, ids } => self.confirm_ids(broker, queue, ids, now),
            Request::Touch(touch) => {
                quiet = touch.noreply;
                self.touch(broker, touch, now);
            }
            Request::Redrive {
                from,
                to,
                items_max,
            } => self.redrive(broker, (from, to), items_max.unwrap_or(u64::MAX), now),
            Request::MetaNoop => self.write(reply::META_NOOP),
        }
        if quiet {
            self.output.truncate(length);
        }
    }

    pub(super) fn with_name(&mut self, bytes: &[u8], then: impl FnOnce(&mut Self, &str)) {
        match name::check(bytes) {
            Ok(name) => then(self, name),
            Err(fault) => reply::client_error(&mut self.output, &fault),
        }
    }

    fn delete<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        queue: &[u8],
        kestrel: bool,
        now: Moment,
    ) {
        self.with_name(queue, |session, name| match broker.delete(name, now) {
            Ok(there) => session.write(if there || kestrel {
                reply::DELETED
            } else {
                reply::NOT_FOUND
            }),
            Err(error) => reply::server_error(&mut session.output, &chain(&error)),
        });
    }

    fn redrive<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        (from, to): (&[u8], &[u8]),
        items_max: u64,
        now: Moment,
    ) {
        self.with_name(from, |session, from| {
            session.with_name(to, |session, to| {
                let task = Task::Redrive {
                    redrive: broker.begin_redrive(from, to, items_max),
                    last: Ok(()),
                };
                session.begin(broker, task, vec![from.into()], now);
            });
        });
    }

    /// Does the first round of a request. Few need another one.
    fn begin<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        task: Task,
        names: Vec<Arc<str>>,
        now: Moment,
    ) {
        self.work = Some(Box::new(Work::new(task, names, now)));
        self.state = State::Working;
        self.work(broker, now);
    }

    /// Does the next round of a request.
    pub(super) fn work<S: Storage>(&mut self, broker: &mut Broker<S>, now: Moment) {
        let out_max = self.work_output_max();
        let out = (&mut self.output, out_max);
        let is_done = match &mut self.work {
            Some(work) => work.round(broker, out, now),
            None => true,
        };
        if is_done {
            (self.work, self.state) = (None, State::Ready);
        }
    }

    fn stats<S: Storage>(&mut self, broker: &mut Broker<S>, queue: Option<&[u8]>, now: Moment) {
        let Some(queue) = queue else {
            broker.server_stats(&mut self.output, now);
            let grants = self.grants.clone();
            let names = self.visible(broker.names());
            return self.begin(broker, Task::Stats { grants }, names, now);
        };
        // `stats items`, `stats slabs` and the like report memcached's memory: the answer is empty.
        if let Ok(name) = name::check(queue)
            && !broker.stats_of(name, &mut self.output, now)
            && let Err(closed) = broker.check_not_closed(name)
        {
            return reply::server_error(&mut self.output, &chain(&closed));
        }
        self.write(reply::END);
    }

    fn dump_stats<S: Storage>(&mut self, broker: &mut Broker<S>, wanted: Tokens<'_>, now: Moment) {
        let wanted: Vec<&str> = wanted.filter_map(|name| name::check(name).ok()).collect();
        let mut names = self.visible(broker.names());
        names.retain(|name| wanted.is_empty() || wanted.contains(&&**name));
        self.begin(broker, Task::DumpStats, names, now);
    }

    fn visible(&self, mut names: Vec<Arc<str>>) -> Vec<Arc<str>> {
        if let Some(grants) = &self.grants {
            names.retain(|name| grants.may_see(name));
        }
        names
    }

    fn status<S: Storage>(&mut self, broker: &mut Broker<S>, to: Option<&[u8]>) {
        let Some(to) = to else {
            let line: &[u8] = match broker.status() {
                Status::Up => b"UP\r\n",
                Status::ReadOnly => b"READONLY\r\n",
                Status::Quiescent => b"QUIESCENT\r\n",
            };
            return self.write(line);
        };
        let to = match to.to_ascii_lowercase().as_slice() {
            b"up" => Status::Up,
            b"readonly" => Status::ReadOnly,
            b"quiescent" => Status::Quiescent,
            _ => {
                return reply::client_error(
                    &mut self.output,
                    &"status is UP, READONLY or QUIESCENT",
                );
            }
        };
        broker.set_status(to);
        self.write(reply::END);
    }

    fn shut_down(&mut self) {
        self.command = Some(ServerCommand::Shutdown);
        self.write(reply::OK);
        self.dismiss();
    }

    fn confirm_ids<S: Storage>(
        &mut self,
        broker: &mut Broker<S>,
        queue: &[u8],
        ids: Tokens<'_>,
        now: Moment,
    ) {
        self.with_name(queue, |session, name| {
            let confirmed = broker.confirm_ids(session.id, name, ids.filter_map(item_id), now);
            session.write_confirmation(confirmed);
        });
    }

    fn write_confirmation(&mut self, confirmed: Confirmation) {
        self.write(match confirmed {
            Confirmation::Confirmed => reply::END,
            Confirmation::NotOpen => reply::NOT_FOUND,
            Confirmation::Fewer => reply::ERROR,
        });
    }

    fn write_or_error<T>(&mut self, outcome: Result<T, QueueError>, reply: &[u8]) {
        match outcome {
            Ok(_) => self.write(reply),
            Err(error) => reply::server_error(&mut self.output, &chain(&error)),
        }
    }
}
