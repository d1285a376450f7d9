//! The items that wait for one client.
//!
//! Invariant: at most the limit waits, or one item. A queue that has overflowed stays so.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use super::item::Item;
use crate::lock;

/// What is taken at once; the last item may exceed it.
const TAKEN_BYTES: usize = 64 << 10;

/// The items that wait for one client.
#[derive(Default)]
pub(super) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    ended: bool,
    overflowed: bool,
    /// The task that takes items.
    taker: Option<Waker>,
    /// The task that disconnects the client when the queue overflows.
    guard: Option<Waker>,
}

impl Queue {
    /// Adds items. Returns false if more than `bytes_max` would wait: then the client must be disconnected.
    pub(super) fn push(&self, items: &[Item], bytes_max: usize) -> bool {
        let mut state = lock(&self.0);
        for item in items {
            let bytes = state.bytes + item.bytes();
            if bytes > bytes_max && !state.items.is_empty() {
                state.overflowed = true;
                state.items = VecDeque::new();
                wake(state.guard.take());
                return false;
            }
            state.bytes = bytes;
            state.items.push_back(item.clone());
        }
        wake(state.taker.take());
        true
    }

    /// No items follow.
    pub(super) fn end(&self) {
        let mut state = lock(&self.0);
        state.ended = true;
        wake(state.taker.take());
    }

    /// Takes the next items, at least one; `None` after the last.
    pub(super) fn poll_take(&self, cx: &Context<'_>) -> Poll<Option<Vec<Item>>> {
        let mut state = lock(&self.0);
        let mut taken = Vec::new();
        let mut bytes = 0;
        while bytes < TAKEN_BYTES
            && let Some(item) = state.items.pop_front()
        {
            bytes += item.bytes();
            taken.push(item);
        }
        if !taken.is_empty() {
            state.bytes -= bytes;
            return Poll::Ready(Some(taken));
        }
        if state.ended && !state.overflowed {
            return Poll::Ready(None);
        }
        state.taker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready when the queue has overflowed.
    pub(super) fn poll_overflow(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = lock(&self.0);
        if state.overflowed {
            return Poll::Ready(());
        }
        state.guard = Some(cx.waker().clone());
        Poll::Pending
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use tokio_tungstenite::tungstenite::Utf8Bytes;

    use super::*;

    fn text(text: &str) -> Item {
        Utf8Bytes::from(text).into()
    }

    fn take(queue: &Queue) -> Poll<Option<Vec<Item>>> {
        queue.poll_take(&Context::from_waker(Waker::noop()))
    }

    fn overflowed(queue: &Queue) -> bool {
        queue
            .poll_overflow(&Context::from_waker(Waker::noop()))
            .is_ready()
    }

    #[test]
    fn items_are_taken_in_order_up_to_the_end() {
        let queue = Queue::default();
        assert!(take(&queue).is_pending());
        assert!(queue.push(&[text("a"), text("b")], 1000));
        assert!(queue.push(&[text("c")], 1000));
        queue.end();
        assert_eq!(
            take(&queue),
            Poll::Ready(Some(["a", "b", "c"].map(text).to_vec()))
        );
        assert_eq!(take(&queue), Poll::Ready(None));
    }

    #[test]
    fn a_queue_over_the_limit_overflows_for_good() {
        let queue = Queue::default();
        let item = |bytes: usize| text(&"x".repeat(bytes));
        // One item may be larger than the limit.
        assert!(queue.push(&[item(500)], 200));
        assert!(take(&queue).is_ready());
        assert!(queue.push(&[item(36), item(36)], 200));
        assert!(!overflowed(&queue));
        assert!(!queue.push(&[item(1)], 200));
        assert!(overflowed(&queue));
        queue.end();
        assert!(take(&queue).is_pending(), "no end that looks complete");
    }
}
