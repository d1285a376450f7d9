//! What queues must do and hold, as plain lists.
//!
//! While a server runs, its answers are known to the byte. After a crash an item is one of three: it *must* be there
//! (it was acknowledged and no client has it), it *may* be (the server died during its request, or its removal was not
//! durable yet), or it must not be.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::crash::model::{Judged, broken};

/// Queues of a world. The second gets a copy of what the first gets; the last is not synced.
pub const QUEUES: [&str; 4] = ["orders", "orders+audit", "jobs", "unsynced"];
const UNSYNCED: &str = "unsynced";

/// An item, by its number, of which its body is made.
pub type Number = u64;

/// The state of a queue, as far as it can be known.
#[derive(Clone, Default)]
struct QueueModel {
    ready: VecDeque<Number>,
    /// Waiting clients, each with its key and the end of its time.
    waiters: VecDeque<(u8, String, u64)>,
    /// Items that are there and were never acknowledged: the server died before it could.
    unsure: BTreeSet<Number>,
    /// Items that left, of which a loss of power may bring some back.
    gone: BTreeSet<Number>,
    /// Every item there ever was.
    ever: BTreeSet<Number>,
}

impl QueueModel {
    fn put_back(&mut self, number: Number) {
        let at = self.ready.partition_point(|other| *other < number);
        self.ready.insert(at, number);
    }
}

