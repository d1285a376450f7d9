//! One connection as a task: read once, do the requests, write once.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::{debug, info, warn};

use super::attempts::{PENALTY, ThrottleKey};
use super::core::{ConnectionEntry, Core, State};
use crate::address::Address;
use crate::broker::EndedBy;
use crate::clock;
use crate::moment::Moment;
use crate::session::{ServerCommand, Session};

/// A connection that always has work yields to the others after this many rounds: each is a read or the end of a
/// wait, and the write of the answers.
const ROUNDS_MAX: usize = 4;

/// A connection with no more memory than this is not closed for lack of memory.
const BUFFER_BYTES_SMALL: usize = 128 << 10;

/// The time until the runtime has looked at all sockets.
type Turn = Pin<Box<dyn Future<Output = ()>>>;

/// Serves a connection until it ends.
pub(super) async fn serve<T: AsyncRead + AsyncWrite + Unpin>(
    core: Rc<Core>,
    stream: T,
    session: Session,
    (peer, throttle_key): (Address, ThrottleKey),
) {
    let now_us = clock::now().steady_us;
    let mut connection = Connection {
        core,
        stream,
        session,
        held: Vec::new(),
        buffer_bytes: 0,
        peer,
        throttle_key,
        turn: None,
        penalty: None,
        throttle: None,
        commit: None,
        begun: None,
        half_since_us: None,
        waiting_us: None,
        connected_us: now_us,
        now_us,
        ended: EndedBy::Server,
    };
    let outcome = poll_fn(|context| connection.poll(context)).await;
    connection.end();
    if connection.session.is_foreign() {
        log_rejected(&connection.peer, "not the memcache text protocol");
    }
    if let Err(error) = outcome {
        match error.kind() {
            io::ErrorKind::OutOfMemory => log_rejected(&connection.peer, &error.to_string()),
            _ => debug!("{}: {error}", connection.peer),
        }
    }
    // The peer may not have read everything yet; a failure of the shutdown changes nothing.
    let _ = poll_fn(|context| Pin::new(&mut connection.stream).poll_shutdown(context)).await;
}

