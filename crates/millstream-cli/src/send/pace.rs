//! The schedule, and the loop that follows it.
//!
//! The loop looks at the clock, writes to each stream the messages that are due, and waits until the next is. It waits
//! precisely: a sleep up to 50 us before, then a spin, because a sleep wakes some tens of us late.

use std::time::Duration;

use millstream_flow::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::stream::{Stream, Wrote};
use crate::failure::Failure;
use crate::stop::Stop;

/// A sleep wakes late by less than this, as a rule.
const SPIN_NS: u64 = 50_000;
/// The longest wait without a look at the signals.
const LONGEST_WAIT_NS: u64 = 100_000_000;
/// How long a stream may take to catch up after its time, or to end the message that it has begun.
const GRACE_NS: u64 = 1_000_000_000;
/// Into about so many groups messages that were not sent are divided, to be booked.
const UNSENT_GROUPS: u64 = 100_000;

/// When each message is due.
#[derive(Debug)]
pub(super) struct Schedule {
    /// When message 0 is due, CLOCK_MONOTONIC.
    pub(super) start_ns: u64,
    /// Messages per second and stream; none: all are due at once.
    pub(super) rate: Option<f64>,
    chunk_ns: u64,
    seconds: Option<Duration>,
}

impl Schedule {
    pub(super) fn new(
        rate: Option<f64>,
        start_at: Option<u64>,
        chunk_us: u32,
        seconds: Option<Duration>,
    ) -> Self {
        let start_ns = start_at.unwrap_or_else(clock::now_ns);
        Self {
            start_ns,
            rate,
            chunk_ns: u64::from(chunk_us) * 1000,
            seconds,
        }
    }

    /// Limit the streams to what is due within the time.
    pub(super) fn bound(&self, streams: &mut [Stream]) {
        if let (Some(rate), Some(seconds)) = (self.rate, self.seconds) {
            let most = (rate * seconds.as_secs_f64()).round() as u64;
            streams
                .iter_mut()
                .for_each(|stream| stream.limit = stream.limit.min(most));
        }
    }

    /// When message `index` is due.
    #[inline]
    pub(super) fn due_ns(&self, index: u64) -> u64 {
        self.start_ns
            + self
                .rate
                .map_or(0, |rate| (index as f64 * 1e9 / rate) as u64)
    }

    /// How many messages are due by now.
    #[inline]
    pub(super) fn due(&self, now_ns: u64) -> u64 {
        match self.rate {
            _ if now_ns < self.start_ns => 0,
            None => u64::MAX,
            Some(rate) => ((now_ns - self.start_ns) as f64 * rate / 1e9) as u64 + 1,
        }
    }

    /// How many messages of a stream of `limit` messages were due by `end_ns`, when the schedule was left. With no rate
    /// there is nothing that had to be sent by a moment.
    pub(super) fn ordered(&self, limit: u64, end_ns: u64) -> u64 {
        match self.rate {
            None => 0,
            Some(_) => limit.min(self.due(end_ns)),
        }
    }

    /// When to end even if messages are missing.
    fn end_ns(&self) -> u64 {
        let grace = if self.rate.is_some() { GRACE_NS } else { 0 };
        self.seconds.map_or(u64::MAX, |seconds| {
            self.start_ns + seconds.as_nanos() as u64 + grace
        })
    }
}

/// Send all streams by the schedule. Returns when the schedule was left, and how that went; what was due by then and
/// not sent is booked as late as it was then.
pub(super) fn send_all(
    streams: &mut [Stream],
    schedule: &Schedule,
    stop: &Stop,
) -> (u64, Result<(), Failure>) {
    let sent = follow(streams, schedule, stop);
    let end_ns = clock::now_ns();
    if schedule.rate.is_some() {
        for stream in streams.iter_mut() {
            book_unsent(stream, schedule, end_ns);
        }
    }
    (end_ns, sent)
}

/// Books the messages that were due by `end_ns` and not sent, in groups: each message counts as late as the first of
/// its group.
fn book_unsent(stream: &mut Stream, schedule: &Schedule, end_ns: u64) {
    let due = schedule.ordered(stream.limit, end_ns);
    let group = (due.saturating_sub(stream.sent) / UNSENT_GROUPS).max(1);
    let mut index = stream.sent;
    while index < due {
        let count = group.min(due - index);
        let lag_us = end_ns.saturating_sub(schedule.due_ns(index)) / 1000;
        stream.lag_us.saturating_record_n(lag_us, count);
        index += count;
    }
}

/// The loop of [`send_all`].
fn follow(streams: &mut [Stream], schedule: &Schedule, stop: &Stop) -> Result<(), Failure> {
    let end_ns = schedule.end_ns();
    let mut now_ns = clock::now_ns();
    while !stop.requested() && now_ns < end_ns {
        let mut next_ns = u64::MAX;
        for stream in streams.iter_mut().filter(|stream| !stream.done()) {
            (now_ns, next_ns) =
                send_due(stream, schedule, now_ns).map(|next| (next.0, next_ns.min(next.1)))?;
        }
        if streams.iter().all(Stream::done) {
            break;
        }
        now_ns = wait(streams, now_ns, next_ns.min(end_ns), stop)?;
    }
    streams.iter_mut().try_for_each(end_message)
}

