//! Since when the other side of a connection is silent, and when it must get a sign of life.

use super::{Connection, Times};

/// A connection and the times of its last messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    pub(super) connection: Connection,
    heard_ms: u64,
    sent_ms: u64,
}

impl Line {
    pub(super) fn new(connection: Connection, now_ms: u64) -> Self {
        Line {
            connection,
            heard_ms: now_ms,
            sent_ms: now_ms,
        }
    }

    pub(super) fn heard(&mut self, now_ms: u64) {
        self.heard_ms = now_ms;
    }

    pub(super) fn sent(&mut self, now_ms: u64) {
        self.sent_ms = now_ms;
    }

    pub(super) fn needs_heartbeat(&self, now_ms: u64, times: &Times) -> bool {
        now_ms.saturating_sub(self.sent_ms) >= times.heartbeat_ms
    }

    pub(super) fn is_silent(&self, now_ms: u64, times: &Times) -> bool {
        now_ms.saturating_sub(self.heard_ms) > times.dead_after_ms
    }
}

/// Notices that this process was paused itself: what it has not read meanwhile is no silence of others.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnPause {
    ticked_ms: Option<u64>,
}

impl OwnPause {
    /// Call at each tick. After a pause of this process the lines count as heard now.
    pub(super) fn tick<'a>(
        &mut self,
        now_ms: u64,
        times: &Times,
        lines: impl Iterator<Item = &'a mut Line>,
    ) {
        let since = self.ticked_ms.replace(now_ms);
        let gap = now_ms.saturating_sub(since.unwrap_or(now_ms));
        if gap > times.dead_after_ms / 4 {
            lines.for_each(|line| line.heard(now_ms));
        }
    }
}
