//! The messages that wait for a control link. A thread of its own sends it, so that no caller waits for the network.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millstream_flow::cluster::HandledLoad;
use millstream_link::{Deadline, Stream, frames};

use crate::protocol::{Body, Kind, Message};

/// The messages of a control link that were not sent yet.
#[derive(Default)]
pub(super) struct Outbox {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    /// Sums that replace earlier ones: a link that stalls does not collect them. With the number at which each was
    /// added: what a load says of its whole process counts until the next load of any worker of that process.
    handled: BTreeMap<(usize, usize), (u64, HandledLoad)>,
    added: u64,
    /// How this process is doing: the latest only, for the same reason.
    status: Option<Message>,
    run: u64,
    /// The sender is in a write.
    sends: bool,
    /// Nothing is added any more.
    closing: bool,
    /// The sender has ended.
    ended: bool,
}

impl Outbox {
    /// Adds a message, unless the link is closed.
    pub(super) fn push(&self, message: Message) {
        let mut pending = self.lock();
        if pending.closing || pending.ended {
            return;
        }
        match message.body {
            Body::Handled(loads) => {
                pending.run = message.run;
                for load in loads {
                    pending.added += 1;
                    let last = (pending.added, load);
                    pending.handled.insert((load.sender, load.worker), last);
                }
            }
            Body::Status(ref status) if !status.last => pending.status = Some(message),
            _ => encode(&message, &mut pending.bytes),
        }
        self.changed.notify_all();
    }

    /// Adds no more, and ends the sender after what was added.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }

    /// Whether nothing is added any more.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closing
    }

    /// Waits until all was sent, or the link is lost, or `deadline`.
    pub(super) fn flush(&self, deadline: Deadline) {
        let mut pending = self.lock();
        while !pending.ended && (pending.sends || !pending.is_empty()) {
            let Some(left) = deadline.left() else { return };
            pending = self.wait(pending, left);
        }
    }

    /// Sends what is added until the outbox is closed or the connection is lost. The reader of the connection notices a
    /// loss.
    pub(super) fn send(&self, stream: &Stream) {
        loop {
            let mut pending = self.lock();
            while pending.is_empty() && !pending.closing {
                pending = self.wait(pending, Duration::from_secs(60));
            }
            let bytes = pending.take();
            pending.sends = !bytes.is_empty();
            let is_last = bytes.is_empty();
            drop(pending);
            let sent = is_last || stream.write(&bytes).is_ok();
            let mut pending = self.lock();
            pending.sends = false;
            pending.ended = is_last || !sent;
            self.changed.notify_all();
            if pending.ended {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        pending: MutexGuard<'a, Pending>,
        most: Duration,
    ) -> MutexGuard<'a, Pending> {
        let waited = self.changed.wait_timeout(pending, most);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.handled.is_empty() && self.status.is_none()
    }

    fn take(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // It is older than the last messages of a process.
        if let Some(status) = self.status.take() {
            encode(&status, &mut bytes);
        }
        bytes.append(&mut self.bytes);
        if !self.handled.is_empty() {
            let mut loads: Vec<_> = std::mem::take(&mut self.handled).into_values().collect();
            loads.sort_unstable_by_key(|(number, _)| *number);
            let body = Body::Handled(loads.into_iter().map(|(_, load)| load).collect());
            let run = self.run;
            encode(&Message { run, body }, &mut bytes);
        }
        bytes
    }
}

fn encode(message: &Message, out: &mut Vec<u8>) {
    out.extend(frames::frame(Kind::Message, &[&message.encode()]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_load_of_a_process_is_sent_last() {
        let load = |worker, items, congested| HandledLoad {
            sender: 0,
            worker,
            weight: items,
            items,
            turn_items: 1,
            in_flight_items_max: 1,
            congested,
            outbox_full: false,
        };
        let outbox = Outbox::default();
        for loads in [
            vec![load(2, 1, true), load(3, 1, true)],
            vec![load(2, 2, false)],
        ] {
            let body = Body::Handled(loads);
            outbox.push(Message { run: 7, body });
        }
        let mut expected = Vec::new();
        let body = Body::Handled(vec![load(3, 1, true), load(2, 2, false)]);
        encode(&Message { run: 7, body }, &mut expected);
        assert_eq!(outbox.lock().take(), expected);
    }
}
