//! Many requests at a time: the records of a batch, divided by their keys.
//!
//! Invariant: a record is sent after all earlier ones of its key were taken or skipped. A record that the server has
//! taken is not sent again while the run lasts, whatever became of the others of its batch; one that the server has
//! refused neither.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{Builder, scope};

use millstream_flow::outbox::DeliveryError;

use super::answer::Failed;
use crate::lock;

/// What is known of records that are not acknowledged to the outbox yet.
#[derive(Debug, Default)]
pub(super) struct Known {
    taken: BTreeSet<u64>,
    refused: BTreeMap<u64, String>,
    /// The number of records that the last write has added to those taken.
    taken_now: usize,
}

/// The records of one key in a batch, in their order.
type Lane<R> = Vec<(u64, R)>;

impl Known {
    /// The number of records that the server has taken of the last write.
    pub(super) fn taken_now(&self) -> usize {
        self.taken_now
    }

    /// Sends the records `first` to `last`, which `records` has with their keys, up to `parallel` at a time. `send`
    /// sends one.
    ///
    /// # Errors
    /// That of the first record whose delivery may succeed later or whose failure is that of the flow: no further
    /// request begins then. Otherwise the first record that is refused.
    pub(super) fn write<R: Copy + Send + Sync>(
        &mut self,
        records: &[(Option<&[u8]>, R)],
        first: u64,
        parallel: usize,
        send: &(impl Fn(u64, R) -> Result<(), Failed> + Sync),
    ) -> Result<(), DeliveryError> {
        let end = first + records.len() as u64;
        self.taken = self.taken.split_off(&first);
        self.refused = self.refused.split_off(&first);
        self.taken_now = 0;
        let lanes = self.lanes(records, first);
        let shared = Shared {
            next: AtomicUsize::new(0),
            has_stopped: AtomicBool::new(false),
            outcome: Mutex::default(),
        };
        let threads = parallel.min(lanes.len());
        scope(|scope| {
            for _ in 1..threads {
                let thread = Builder::new().name("http post".to_owned());
                // With fewer threads it takes longer.
                if thread
                    .spawn_scoped(scope, || shared.work(&lanes, send))
                    .is_err()
                {
                    break;
                }
            }
            shared.work(&lanes, send);
        });
        let mut outcome = lock(&shared.outcome);
        self.taken_now = outcome.taken.len();
        self.taken.extend(outcome.taken.drain(..));
        self.refused.extend(outcome.refused.drain(..));
        let named = |number| (records.len() > 1).then_some(number);
        if let Some((number, failed)) = outcome.failure.take() {
            return Err(failed.error(named(number)));
        }
        match self.refused.range(first..end).next() {
            Some((number, what)) => Err(Failed::Refused(what.clone()).error(named(*number))),
            None => Ok(()),
        }
    }

    /// The lanes of the records that are not sent yet. A lane ends before a record that was refused: the later ones of
    /// its key wait for it.
    fn lanes<R: Copy>(&self, records: &[(Option<&[u8]>, R)], first: u64) -> Vec<Lane<R>> {
        let mut lanes: Vec<Lane<R>> = Vec::new();
        // A lane without a place has a refused record.
        let mut of_key: HashMap<&[u8], Option<usize>> = HashMap::new();
        for (number, (key, record)) in (first..).zip(records) {
            if self.taken.contains(&number) {
                continue;
            }
            if self.refused.contains_key(&number) {
                key.map(|key| of_key.insert(key, None));
                continue;
            }
            let lane = match key {
                Some(key) => *of_key.entry(key).or_insert(Some(lanes.len())),
                None => Some(lanes.len()),
            };
            let Some(lane) = lane else {
                continue;
            };
            if lane == lanes.len() {
                lanes.push(Vec::new());
            }
            lanes[lane].push((number, *record));
        }
        // The longest first: the last one to end is what a batch waits for.
        lanes.sort_by_key(|lane| std::cmp::Reverse(lane.len()));
        lanes
    }
}

/// What the threads of one write share.
struct Shared {
    /// The next lane that no thread has.
    next: AtomicUsize,
    /// No further request begins.
    has_stopped: AtomicBool,
    outcome: Mutex<Outcome>,
}

#[derive(Default)]
struct Outcome {
    taken: Vec<u64>,
    refused: Vec<(u64, String)>,
    failure: Option<(u64, Failed)>,
}

