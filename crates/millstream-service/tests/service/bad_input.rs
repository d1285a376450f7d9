//! Records that cannot be taken: fail, skip, dead letter.

use std::time::Duration;

use millstream_service::{OnError, Service, ServiceError, Snapshot, Stop, publisher};
use millstream_wire::{Cause, Note, Record};

use crate::desk::{Folder, Order, Orders, Replies, calls, on_error};

/// Orders 0 and 2 are good, 1 has no symbol, then comes a record that is no call, and one of another interface.
fn folder() -> Folder {
    let folder = Folder::new();
    let journal = folder.journal("orders");
    let mut orders = publisher::<dyn Orders>(&journal).unwrap();
    for (id, symbol) in [(0, "A"), (1, ""), (2, "B")] {
        orders
            .place(&Order {
                id,
                symbol,
                quantity: 1,
            })
            .unwrap();
    }
    journal.writer().unwrap().append(b"\xc0\x91noise").unwrap();
    publisher::<dyn Replies>(&journal).unwrap().accepted(9, 9);
    folder
}

#[test]
fn fail_names_journal_record_and_method() {
    let folder = folder();
    let error = folder
        .start("replies", on_error(OnError::Fail))
        .unwrap()
        .drain()
        .unwrap_err();
    assert!(matches!(error, ServiceError::Input { sequence: 2, .. }));
    let text = format!(
        "{}, record 2: place: an order without a symbol",
        folder.path("orders").display()
    );
    assert_eq!(format!("{error:?}"), text);
}

/// Panics where it must.
struct Delicate(&'static str);

impl Orders for Delicate {
    fn place(&mut self, order: &Order<'_>) -> Result<(), Cause> {
        assert!(self.0 != "call" || order.id != 1, "five is too much");
        Ok(())
    }
}

impl Snapshot for Delicate {
    fn snapshot(&self) -> Result<Vec<u8>, Cause> {
        assert!(self.0 != "snapshot", "five is too much");
        Ok(Vec::new())
    }
    fn restore(&mut self, _: &[u8]) -> Result<(), Cause> {
        assert!(self.0 != "restore", "five is too much");
        Ok(())
    }
}

impl Delicate {
    fn tick(&mut self, _: i64) -> Result<(), Cause> {
        assert!(self.0 != "timer", "five is too much");
        Ok(())
    }
}

/// Runs a service of this component, which skips calls that fail, until all inputs are taken or it fails.
fn outcome(folder: &Folder, at: &'static str) -> Result<(), ServiceError> {
    let service = Service::new(&folder.journal("replies"))?;
    let orders = folder.journal("orders");
    let setup = service
        .component(Delicate(at))
        .input::<dyn Orders>(&orders)?;
    let settings = on_error(OnError::Skip);
    if at == "timer" {
        let period = Duration::from_millis(1);
        let mut runner = setup
            .every("tick", period, Delicate::tick)
            .start(settings)?;
        return runner.run(&Stop::default()).map(drop);
    }
    setup.snapshots(2).start(settings)?.drain().map(drop)
}

#[test]
fn a_panic_of_the_component_ends_the_service_and_names_it_whatever_the_policy() {
    for (at, place) in [
        ("call", "orders, record 2: "),
        ("snapshot", "no snapshot could be made: "),
        ("restore", "replies.snapshots, record "),
        ("timer", "replies.schedule, record "),
    ] {
        let folder = Folder::new();
        let mut orders = publisher::<dyn Orders>(&folder.journal("orders")).unwrap();
        let mut place_some = || {
            for id in 0..3 {
                let symbol = "A";
                let quantity = 1;
                orders
                    .place(&Order {
                        id,
                        symbol,
                        quantity,
                    })
                    .unwrap();
            }
        };
        place_some();
        if at == "restore" {
            outcome(&folder, "nowhere").unwrap();
            place_some();
        }
        let said = format!("{:?}", outcome(&folder, at).unwrap_err());
        let panic = "bad_input::Delicate panicked: five is too much";
        assert!(said.contains(place) && said.contains(panic), "{said}");
    }
}

#[test]
fn skip_counts() {
    let folder = folder();
    let report = folder
        .start("replies", on_error(OnError::Skip))
        .unwrap()
        .drain()
        .unwrap();
    assert_eq!((report.skipped, report.dead_letters), (2, 0));
    assert_eq!(calls(&folder.journal("replies")).len(), 2);
}

#[test]
fn dead_letters_keep_the_record_and_say_why() {
    let folder = folder();
    let dead = folder.journal("dead");
    let settings = on_error(OnError::DeadLetter(dead.clone()));
    let report = folder.start("replies", settings).unwrap().drain().unwrap();
    assert_eq!((report.skipped, report.dead_letters), (0, 2));
    let mut reader = dead.reader().unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        let Ok(Record::Note(note)) = Record::read(record.body) else {
            panic!("a dead letter is a note")
        };
        let Ok(Note::Dead {
            sequence,
            error,
            body,
            ..
        }) = Note::from_bytes(note)
        else {
            panic!("a dead letter is a dead letter")
        };
        found.push((sequence, error, body));
    }
    assert_eq!(
        (found[0].0, found[0].1.as_str()),
        (2, "place: an order without a symbol")
    );
    assert_eq!(
        (found[1].0, found[1].2.as_slice()),
        (4, &b"\xc0\x91noise"[..])
    );
}
