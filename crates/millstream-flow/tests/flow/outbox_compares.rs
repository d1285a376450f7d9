//! A destination that compares: after a write that has failed, another forwarder may have written in its place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_flow::outbox::{
    Backoff, Connector, DeliveryError, Destination, Outbox, OutboxIdentity,
};
use millstream_flow::{FlowError, Frames};

use crate::destination::{copy, numbers, recovery, run};

type Objects = BTreeMap<u64, Vec<String>>;
type Fault = Box<dyn FnOnce(&mut Objects, u64, &[String]) + Send>;

/// Objects by the number of their first record, each of which is created once.
#[derive(Clone, Default)]
struct Store(Arc<Mutex<(Objects, Option<Fault>)>>);

impl Connector for Store {
    fn describe(&self) -> String {
        "a store".to_owned()
    }
    fn remembers(&self) -> bool {
        true
    }
    fn compares(&self) -> bool {
        true
    }
    fn connect(&self, _: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        Ok(Box::new(self.clone()))
    }
}

impl Destination for Store {
    fn write(&mut self, batch: &Frames, first: u64, _: u64) -> Result<(), DeliveryError> {
        let row = |record: &[u8]| String::from_utf8_lossy(record).into_owned();
        let rows: Vec<String> = batch.iter().map(row).collect();
        let (objects, fault) = &mut *self.0.lock().expect("no test panics in it");
        if first > 0
            && let Some(fault) = fault.take()
        {
            fault(objects, first, &rows);
            return Err(DeliveryError::retry("no answer"));
        }
        if objects.entry(first).or_insert_with(|| rows.clone()) == &rows {
            Ok(())
        } else {
            Err(DeliveryError::fatal("another process delivers too"))
        }
    }
    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        let (objects, _) = &*self.0.lock().expect("no test panics in it");
        let newest = objects.last_key_value();
        Ok(newest.map(|(first, rows)| first + rows.len() as u64 - 1))
    }
}

/// Delivers 30 numbers, 7 at a time. The second write has the effect of `fault`, and fails.
fn outcome(
    fault: impl FnOnce(&mut Objects, u64, &[String]) + Send + 'static,
) -> (Result<(), FlowError>, Objects) {
    let state = tempfile::tempdir().expect("a folder");
    let store = Store::default();
    store.0.lock().expect("no test panics in it").1 = Some(Box::new(fault));
    let backoff = Backoff {
        first: Duration::from_millis(1),
        ..Backoff::default()
    };
    let outbox = Outbox::new(store.clone()).batch(7).backoff(backoff);
    let ended = run(&copy(30, outbox), 1, recovery(state.path()));
    let (objects, left) = &mut *store.0.lock().expect("no test panics in it");
    assert!(left.is_none(), "no write has failed");
    (ended.map(drop), objects.clone())
}

fn rows(objects: Objects) -> Vec<String> {
    let mut rows: Vec<String> = objects.into_values().flatten().collect();
    rows.sort();
    rows
}

#[test]
fn a_write_that_has_had_no_effect_is_repeated() {
    let (ended, objects) = outcome(|_, _, _| ());
    ended.expect("it runs");
    assert_eq!(rows(objects), numbers(30));
}

#[test]
fn a_write_whose_answer_was_lost_is_there_once() {
    let (ended, objects) = outcome(|objects, first, rows| {
        objects.insert(first, rows.to_vec());
    });
    ended.expect("it runs");
    assert_eq!(rows(objects), numbers(30));
}

#[test]
fn records_of_another_forwarder_are_not_taken_for_those_of_this_one() {
    // As many records, fewer, and more of them in one object and in two.
    for counts in [vec![7], vec![3], vec![8], vec![7, 7], vec![3, 4]] {
        let (ended, objects) = outcome(move |objects, first, _| {
            let mut next = first;
            for count in counts {
                objects.insert(next, vec!["of another".to_owned(); count]);
                next += count as u64;
            }
        });
        let error = format!("{:?}", ended.expect_err("it is stopped"));
        assert!(error.contains("another"), "{error}");
        assert!(!error.contains('\n'), "{error}");
        // The batch is not there, and nothing after it.
        let later = objects.range(1..).flat_map(|(_, rows)| rows);
        assert!(later.into_iter().all(|row| row == "of another"));
    }
}
