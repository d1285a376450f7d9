//! Records that cannot be taken: fail, skip, dead letter.

use millstream_service::{OnError, ServiceError, publisher};
use millstream_wire::{Note, Record};

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
    assert_eq!(error.to_string(), text);
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
