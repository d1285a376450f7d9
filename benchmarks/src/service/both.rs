//! The two ends of a run, and the comparison of what they sent and received.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use millstream_wire::Cause;
use serde::{Deserialize, Serialize};

use crate::figures::Latency;
use crate::program::Program;

/// What a consumer has seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Consumed {
    /// From due to read, for the calls after the warm-up.
    pub latency: Latency,
    /// Calls per second, from the first to the last of them.
    pub rate: f64,
    /// All calls, those of the warm-up too.
    pub received: u64,
    /// Of all fields of all calls.
    pub digest: u64,
}

/// What a publisher has sent, computed again after the run, so that it costs no time in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Sent {
    /// All calls.
    pub sent: u64,
    /// Of all fields of all calls, as the consumer takes it.
    pub digest: u64,
}

/// Publishes on this thread while the consumer, a process of its own, takes what comes.
pub(super) fn both(
    program: &Program,
    consumer: &[String],
    publish: impl FnOnce() -> Result<Sent, Cause>,
    stop: &AtomicBool,
) -> Result<Consumed, Cause> {
    let failed = AtomicBool::new(false);
    // Without the end of the publisher the consumer would wait for ever.
    let ended = || stop.load(Relaxed) || failed.load(Relaxed);
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| program.run_json_until(consumer, ended));
        let published = publish();
        failed.store(published.is_err(), Relaxed);
        let consumed = consumer
            .join()
            .map_err(|_| "the consumer's thread panicked")?;
        let sent = published?;
        compared(sent, serde_json::from_value(consumed?)?, stop)
    })
}

/// What the consumer has seen, if that is what was sent; a run that was stopped may end in the middle.
fn compared(sent: Sent, consumed: Consumed, stop: &AtomicBool) -> Result<Consumed, Cause> {
    let received = Sent {
        sent: consumed.received,
        digest: consumed.digest,
    };
    if stop.load(Relaxed) {
        return Ok(consumed);
    }
    if sent.sent == 0 {
        return Err("the run does not count: the publisher has started too late".into());
    }
    if sent == received {
        return Ok(consumed);
    }
    Err(format!(
        "the run does not count: {} calls with the digest {:016x} were sent, {} with {:016x} received",
        sent.sent, sent.digest, received.sent, received.digest
    )
    .into())
}

#[cfg(test)]
mod tests {
    use hdrhistogram::Histogram;

    use super::*;

    fn consumed(received: u64, digest: u64) -> Consumed {
        let histogram = Histogram::new(3).unwrap();
        Consumed {
            latency: Latency::of(&histogram),
            rate: 0.0,
            received,
            digest,
        }
    }

    #[test]
    fn a_run_counts_only_if_what_was_sent_was_received() {
        let sent = Sent { sent: 3, digest: 7 };
        let stop = AtomicBool::new(false);
        assert!(compared(sent, consumed(3, 7), &stop).is_ok());
        for (received, digest) in [(2, 7), (3, 6)] {
            let error = compared(sent, consumed(received, digest), &stop).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("the run does not count: 3 calls")
            );
        }
        let nothing = Sent { sent: 0, digest: 0 };
        assert!(compared(nothing, consumed(0, 0), &stop).is_err());
        stop.store(true, Relaxed);
        assert!(compared(sent, consumed(2, 6), &stop).is_ok());
    }
}
