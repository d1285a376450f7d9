//! File descriptors: each connection takes one, each queue some, and the server must never run out.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// The descriptors for everything else: listeners, signals, the runtime, files that are read at a reload, a queue
/// that is being opened.
const OTHERS: u64 = 64;
/// The most descriptors of the journal of a queue.
const OF_A_QUEUE: u64 = 4;

/// Raises the soft limit to the hard limit. Returns the limit.
pub(super) fn raise() -> u64 {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: before.maximum,
        ..before
    };
    if before.current != before.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        warn!(
            "the limit on open files stays {:?}: {error}",
            before.current
        );
    }
    limit()
}

/// Returns the limit on the open files of this process.
pub(super) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The limit on open logs, however many descriptors there are: each has its segments mapped as well.
const OPEN_LOGS_MAX: u64 = 2048;
const OPEN_LOGS_MIN: u64 = 16;

/// The number of logs that may be open: most of 1,024 descriptors, or as many as a busy server needs.
pub(super) fn open_logs_max(descriptors: u64) -> usize {
    let logs = descriptors.saturating_sub(OTHERS) / (OF_A_QUEUE + 1);
    logs.clamp(OPEN_LOGS_MIN, OPEN_LOGS_MAX) as usize
}

/// The number of connections that are possible with this number of queues.
pub(super) fn connections_max(descriptors: u64, queues: usize) -> usize {
    let taken = OTHERS + OF_A_QUEUE * queues.min(open_logs_max(descriptors)) as u64;
    usize::try_from(descriptors.saturating_sub(taken)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_come_before_connections() {
        assert_eq!(connections_max(1024, 10), 1024 - 64 - 40);
        assert_eq!(connections_max(1024, 10_000), 1024 - 64 - 192 * 4);
        assert_eq!(open_logs_max(u64::MAX), 2048);
        assert_eq!(connections_max(u64::MAX, 0), usize::MAX - 64);
    }
}
