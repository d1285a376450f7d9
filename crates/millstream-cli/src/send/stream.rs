//! One stream of `millstream send`: a socket and its position in the messages.
//!
//! The invariant: `sent` messages have been handed to the socket in full; `at` is the first byte that has not.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_flow::clock;

use super::load::Load;
use crate::failure::Failure;
use crate::stop::Stop;

/// The most that one write hands to the socket, so that no stream keeps the others waiting.
const WRITE_BYTES: usize = 64 * 1024;

/// What a call of [`Stream::write`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// All that was asked for.
    All,
    /// Not all, but there may be room for more.
    Some,
    /// The socket takes no more for now.
    Full,
}

/// A stream.
pub(super) struct Stream {
    pub(super) load: Arc<Load>,
    pub(super) to: SocketAddr,
    pub(super) socket: TcpStream,
    /// How many messages to send in all.
    pub(super) limit: u64,
    /// Messages handed to the socket in full.
    pub(super) sent: u64,
    /// Their bytes, and those of a message that was begun.
    pub(super) bytes: u64,
    pub(super) writes: u64,
    /// When the last write returned.
    pub(super) last_ns: u64,
    /// How late each message was, in us: as late as the oldest of its write. What was due and never sent is in it too.
    pub(super) lag_us: Histogram<u64>,
    /// Whether the socket was full at the last write.
    pub(super) full: bool,
    /// With writes that are held together: none before this.
    pub(super) not_before_ns: u64,
    at: usize,
    index: usize,
}

impl Stream {
    pub(super) fn new(
        load: Arc<Load>,
        to: SocketAddr,
        socket: TcpStream,
        limit: u64,
    ) -> Result<Self, Failure> {
        let lag_us = lag_histogram().map_err(Failure::failed)?;
        Ok(Self {
            load,
            to,
            socket,
            limit,
            sent: 0,
            bytes: 0,
            writes: 0,
            last_ns: 0,
            lag_us,
            full: false,
            not_before_ns: 0,
            at: 0,
            index: 0,
        })
    }

    /// Whether all messages are out.
    pub(super) fn done(&self) -> bool {
        self.sent >= self.limit
    }

    /// Whether a message is out in part.
    pub(super) fn within_message(&self) -> bool {
        self.at
            != if self.index == 0 {
                0
            } else {
                self.load.ends[self.index - 1]
            }
    }

    /// Write once, of the messages that are still missing to `until` in all.
    pub(super) fn write(&mut self, until: u64) -> Result<Wrote, Failure> {
        let left_in_load = self.load.ends.len() - self.index;
        let count = usize::try_from(until.saturating_sub(self.sent)).unwrap_or(usize::MAX);
        if count == 0 {
            return Ok(Wrote::All);
        }
        let last = self.index + count.min(left_in_load) - 1;
        let end = self.load.ends[last].min(self.at + WRITE_BYTES);
        let want = end - self.at;
        match self.socket.write(&self.load.data[self.at..end]) {
            Ok(written) => {
                self.advance(written);
                self.writes += 1;
                self.full = written < want;
                Ok(match (self.full, self.sent >= until) {
                    (true, _) => Wrote::Full,
                    (_, true) => Wrote::All,
                    _ => Wrote::Some,
                })
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Wrote::Some),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.full = true;
                Ok(Wrote::Full)
            }
            Err(error) => {
                let to = self.to;
                let sent = self.sent;
                Err(Failure::failed(format!(
                    "the connection to {to} was lost after {sent} messages: {error}"
                )))
            }
        }
    }

    #[inline]
    fn advance(&mut self, written: usize) {
        self.at += written;
        self.bytes += written as u64;
        let rest = &self.load.ends[self.index..];
        let complete = rest.iter().take_while(|&&end| end <= self.at).count();
        self.sent += complete as u64;
        self.index += complete;
        if self.index == self.load.ends.len() {
            (self.index, self.at) = (0, 0);
        }
    }
}

/// The longest lag that is recorded, a day in us. Longer ones count as that.
const LONGEST_LAG_US: u64 = 24 * 3600 * 1_000_000;

/// An empty histogram of lags. Its bounds are fixed: `saturating_record_n` never makes a histogram larger, it books a
/// value above the largest bucket in that bucket.
fn lag_histogram() -> Result<Histogram<u64>, hdrhistogram::CreationError> {
    Histogram::new_with_bounds(1, LONGEST_LAG_US, 3)
}

/// Connects, with retries until the receiver listens.
#[expect(
    clippy::disallowed_methods,
    reason = "the load generator has no other work while it waits for the listener"
)]
pub(super) fn connect(
    to: SocketAddr,
    timeout: Duration,
    stop: &Stop,
) -> Result<TcpStream, Failure> {
    let give_up_ns = clock::now_ns().saturating_add(timeout.as_nanos() as u64);
    loop {
        let left = Duration::from_nanos(give_up_ns.saturating_sub(clock::now_ns()))
            .max(Duration::from_millis(1));
        let error = match TcpStream::connect_timeout(&to, left) {
            Ok(socket) => {
                socket
                    .set_nodelay(true)
                    .and_then(|()| socket.set_nonblocking(true))
                    .map_err(Failure::failed)?;
                return Ok(socket);
            }
            Err(error) => error,
        };
        let retry = matches!(
            error.kind(),
            ErrorKind::ConnectionRefused | ErrorKind::Interrupted
        );
        if !retry || clock::now_ns() >= give_up_ns || stop.requested() {
            return Err(Failure::failed(format!("cannot connect to {to}: {error}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