/// One write of what is due of one stream. Returns the time, and when to come back; a full socket has no such time.
#[inline]
fn send_due(stream: &mut Stream, schedule: &Schedule, now_ns: u64) -> Result<(u64, u64), Failure> {
    if now_ns < stream.not_before_ns {
        return Ok((now_ns, stream.not_before_ns));
    }
    let until = schedule.due(now_ns).min(stream.limit);
    if until <= stream.sent {
        return Ok((now_ns, schedule.due_ns(stream.sent).max(now_ns + 1)));
    }
    let oldest_due_ns = schedule.due_ns(stream.sent);
    let before = stream.bytes;
    let sent = stream.sent;
    let wrote = stream.write(until)?;
    let now_ns = clock::now_ns();
    if stream.bytes > before {
        stream.last_ns = now_ns;
        if schedule.rate.is_some() {
            let lag_us = now_ns.saturating_sub(oldest_due_ns) / 1000;
            stream
                .lag_us
                .saturating_record_n(lag_us, stream.sent - sent);
        }
    }
    let next_ns = match wrote {
        Wrote::Full => u64::MAX,
        Wrote::Some => now_ns,
        Wrote::All if stream.done() => u64::MAX,
        Wrote::All => schedule.due_ns(stream.sent) + schedule.chunk_ns,
    };
    stream.not_before_ns = if wrote == Wrote::All && schedule.chunk_ns > 0 {
        next_ns
    } else {
        0
    };
    Ok((now_ns, next_ns))
}

/// Wait until `next_ns`, or until a full socket has room, and return the time.
#[expect(
    clippy::disallowed_methods,
    reason = "the load generator is its own program: nothing else wants to wake it"
)]
fn wait(streams: &[Stream], now_ns: u64, next_ns: u64, stop: &Stop) -> Result<u64, Failure> {
    let full: Vec<&Stream> = streams
        .iter()
        .filter(|stream| stream.full && !stream.done())
        .collect();
    let mut left_ns = next_ns.saturating_sub(now_ns);
    if !full.is_empty() {
        wait_for_room(&full, left_ns)?;
        return Ok(clock::now_ns());
    }
    while left_ns > SPIN_NS && !stop.requested() {
        std::thread::sleep(Duration::from_nanos(
            (left_ns - SPIN_NS).min(LONGEST_WAIT_NS),
        ));
        left_ns = next_ns.saturating_sub(clock::now_ns());
    }
    loop {
        let now_ns = clock::now_ns();
        if now_ns >= next_ns || stop.requested() {
            return Ok(now_ns);
        }
        std::hint::spin_loop();
    }
}

fn wait_for_room(full: &[&Stream], wait_ns: u64) -> Result<(), Failure> {
    let mut sockets: Vec<PollFd<'_>> = full
        .iter()
        .map(|stream| PollFd::new(&stream.socket, PollFlags::OUT))
        .collect();
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: wait_ns.min(LONGEST_WAIT_NS) as _,
    };
    match poll(&mut sockets, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Failure::failed(format!(
            "cannot wait for the receiver: {error}"
        ))),
    }
}

/// Whatever ended the run, no message is left in part, unless the receiver does not take it.
fn end_message(stream: &mut Stream) -> Result<(), Failure> {
    let give_up_ns = clock::now_ns() + GRACE_NS;
    while stream.within_message() {
        if stream.write(stream.sent + 1)? == Wrote::Full {
            if clock::now_ns() >= give_up_ns {
                return Err(Failure::failed(format!(
                    "{} takes no more: message {} is cut",
                    stream.to, stream.sent
                )));
            }
            wait_for_room(&[stream], LONGEST_WAIT_NS)?;
        }
    }
    Ok(())
}

/// The value of `--rate`.
pub(super) fn parse_rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text
        .parse()
        .map_err(|_| "expected messages per second".to_owned())?;
    if rate > 0.0 && rate.is_finite() {
        Ok(rate)
    } else {
        Err("must be above 0".to_owned())
    }
}

/// The value of an option in seconds.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_due_when_the_schedule_says() {
        let schedule = Schedule::new(Some(1_600_000.0), Some(1000), 0, None);
        assert_eq!(
            (
                schedule.due_ns(0),
                schedule.due_ns(8),
                schedule.due_ns(1_600_000)
            ),
            (1000, 6000, 1_000_001_000)
        );
        assert_eq!(
            (
                schedule.due(999),
                schedule.due(1000),
                schedule.due(1624),
                schedule.due(1625)
            ),
            (0, 1, 1, 2)
        );
        let at_once = Schedule::new(None, Some(1000), 0, None);
        assert_eq!(
            (at_once.due(999), at_once.due(1000), at_once.due_ns(7)),
            (0, u64::MAX, 1000)
        );
        assert_eq!(
            [
                schedule.ordered(10, 999),
                schedule.ordered(10, 1624),
                schedule.ordered(10, 2_000_000),
                at_once.ordered(10, 2000)
            ],
            [0, 1, 10, 0]
        );
    }

    #[test]
    fn rates_and_times_are_positive() {
        assert_eq!(parse_rate("1e6"), Ok(1e6));
        assert!(
            ["0", "-1", "x", "inf", "nan"]
                .iter()
                .all(|text| parse_rate(text).is_err())
        );
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(
            ["-1", "x", "inf"]
                .iter()
                .all(|text| parse_seconds(text).is_err())
        );
    }
}
