//! The number of connections, in all and of each origin.

use std::collections::HashMap;

use super::attempts::ThrottleKey;

/// The connections that are open.
#[derive(Debug, Default)]
pub(super) struct Places {
    all: usize,
    by_origin: HashMap<ThrottleKey, usize>,
}

impl Places {
    pub(super) fn all(&self) -> usize {
        self.all
    }

    pub(super) fn of(&self, origin: ThrottleKey) -> usize {
        self.by_origin.get(&origin).copied().unwrap_or(0)
    }

    /// A connection begins.
    pub(super) fn take(&mut self, origin: ThrottleKey) {
        self.all += 1;
        *self.by_origin.entry(origin).or_default() += 1;
    }

    /// A connection has ended.
    pub(super) fn free(&mut self, origin: ThrottleKey) {
        self.all -= 1;
        if let Some(count) = self.by_origin.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.by_origin.remove(&origin);
            }
        }
    }
}
