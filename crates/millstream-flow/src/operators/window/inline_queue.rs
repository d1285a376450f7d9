//! A queue that stores its first member inline: with at most one member it allocates nothing.
//!
//! Invariant: if there is no first member, there are no others.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

/// A queue with an inline first member.
pub(super) struct InlineQueue<T> {
    first: Option<T>,
    others: VecDeque<T>,
}

impl<T> Default for InlineQueue<T> {
    fn default() -> Self {
        InlineQueue {
            first: None,
            others: VecDeque::new(),
        }
    }
}

impl<T> InlineQueue<T> {
    pub(super) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    pub(super) fn last(&self) -> Option<&T> {
        self.others.back().or(self.first.as_ref())
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }

    /// The number of members for which `before` is true, in a queue where they come first.
    pub(super) fn partition_point(&self, mut before: impl FnMut(&T) -> bool) -> usize {
        match &self.first {
            Some(first) if before(first) => 1 + self.others.partition_point(before),
            _ => 0,
        }
    }

    pub(super) fn pop_first(&mut self) -> Option<T> {
        let next = self.others.pop_front();
        std::mem::replace(&mut self.first, next)
    }

    /// Inserts a member at `place`, or at the end if there are fewer.
    pub(super) fn insert(&mut self, place: usize, member: T) {
        if place > 0 && self.first.is_some() {
            self.others
                .insert((place - 1).min(self.others.len()), member);
        } else if let Some(second) = self.first.replace(member) {
            self.others.push_front(second);
        }
    }

    /// Removes the member at `place`, if there is one.
    pub(super) fn remove(&mut self, place: usize) -> Option<T> {
        match place.checked_sub(1) {
            None => self.pop_first(),
            Some(place) => self.others.remove(place),
        }
    }

    /// The member at `place`, if there is one.
    pub(super) fn get(&self, place: usize) -> Option<&T> {
        match place.checked_sub(1) {
            None => self.first(),
            Some(place) => self.others.get(place),
        }
    }

    /// Removes members from the front while `gone` is true for them.
    pub(super) fn drop_while(&mut self, gone: impl Fn(&T) -> bool) {
        while self.first().is_some_and(&gone) {
            self.pop_first();
        }
    }
}

impl<T> Index<usize> for InlineQueue<T> {
    type Output = T;

    fn index(&self, place: usize) -> &T {
        match (place, &self.first) {
            (0, Some(first)) => first,
            _ => &self.others[place.wrapping_sub(1)],
        }
    }
}

impl<T> IndexMut<usize> for InlineQueue<T> {
    fn index_mut(&mut self, place: usize) -> &mut T {
        match (place, &mut self.first) {
            (0, Some(first)) => first,
            _ => &mut self.others[place.wrapping_sub(1)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inserts four members in every order, removes some from the front in between, and compares with a plain
    /// queue.
    #[test]
    fn is_a_queue() {
        for way in 0..5_usize.pow(6) {
            let mut line = InlineQueue::default();
            let mut model = VecDeque::new();
            for step in 0..6 {
                match way / 5_usize.pow(step) % 5 {
                    4 => assert_eq!(line.pop_first(), model.pop_front()),
                    place => {
                        line.insert(place, step);
                        model.insert(place.min(model.len()), step);
                    }
                }
                assert!(line.iter().eq(&model), "way {way}");
                assert!(line.iter().rev().eq(model.iter().rev()), "way {way}");
                assert_eq!(
                    (line.len(), line.is_empty()),
                    (model.len(), model.is_empty())
                );
                assert_eq!((line.first(), line.last()), (model.front(), model.back()));
                for place in 0..model.len() {
                    assert_eq!(line[place], model[place], "way {way}");
                    line[place] += 10;
                    model[place] += 10;
                }
            }
            for bound in 0..10 {
                let sorted = line.iter().is_sorted();
                let before = |step: &u32| *step < bound;
                assert!(!sorted || line.partition_point(before) == model.partition_point(before));
            }
            line.drop_while(|step| step % 2 == 0);
            while model.front().is_some_and(|step| step % 2 == 0) {
                model.pop_front();
            }
            line.insert(line.len(), 9);
            model.push_back(9);
            assert!(line.iter().eq(&model), "way {way}");
        }
    }
}