struct Connection<T> {
    core: Rc<Core>,
    stream: T,
    session: Session,
    /// What was read while nothing was done, see [`State::is_held`].
    held: Vec<u8>,
    /// The session's memory when it was counted last.
    buffer_bytes: usize,
    peer: Address,
    /// The client's origin, for password attempts.
    throttle_key: ThrottleKey,
    /// The others come first: ready when it is this connection's turn again.
    turn: Option<Turn>,
    /// The output is delayed until this time, since a password was wrong.
    penalty: Option<Pin<Box<tokio::time::Sleep>>>,
    /// No password is checked before this time, since a password from the same origin was wrong.
    throttle: Option<Pin<Box<tokio::time::Sleep>>>,
    /// The output waits for this commit.
    commit: Option<u64>,
    /// When the requests whose output is pending arrived, and whether there is a `set` among them.
    begun: Option<(u64, bool)>,
    /// When the incomplete request began to arrive.
    half_since_us: Option<u64>,
    /// Since when the peer has not read the output.
    waiting_us: Option<u64>,
    /// The time at which it began.
    connected_us: u64,
    /// The time of the last activity.
    now_us: u64,
    /// The side that ends the connection.
    ended: EndedBy,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let core = Rc::clone(&self.core);
        core.with(|state| {
            let polled = self.poll_with(state, context);
            if self.count_buffers(state) {
                polled
            } else {
                Poll::Ready(Err(io::Error::new(
                    io::ErrorKind::OutOfMemory,
                    "the buffers of all connections hold as much as limits.memory_bytes allows",
                )))
            }
        })
    }

    fn poll_with(&mut self, state: &mut State, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.register(state, context);
        let options = state.live.session(self.session.options().compat);
        if !Arc::ptr_eq(options, self.session.options()) {
            self.session.set_options(options);
        }
        // This comes first: a peer that reads no answer times out too.
        if state
            .entry(self.session.id())
            .is_none_or(|entry| entry.timed_out)
        {
            let error = io::Error::new(io::ErrorKind::TimedOut, "used up its time");
            return Poll::Ready(Err(error));
        }
        if let Some(turn) = &mut self.turn
            && turn.as_mut().poll(context).is_pending()
        {
            return self.pause(state);
        }
        self.turn = None;
        for _ in 0..ROUNDS_MAX {
            if let Some(penalty) = &mut self.penalty {
                if penalty.as_mut().poll(context).is_pending() && !self.core.is_stopping() {
                    return self.pause(state);
                }
                self.penalty = None;
            }
            if !self.session.output().is_empty() {
                match self.poll_send(state, context) {
                    Poll::Ready(Ok(())) => {}
                    other => return other,
                }
            }
            if self.session.is_closed() {
                self.ended = self.session.ended();
                return Poll::Ready(Ok(()));
            }
            if self.session.is_unauthenticated() {
                if !self.is_throttled(state, context) {
                    self.session.release();
                } else if self.core.is_stopping() {
                    return Poll::Ready(Ok(()));
                }
            }
            if state.is_held {
                return self.read_ahead(state, context);
            }
            if self.take_held(state) {
                continue;
            }
            let Some(entry) = state.entry(self.session.id()) else {
                return Poll::Ready(Ok(()));
            };
            if std::mem::take(&mut entry.woken) || self.session.has_work() {
                let now = self.read_clock();
                self.begun.get_or_insert((now.steady_us, false));
                self.session.resume(&mut state.broker, now);
                self.after_requests(state, now);
            } else if !self.session.wants_input() {
                return self.pause(state);
            } else if let Some(end) = self.poll_input(state, context) {
                return end;
            }
            if self.session.is_between_rounds() {
                break;
            }
        }
        self.end_turn(context);
        self.pause(state)
    }

    /// The other connections come first, also those whose input has not been noticed yet: so this is no mere waking.
    fn end_turn(&mut self, context: &mut Context<'_>) {
        let mut turn: Turn = Box::pin(tokio::task::yield_now());
        if turn.as_mut().poll(context).is_pending() {
            self.turn = Some(turn);
        }
    }

    /// Reads once, and does the requests. Returns what ends this turn of the connection, if anything does.
    #[inline]
    fn poll_input(
        &mut self,
        state: &mut State,
        context: &mut Context<'_>,
    ) -> Option<Poll<io::Result<()>>> {
        let mut buffer = ReadBuf::new(&mut state.buffer);
        match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
            Poll::Pending if self.core.is_stopping() => Some(Poll::Ready(Ok(()))),
            Poll::Pending => Some(self.pause(state)),
            Poll::Ready(Err(error)) => Some(self.lost(Err(error))),
            Poll::Ready(Ok(())) => match buffer.filled().len() {
                0 => Some(self.lost(Ok(()))),
                length => {
                    self.received(state, length);
                    None
                }
            },
        }
    }

    /// Does the requests that were read while nothing was done. Returns whether there were any.
    #[inline]
    fn take_held(&mut self, state: &mut State) -> bool {
        if self.held.is_empty() {
            return false;
        }
        let held = std::mem::take(&mut self.held);
        state.buffer[..held.len()].copy_from_slice(&held);
        self.received(state, held.len());
        true
    }

    /// Reads what the client sends while nothing is done, so that a client that has gone is noticed: what it asked is
    /// not done later.
    #[cold]
    fn read_ahead(&mut self, state: &mut State, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.held.len() < state.buffer.len() {
            let room = state.buffer.len() - self.held.len();
            let mut buffer = ReadBuf::new(&mut state.buffer[..room]);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return self.lost(Err(error)),
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => return self.lost(Ok(())),
                Poll::Ready(Ok(())) => self.held.extend_from_slice(buffer.filled()),
            }
        }
        self.pause(state)
    }

    /// The client has ended the connection, or cannot be reached.
    fn lost(&mut self, outcome: io::Result<()>) -> Poll<io::Result<()>> {
        self.ended = EndedBy::Client;
        Poll::Ready(outcome)
    }

    /// Whether a password must not be checked now, since one from the same origin was wrong. The session is held
    /// then.
    #[cold]
    fn is_throttled(&mut self, state: &mut State, context: &mut Context<'_>) -> bool {
        loop {
            if let Some(throttle) = &mut self.throttle {
                if throttle.as_mut().poll(context).is_pending() {
                    return true;
                }
                self.throttle = None;
            }
            // Other connections that waited may have tried before.
            let now_us = clock::steady_us();
            let Some(until_us) = state.attempts.wait_until(self.throttle_key, now_us) else {
                return false;
            };
            let left = Duration::from_micros(until_us - now_us);
            self.throttle = Some(Box::pin(tokio::time::sleep(left)));
            // Reading continues, so that the end of a waiting client is noticed.
            self.session.hold();
        }
    }

    /// Counts the memory of this connection. Returns false if it is too much.
    #[inline]
    fn count_buffers(&mut self, state: &mut State) -> bool {
        let now = self.session.buffer_bytes() + self.held.capacity();
        let before = self.buffer_bytes;
        if now == before {
            return true;
        }
        self.buffer_bytes = now;
        let all = &mut state.broker.counters().memory_buffers;
        *all = (*all + now as u64).saturating_sub(before as u64);
        now < before || now <= BUFFER_BYTES_SMALL || *all <= state.live.limits.memory_buffers()
    }

    #[inline]
    fn read_clock(&mut self) -> Moment {
        let now = clock::now();
        self.now_us = now.steady_us;
        now
    }

    #[inline]
    fn received(&mut self, state: &mut State, length: usize) {
        let now = self.read_clock();
        let sets = state.broker.counters().cmd_set;
        state.broker.counters().bytes_read += length as u64;
        self.core.note_read(state);
        let answered = self.session.answered();
        self.session
            .receive(&mut state.broker, &state.buffer[..length], now);
        if self.session.answered() > answered {
            // The incomplete request is a new one.
            self.half_since_us = None;
        }
        self.begun = Some((now.steady_us, state.broker.counters().cmd_set > sets));
        self.after_requests(state, now);
    }

    /// Handles the side effects of requests.
    #[inline]
    fn after_requests(&mut self, state: &mut State, now: Moment) {
        let is_answered = !self.session.output().is_empty();
        if state.broker.take_commit_wanted() || (state.answers_wait && is_answered) {
            self.commit = Some(state.commits_begun);
            self.core.commit_wanted.notify_one();
        }
        if let Some(name) = self.session.take_refused() {
            warn!(
                "{}: wrong password for {name:?}; the next one from there is looked at in {PENALTY:?}",
                self.peer
            );
            state.broker.counters().auth_failures += 1;
            state.attempts.failed(self.throttle_key, now.steady_us);
            self.penalty = Some(Box::pin(tokio::time::sleep(PENALTY)));
        }
        let (denials, why) = self.session.take_denials();
        if denials > 0 {
            state.broker.counters().denials += denials;
            if let Some(why) = why {
                warn!("{}: {why}", self.peer);
            }
        }
        match self.session.take_command() {
            None => {}
            Some(ServerCommand::Reload) => {
                let outcome = self.core.reload(state);
                self.session.reloaded(&outcome);
            }
            Some(ServerCommand::Shutdown) => self.core.shut_down(),
        }
        self.half_since_us = if self.session.is_half_sent() {
            self.half_since_us.or(Some(now.steady_us))
        } else {
            None
        };
        if self.session.is_waiting() || self.session.is_unauthenticated() {
            // A wait does not count as latency: the time from its end does.
            self.begun = None;
        }
        self.core.wake_and_set_timer(state);
    }

    /// Sends the output, once it may be visible.
    fn poll_send(&mut self, state: &mut State, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(commit) = self.commit {
            if state.commits <= commit {
                state.uncommitted.push((commit, context.waker().clone()));
                return self.pause(state);
            }
            if state.failed_commits.contains(&commit) {
                // The output promises durability that was not reached.
                return Poll::Ready(Err(io::Error::other("its items could not be made durable")));
            }
            self.commit = None;
        }
        while !self.session.output().is_empty() {
            match Pin::new(&mut self.stream).poll_write(context, self.session.output()) {
                Poll::Pending => {
                    self.waiting_us
                        .get_or_insert_with(|| clock::now().steady_us);
                    return self.pause(state);
                }
                Poll::Ready(Ok(0)) => return self.lost(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(sent)) => {
                    state.broker.counters().bytes_written += sent as u64;
                    self.session.sent(sent);
                    self.waiting_us = None;
                }
                Poll::Ready(Err(error)) => return self.lost(Err(error)),
            }
        }
        if let Some((begun_us, set)) = self.begun.take() {
            let spent_us = clock::steady_us() - begun_us;
            state.broker.latencies().request_us(set, spent_us);
        }
        // A TLS stream buffers what it could not write yet.
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.pause(state),
            ready => ready,
        }
    }

    /// Waits for the next event. The entry says until when.
    fn pause(&mut self, state: &mut State) -> Poll<io::Result<()>> {
        let limits = &state.live.limits;
        let limit = |since_us: u64, time: Duration| match time {
            Duration::ZERO => u64::MAX,
            time => since_us.saturating_add(time.as_micros() as u64),
        };
        let busy_since_us = self.waiting_us.or(self.half_since_us);
        let until_us = if self.commit.is_some() {
            u64::MAX
        } else if let Some(since_us) = busy_since_us {
            limit(since_us, limits.request_timeout)
        } else if self.session.is_waiting() {
            u64::MAX
        } else {
            limit(self.now_us, limits.idle_timeout)
        };
        let since_us = self
            .session
            .is_unauthenticated()
            .then_some(self.connected_us);
        let until_us = since_us.map_or(until_us, |since_us| {
            until_us.min(limit(since_us, limits.auth_timeout))
        });
        if let Some(entry) = state.entry(self.session.id()) {
            entry.until_us = until_us;
            entry.may_work = busy_since_us.is_none() && since_us.is_none();
            entry.unauthenticated_since_us = since_us;
        }
        Poll::Pending
    }

    /// Registers the waker of the connection at the first poll.
    fn register(&mut self, state: &mut State, context: &mut Context<'_>) {
        let index = self.session.id().index();
        if state.entries.len() <= index {
            state.entries.resize_with(index + 1, || None);
        }
        if state.entries[index].is_none() {
            let waker = context.waker().clone();
            state.entries[index] = Some(ConnectionEntry {
                waker,
                woken: false,
                timed_out: false,
                until_us: u64::MAX,
                may_work: false,
                unauthenticated_since_us: None,
                peer: self.peer.clone(),
            });
        }
    }

    fn end(&mut self) {
        let core = Rc::clone(&self.core);
        core.with(|state| {
            if let Some(entry) = state.entries.get_mut(self.session.id().index()) {
                *entry = None;
            }
            self.session
                .end(&mut state.broker, self.ended, clock::now());
            state.connections.free(self.throttle_key);
            let all = &mut state.broker.counters().memory_buffers;
            *all = all.saturating_sub(self.buffer_bytes as u64);
            core.wake_and_set_timer(state);
        });
        core.connection_ended();
    }
}

/// Logs why a connection was rejected.
pub(super) fn log_rejected(peer: &Address, why: &str) {
    info!("{peer}: turned away: {why}");
}