/// All queues and clients.
#[derive(Clone, Default)]
pub struct Model {
    queues: BTreeMap<&'static str, QueueModel>,
    open: BTreeMap<(u8, &'static str), Number>,
    expected: BTreeMap<u8, String>,
    /// Changes since the last answers: items that were added, and items that were removed.
    came: Vec<(&'static str, Number)>,
    left: Vec<(&'static str, Number)>,
    pub numbers: Number,
    /// Counted for the report.
    pub acknowledged: u64,
    pub repeated: u64,
}

/// The body of an item.
pub fn body(number: Number) -> String {
    format!("{number}:{}", "x".repeat((number * 7919 % 240) as usize))
}

impl Model {
    fn queue(&mut self, queue: &'static str) -> &mut QueueModel {
        self.queues.entry(queue).or_default()
    }

    fn expect(&mut self, client: u8, words: &str) {
        self.expected.entry(client).or_default().push_str(words);
    }

    /// The bytes that a client must have received since the last call.
    pub fn expected(&mut self, client: u8) -> String {
        self.expected.remove(&client).unwrap_or_default()
    }

    pub fn is_waiting(&self, client: u8) -> bool {
        self.queues
            .values()
            .any(|state| state.waiters.iter().any(|(waiter, ..)| *waiter == client))
    }

    /// Adds the next item; returns the request.
    pub fn set(&mut self, client: u8, queue: &'static str) -> String {
        let number = self.numbers;
        self.numbers += 1;
        let copies: &[&'static str] = match queue {
            "orders" => &["orders", "orders+audit"],
            _ => &[queue],
        };
        for &queue in copies {
            let state = self.queue(queue);
            state.ready.push_back(number);
            state.ever.insert(number);
            self.came.push((queue, number));
        }
        self.expect(client, "STORED\r\n");
        for queue in copies {
            self.serve(queue);
        }
        let body = body(number);
        format!("set {queue} 0 0 {}\r\n{body}\r\n", body.len())
    }

    fn value(&mut self, client: u8, queue: &'static str, key: &str, number: Number) {
        let body = body(number);
        let words = format!("VALUE {key} 0 {}\r\n{body}\r\nEND\r\n", body.len());
        self.expect(client, &words);
        if key.contains("/open") {
            self.open.insert((client, queue), number);
        } else if !key.contains("/peek") {
            self.left.push((queue, number));
        }
    }

    fn serve(&mut self, queue: &'static str) {
        let state = self.queue(queue);
        if state.ready.is_empty() || state.waiters.is_empty() {
            return;
        }
        let number = state.ready.pop_front();
        let waiter = state.waiters.pop_front();
        if let (Some(number), Some((client, key, _))) = (number, waiter) {
            self.value(client, queue, &key, number);
        }
    }

    /// A request for an item, or the end of one; `options` as they follow the name.
    pub fn get(&mut self, client: u8, queue: &'static str, options: &str, now_ms: u64) -> String {
        let key = format!("{queue}{options}");
        let has = |option| options.contains(option);
        let request = format!("get {key}\r\n");
        if has("/close") || has("/abort") {
            if let Some(number) = self.open.remove(&(client, queue)) {
                if has("/close") {
                    self.left.push((queue, number));
                } else {
                    self.queue(queue).put_back(number);
                    self.serve(queue);
                }
            }
            if !has("/open") {
                self.expect(client, "END\r\n");
                return request;
            }
        }
        if self.open.contains_key(&(client, queue)) && !has("/peek") {
            self.expect(client, "ERROR\r\n");
            return request;
        }
        let wait_ms = options
            .split_once("/t=")
            .and_then(|(_, ms)| ms.parse::<u64>().ok());
        let state = self.queue(queue);
        match (state.ready.front().copied(), wait_ms) {
            (Some(number), _) => {
                if !has("/peek") {
                    state.ready.pop_front();
                }
                self.value(client, queue, &key, number);
            }
            (None, Some(ms)) => state.waiters.push_back((client, key, now_ms + ms)),
            (None, None) => self.expect(client, "END\r\n"),
        }
        request
    }

    pub fn hang_up(&mut self, client: u8) {
        self.expected.remove(&client);
        for queue in QUEUES {
            self.queue(queue)
                .waiters
                .retain(|(waiter, ..)| *waiter != client);
            if let Some(number) = self.open.remove(&(client, queue)) {
                self.queue(queue).put_back(number);
                self.serve(queue);
            }
        }
    }

    /// The clock has reached this time.
    pub fn pass(&mut self, now_ms: u64) {
        for queue in QUEUES {
            let state = self.queue(queue);
            let (over, waiting) = std::mem::take(&mut state.waiters)
                .into_iter()
                .partition::<VecDeque<_>, _>(|(.., until)| *until <= now_ms);
            state.waiters = waiting;
            for (client, ..) in over {
                self.expect(client, "END\r\n");
            }
        }
    }

    /// All answers were seen: all changes are acknowledged, and those acknowledged as durable are durable.
    pub fn acknowledge_all(&mut self) {
        self.acknowledged += self.came.len() as u64;
        for (queue, _) in std::mem::take(&mut self.came) {
            let state = self.queue(queue);
            state.gone.clear();
            state.unsure.clear();
        }
        for (queue, number) in std::mem::take(&mut self.left) {
            self.queue(queue).gone.insert(number);
        }
    }

    /// Checks the contents of the queues after the server has died, or power was lost as well.
    pub fn judge(
        &mut self,
        found: &BTreeMap<&'static str, Vec<Number>>,
        power: bool,
    ) -> Judged<()> {
        for ((_, queue), number) in std::mem::take(&mut self.open) {
            self.queue(queue).put_back(number);
        }
        let came = std::mem::take(&mut self.came);
        let left = std::mem::take(&mut self.left);
        self.expected.clear();
        for queue in QUEUES {
            let of = |all: &[(&str, Number)]| -> BTreeSet<Number> {
                all.iter()
                    .filter(|(of, _)| *of == queue)
                    .map(|(_, number)| *number)
                    .collect()
            };
            let came = of(&came);
            let left = of(&left);
            let found = found.get(queue).map_or(&[][..], Vec::as_slice);
            let state = self.queues.entry(queue).or_default();
            state.waiters.clear();
            self.repeated += state.judge(queue, found, &came, &left, power)?;
        }
        Ok(())
    }
}

impl QueueModel {
    /// Returns how many removed items came back.
    fn judge(
        &mut self,
        queue: &str,
        found: &[Number],
        came: &BTreeSet<Number>,
        left: &BTreeSet<Number>,
        power: bool,
    ) -> Judged<u64> {
        if let Some(pair) = found.windows(2).find(|pair| pair[0] >= pair[1]) {
            let what = format!("{queue} is out of order: {} before {}", pair[0], pair[1]);
            return broken(8, what);
        }
        let never = power && queue == UNSYNCED;
        for number in &self.ready {
            let unsure = never || came.contains(number) || power && self.unsure.contains(number);
            if !unsure && found.binary_search(number).is_err() {
                let count = found.len();
                let first = found.first();
                let last = found.last();
                let what = format!(
                    "{queue} has lost item {number}, and has {count}: {first:?} to {last:?}"
                );
                return broken(8, what);
            }
        }
        for number in found {
            let known = self.ready.binary_search(number).is_ok()
                || came.contains(number)
                || left.contains(number)
                || power && self.gone.contains(number)
                || never && self.ever.contains(number);
            if !known {
                return broken(8, format!("{queue} has item {number} again"));
            }
        }
        let is_found = |number: &Number| found.binary_search(number).is_ok();
        let repeated = self.gone.iter().filter(|number| is_found(number)).count() as u64;
        if power {
            self.gone.clear();
            self.unsure.clear();
        } else {
            self.gone
                .extend(came.union(left).filter(|number| !is_found(number)));
            self.unsure
                .extend(came.iter().filter(|number| is_found(number)));
        }
        self.ready = found.iter().copied().collect();
        Ok(repeated)
    }
}
