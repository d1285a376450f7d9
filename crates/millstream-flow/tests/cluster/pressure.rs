//! Flow control between processes, and the wake-up of those that sleep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_flow::key::{Key, Shards};
use millstream_flow::poller::{Io, Wake};
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::testing::Collected;
use millstream_flow::{Flow, generator};

use super::hub::{Hub, finish, start, until};

/// The items that may be in flight to a worker, in full batches, and what a source reads in a turn.
const MOST: u64 = (1 << 16) + 3 * 1024;

#[test]
fn a_source_pauses_while_another_process_reports_nothing() {
    let hub = Hub::new(2);
    *hub.withholds.lock().unwrap() = true;
    const ITEMS: u64 = 400_000;
    let read = Arc::new(AtomicU64::new(0));
    let seen = Arc::new(AtomicU64::new(0));
    let reading = Arc::clone(&read);
    let seeing = Arc::clone(&seen);
    let processes = start(&hub, 1, move |_| {
        let reading = Arc::clone(&reading);
        let seeing = Arc::clone(&seeing);
        let flow = Flow::new("flood");
        let source = generator::from_fn(move |n| {
            reading.fetch_max(n, Ordering::SeqCst);
            (n < ITEMS).then_some(n)
        });
        flow.source("numbers", source.batch_size(1000))
            .redistribute()
            .map(move |n| {
                seeing.fetch_add(1, Ordering::SeqCst);
                n
            })
            .filter(|_| false)
            .sink("out", Collected::<u64>::new().sink());
        flow
    });
    // All that process 1 was sent is processed, and nothing more is read, because no report says so.
    let last = AtomicU64::new(0);
    until("the source pauses", || {
        std::thread::sleep(Duration::from_millis(200));
        let now = read.load(Ordering::SeqCst);
        last.swap(now, Ordering::SeqCst) == now && now > 0
    });
    let read_in_silence = read.load(Ordering::SeqCst);
    assert!(
        read_in_silence < 2 * MOST,
        "{read_in_silence} items were read"
    );
    *hub.withholds.lock().unwrap() = false;
    for outcome in finish(processes) {
        outcome.unwrap();
    }
    assert_eq!(read.load(Ordering::SeqCst), ITEMS);
    assert_eq!(seen.load(Ordering::SeqCst), ITEMS);
}

#[test]
fn a_slow_process_slows_the_source() {
    const ITEMS: u64 = 600;
    let hub = Hub::new(2);
    let read = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let most = Arc::new(AtomicU64::new(0));
    let reading = Arc::clone(&read);
    let doing = Arc::clone(&done);
    let largest = Arc::clone(&most);
    let processes = start(&hub, 1, move |process| {
        let reading = Arc::clone(&reading);
        let doing = Arc::clone(&doing);
        let read = Arc::clone(&reading);
        let largest = Arc::clone(&largest);
        let flow = Flow::new("slow");
        let source = generator::from_fn(move |n| {
            reading.fetch_max(n, Ordering::SeqCst);
            (n < ITEMS).then_some(n)
        });
        flow.source("numbers", source)
            .redistribute()
            .map(move |n: u64| {
                if process == 1 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let done = doing.fetch_add(1, Ordering::SeqCst);
                let ahead = read.load(Ordering::SeqCst).saturating_sub(done);
                largest.fetch_max(ahead, Ordering::SeqCst);
                n
            })
            .sink("out", Collected::new().sink());
        flow
    });
    for outcome in finish(processes) {
        outcome.unwrap();
    }
    assert_eq!(done.load(Ordering::SeqCst), ITEMS);
    // A process that is not slow may have tens of thousands of items in flight.
    let most = most.load(Ordering::SeqCst);
    assert!(most < ITEMS / 2, "the source was {most} items ahead");
}