impl Shared {
    /// Sends lane after lane.
    fn work<R: Copy>(&self, lanes: &[Lane<R>], send: &impl Fn(u64, R) -> Result<(), Failed>) {
        while let Some(lane) = lanes.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            for (number, record) in lane {
                if self.has_stopped.load(Ordering::Relaxed) {
                    return;
                }
                let sent = send(*number, *record);
                let mut outcome = lock(&self.outcome);
                match sent {
                    Ok(()) => outcome.taken.push(*number),
                    Err(Failed::Refused(what)) => {
                        outcome.refused.push((*number, what));
                        break;
                    }
                    Err(failed) => {
                        self.has_stopped.store(true, Ordering::Relaxed);
                        // What fails the flow is not repeated for an outage.
                        let known = outcome.failure.as_ref();
                        let counts = known.is_none_or(|(_, known)| failed.is_over(known));
                        if counts {
                            outcome.failure = Some((*number, failed));
                        }
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    type Sent = Arc<Mutex<Vec<u64>>>;

    /// Ten records of three keys; number 9 has none.
    fn records() -> Vec<(Option<&'static [u8]>, ())> {
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        (0..10)
            .map(|number| ((number < 9).then(|| keys[number % 3]), ()))
            .collect()
    }

    fn write(
        known: &mut Known,
        first: u64,
        records: &[(Option<&[u8]>, ())],
        fails: impl Fn(u64) -> Option<Failed> + Sync,
    ) -> (Result<(), String>, Vec<u64>) {
        let sent = Sent::default();
        let outcome = known.write(records, first, 4, &|number, ()| {
            lock(&sent).push(number);
            fails(number).map_or(Ok(()), Err)
        });
        let sent = lock(&sent).clone();
        (outcome.map_err(|error| error.to_string()), sent)
    }

    #[test]
    fn records_of_one_key_are_sent_in_order() {
        let (outcome, sent) = write(&mut Known::default(), 0, &records(), |_| None);
        assert_eq!(outcome, Ok(()));
        for key in 0..3 {
            let of_key: Vec<u64> = sent
                .iter()
                .copied()
                .filter(|n| n % 3 == key && *n < 9)
                .collect();
            assert_eq!(of_key, [key, key + 3, key + 6]);
        }
        assert_eq!(sent.len(), 10);
    }

    #[test]
    fn what_was_taken_is_not_sent_again_and_what_was_refused_neither() {
        let mut known = Known::default();
        let records = records();
        let refuses = |number| (number == 4).then(|| Failed::Refused("no".to_owned()));
        let (outcome, mut sent) = write(&mut known, 0, &records, refuses);
        sent.sort_unstable();
        assert_eq!(outcome, Err("record 4: no".to_owned()));
        assert_eq!(sent, [0, 1, 2, 3, 4, 5, 6, 8, 9]);
        assert_eq!(known.taken_now(), 8);
        // Its halves: 7 has the key of 4, and waits for it.
        for (first, end, expected) in [(0, 4, Ok(())), (5, 7, Ok(())), (4, 5, Err("no".to_owned()))]
        {
            let part = &records[first as usize..end];
            let (outcome, sent) = write(
                &mut Known {
                    taken: known.taken.clone(),
                    refused: known.refused.clone(),
                    taken_now: 0,
                },
                first,
                part,
                |_| None,
            );
            assert_eq!((outcome, sent), (expected, Vec::new()));
        }
        let (outcome, sent) = write(&mut known, 4, &records[4..], |_| None);
        assert_eq!(
            (outcome, sent),
            (Err("record 4: no".to_owned()), Vec::new())
        );
        let (outcome, sent) = write(&mut known, 5, &records[5..], |_| None);
        assert_eq!((outcome, sent), (Ok(()), vec![7]));
    }

    #[test]
    fn an_outage_begins_no_further_request_and_a_failure_of_the_flow_counts_more() {
        let mut known = Known::default();
        let records = records();
        let away =
            |number| (number % 3 == 0).then(|| Failed::Retry("away".to_owned(), Duration::ZERO));
        let (outcome, sent) = write(&mut known, 0, &records, away);
        assert!(outcome.unwrap_err().ends_with("away"));
        let lost = sent.iter().filter(|number| *number % 3 == 0).count();
        let (outcome, again) = write(&mut known, 0, &records, |_| None);
        assert_eq!(outcome, Ok(()));
        assert_eq!(sent.len() + again.len(), 10 + lost);
        let fails = |number| match number {
            1 => Some(Failed::Fatal("never".to_owned())),
            _ => Some(Failed::Retry("away".to_owned(), Duration::ZERO)),
        };
        let mut known = Known::default();
        let sent = Sent::default();
        // Both have begun before one fails.
        let barrier = std::sync::Barrier::new(2);
        let outcome = known.write(&records[..2], 0, 2, &|number, ()| {
            barrier.wait();
            lock(&sent).push(number);
            fails(number).map_or(Ok(()), Err)
        });
        assert_eq!(outcome.unwrap_err().to_string(), "record 1: never");
    }
}
