//! Which items of the backlog were removed, as bits.
//!
//! Only a restart needs this: afterwards items are removed from memory, and the backlog begins after them. Words
//! without a bit are not stored.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(super) struct RemovedIds(BTreeMap<u64, u64>);

impl RemovedIds {
    /// Notes that an item was removed.
    pub(super) fn insert(&mut self, id: u64) {
        *self.0.entry(id / 64).or_default() |= 1 << (id % 64);
    }

    /// Whether an item was removed.
    #[inline]
    pub(super) fn contains(&self, id: u64) -> bool {
        !self.0.is_empty()
            && self
                .0
                .get(&(id / 64))
                .is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    /// Forgets the ids before `id`.
    pub(super) fn forget_before(&mut self, id: u64) {
        while let Some(first) = self.0.first_entry().filter(|first| *first.key() < id / 64) {
            first.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_kept_until_forgotten() {
        let mut removed = RemovedIds::default();
        [0, 63, 64, 1000]
            .into_iter()
            .for_each(|id| removed.insert(id));
        assert!(
            removed.contains(0)
                && removed.contains(63)
                && removed.contains(64)
                && removed.contains(1000)
        );
        assert!(!removed.contains(1) && !removed.contains(65));
        removed.forget_before(64);
        assert!(!removed.contains(63) && removed.contains(64));
        removed.forget_before(u64::MAX);
        assert!(removed.0.is_empty());
    }
}