/// The source is on process 0, the slow step on process 2, and process 1, which has no source, multiplies the items
/// between them.
#[test]
fn a_slow_process_slows_the_source_of_a_process_that_sends_it_nothing() {
    const ITEMS: u64 = 20_000;
    const EACH: u64 = 20;
    let hub = Hub::new(3);
    let made = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let most = Arc::new(AtomicU64::new(0));
    let making = Arc::clone(&made);
    let doing = Arc::clone(&done);
    let largest = Arc::clone(&most);
    // Keys of which process 1 has the first, and process 2 the second.
    let key_of = |worker: usize| {
        (0u64..).find(|key| Shards::default().worker(key.stable_hash(), 3) == worker)
    };
    let first = key_of(1).unwrap();
    let second = key_of(2).unwrap();
    let processes = start(&hub, 1, move |_| {
        let making = Arc::clone(&making);
        let doing = Arc::clone(&doing);
        let made = Arc::clone(&making);
        let largest = Arc::clone(&largest);
        let flow = Flow::new("chain");
        let source = generator::from_fn(|n| (n < ITEMS).then_some(n)).batch_size(10);
        flow.source("numbers", source)
            .key_by(move |_| first)
            .stateful(
                "many",
                |_| (),
                move |(), _, n| {
                    making.fetch_add(EACH, Ordering::SeqCst);
                    (0..EACH).map(|_| n).collect::<Vec<u64>>()
                },
            )
            .values()
            .key_by(move |_| second)
            .stateful(
                "slow",
                |_| (),
                move |(), _, n: u64| {
                    let done = doing.fetch_add(1, Ordering::SeqCst);
                    let ahead = made.load(Ordering::SeqCst).saturating_sub(done);
                    largest.fetch_max(ahead, Ordering::SeqCst);
                    if done.is_multiple_of(1000) {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    (n == u64::MAX).then_some(n)
                },
            )
            .values()
            .sink("out", Collected::new().sink());
        flow
    });
    for outcome in finish(processes) {
        outcome.unwrap();
    }
    assert_eq!(done.load(Ordering::SeqCst), ITEMS * EACH);
    let most = most.load(Ordering::SeqCst);
    assert!(most < ITEMS * EACH / 2, "{most} items were in flight");
}

/// A source of one item at a time: the next one is there when the one before has arrived at the sink, which wakes the
/// source.
struct Hops(Arc<AtomicU64>, Arc<Mutex<Option<Wake>>>);

struct Hop {
    arrived: Arc<AtomicU64>,
    next: u64,
}

const HOPS: u64 = 1500;

impl Source<Vec<u64>> for Hops {
    fn describe(&self) -> String {
        "hops".to_owned()
    }
    fn open(
        &self,
        _: usize,
        _: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Vec<u64>>>, Cause> {
        *self.1.lock().unwrap() = Some(io.wake());
        let arrived = Arc::clone(&self.0);
        let next = 0;
        Ok(Box::new(Hop { arrived, next }))
    }
}

impl Partition<Vec<u64>> for Hop {
    fn next_batch(&mut self, batch: &mut Vec<u64>, _: &mut Events<'_>) -> Result<Next, Cause> {
        if self.next == HOPS {
            return Ok(Next::End);
        }
        if self.arrived.load(Ordering::SeqCst) < self.next {
            return Ok(Next::Idle);
        }
        batch.push(self.next);
        self.next += 1;
        Ok(Next::Batch)
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.next.into())
    }
}

/// Each item moves to another process and back, or not, by its keys. Without wake-ups a move takes up to 100 ms: the
/// test would run into its time limit.
#[test]
fn an_item_wakes_a_process_that_sleeps() {
    let hub = Hub::new(2);
    let arrived = Arc::new(AtomicU64::new(0));
    let wake = Arc::default();
    let counted = Arc::clone(&arrived);
    let processes = start(&hub, 1, move |_| {
        let counted = Arc::clone(&arrived);
        let waking = Arc::clone(&wake);
        let flow = Flow::new("hops");
        flow.source("numbers", Hops(Arc::clone(&arrived), Arc::clone(&wake)))
            .key_by(|n| n % 16)
            .stateful("there", |_| (), |(), _, n| [n])
            .values()
            .key_by(|n| n / 16 % 16)
            .stateful("back", |_| (), |(), _, n| [n])
            .values()
            .inspect(move |_| {
                counted.fetch_add(1, Ordering::SeqCst);
                if let Some(wake) = &*waking.lock().unwrap() {
                    wake.wake();
                }
            })
            .sink("out", Collected::new().sink());
        flow
    });
    for outcome in finish(processes) {
        outcome.unwrap();
    }
    assert_eq!(counted.load(Ordering::SeqCst), HOPS);
}
