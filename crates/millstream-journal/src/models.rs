//! The real writer and the real reader in every interleaving of their loads and stores, with every value that a load
//! may return: see [`modelled`](crate::storage::modelled).
//!
//! A model has two processes, so each has an opening of its own, and shares with the other what is mapped and nothing
//! else. Threads are preempted at most [`PREEMPTIONS`] times in a run. Each model has controls: a wrong order of
//! operations, which must be found.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::format::{files, segment};
use crate::storage::modelled::{Modelled, Orders};
use crate::{Host, Journal, Options, Reader};

/// More of them find nothing new in most programs, and take much longer (Musuvathi and Qadeer, PLDI 2007).
const PREEMPTIONS: usize = 3;
/// The size of a segment, and where its frames begin.
const SEGMENT: u64 = segment::BYTES_MIN;
const DATA: u64 = 8192;
/// The length of the body that leaves room for one small record and the end of a segment.
const FILLING: usize = (SEGMENT - DATA) as usize - 88;

fn options() -> Options {
    Options {
        host: Host::simulated(|| 1, || 1),
        ..Options::default().with_segment_bytes(SEGMENT)
    }
}

/// The words that change while a journal is in use: of the control page, of headers, of the first and the last frames
/// of a segment.
fn modelled(name: &str) -> &'static [Range<u64>] {
    match name {
        // What may poison or change hands, and what appends change.
        files::CONTROL => &[40..64, 64..256],
        _ if name.starts_with("writers/") => &[],
        _ => &[64..144, DATA..DATA + 160, SEGMENT - 96..SEGMENT],
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 100_000;
    builder.check(model);
}

/// Two openings of a journal with these records, and a machine that is modelled from here on.
fn two_processes(orders: Orders, records: &[usize]) -> [Journal<Modelled>; 2] {
    two_openings(orders, records, false)
}

/// [`two_processes`], the second of which may only read, if so.
fn two_openings(orders: Orders, records: &[usize], read_only: bool) -> [Journal<Modelled>; 2] {
    let machine = Modelled::new(orders, modelled);
    let journals = [false, read_only].map(|read_only| {
        let options = Options {
            read_only,
            ..options()
        };
        Journal::open_in(machine.process(), options).expect("it is sound")
    });
    let writers = journals.each_ref().map(|journal| journal.writer());
    let [Ok(writer), other] = writers else {
        panic!("it may write");
    };
    assert_eq!(other.is_err(), read_only);
    for length in records {
        writer.append(&vec![7; *length]).expect("there is room");
    }
    machine.begin().expect("all files can be opened");
    journals
}

fn body(sequence: u64) -> Vec<u8> {
    vec![sequence as u8 + 1; 13 + sequence as usize]
}

/// Look for records `looks` times; those that are there must be complete and in order.
fn poll_records(reader: &mut Reader<Modelled>, looks: usize) {
    for _ in 0..looks {
        let sequence = reader.position();
        if let Some(record) = reader.next().expect("nothing is damaged") {
            assert_eq!(record.sequence, sequence);
            assert_eq!(record.body, body(sequence));
        }
    }
}

/// One process appends two records, another reads.
fn publish(orders: Orders) {
    check(move || {
        let [one, other] = two_processes(orders, &[]);
        let tail = loom::thread::spawn(move || {
            let mut reader = other.reader().expect("the segment is there");
            poll_records(&mut reader, 3);
        });
        let writer = one.writer().expect("it was made before");
        for sequence in 0..2 {
            assert_eq!(
                writer.append(&body(sequence)).expect("there is room"),
                sequence
            );
        }
        tail.join().expect("the reader is content");
    });
}

#[test]
fn a_record_is_visible_complete_or_not_at_all() {
    publish(Orders::default());
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_first_word_without_release_is_found() {
    publish(Orders {
        publish: Ordering::Relaxed,
        ..Orders::default()
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_first_word_before_its_body_is_found() {
    publish(Orders {
        late_bytes: true,
        ..Orders::default()
    });
}

/// One process appends two records at once, another reads: both or none.
#[test]
fn a_batch_becomes_visible_at_once() {
    check(|| {
        let [one, other] = two_processes(Orders::default(), &[]);
        let tail = loom::thread::spawn(move || {
            let mut reader = other.reader().expect("the segment is there");
            poll_records(&mut reader, 1);
            if reader.position() == 1 {
                poll_records(&mut reader, 1);
                assert_eq!(reader.position(), 2, "half a batch");
            }
        });
        let writer = one.writer().expect("it was made before");
        writer
            .append_many([body(0), body(1)])
            .expect("there is room");
        tail.join().expect("the reader is content");
    });
}

/// A claim is abandoned, and a record is appended at its offset.
#[test]
fn a_claim_that_was_given_up_is_never_seen() {
    check(|| {
        let [one, other] = two_processes(Orders::default(), &[]);
        let tail = loom::thread::spawn(move || {
            let mut reader = other.reader().expect("the segment is there");
            poll_records(&mut reader, 3);
        });
        let writer = one.writer().expect("it was made before");
        writer.claim(40).expect("there is room").fill(0xFF);
        assert_eq!(writer.append(&body(0)).expect("there is room"), 0);
        tail.join().expect("the reader is content");
    });
}

/// One process fills a segment and begins the next one, another reads over the roll.
fn roll(orders: Orders) {
    check(move || {
        let [one, other] = two_processes(orders, &[FILLING]);
        let tail = loom::thread::spawn(move || {
            let mut reader = other.reader().expect("the segment is there");
            reader
                .next()
                .expect("it is sound")
                .expect("it was there before");
            poll_records(&mut reader, 3);
        });
        let writer = one.writer().expect("it was made before");
        for sequence in 1..3 {
            assert_eq!(
                writer.append(&body(sequence)).expect("there is room"),
                sequence
            );
        }
        assert_eq!(one.info().expect("it is sound").segments, 2);
        tail.join().expect("the reader is content");
    });
}

#[test]
fn a_roll_is_never_seen_half_done() {
    roll(Orders::default());
}

#[test]
#[should_panic(expected = "nothing is damaged")]
fn a_roll_before_the_new_segment_is_there_is_found() {
    roll(Orders {
        late_base: true,
        ..Orders::default()
    });
}

/// Two processes append, each if the lock is free.
#[test]
fn two_writers_never_have_the_lock_at_once() {
    check(|| {
        let [one, other] = two_processes(Orders::default(), &[]);
        let append = |journal: &Journal<Modelled>, byte: u8| {
            let writer = journal.writer().expect("it was made before");
            writer.try_append(&[byte; 11]).expect("nothing is damaged")
        };
        let second = loom::thread::spawn(move || append(&other, 2));
        let first = append(&one, 1);
        let second = second.join().expect("the second writer is content");
        let mut appended: Vec<(u64, u8)> = [(first, 1), (second, 2)]
            .iter()
            .filter_map(|(sequence, byte)| Some(((*sequence)?, *byte)))
            .collect();
        appended.sort_unstable();
        let mut reader = one.reader().expect("the segment is there");
        for (sequence, byte) in &appended {
            let record = reader
                .next()
                .expect("it is sound")
                .expect("it was appended");
            assert_eq!(
                (record.sequence, record.body),
                (*sequence, &[*byte; 11][..])
            );
        }
        assert!(!appended.is_empty() && reader.next().expect("it is sound").is_none());
    });
}

/// A reader announces that it sleeps, and looks once more; a writer publishes, and checks whether a reader sleeps.
fn sleep(orders: Orders, read_only: bool) {
    check(move || {
        let [one, other] = two_openings(orders, &[], read_only);
        let tail = loom::thread::spawn(move || {
            let core = other.core();
            let segment = core.segment(0).expect("it is there");
            let control = core.waking_control().expect("the journal is open");
            let came = || matches!(segment.head(DATA), Ok(Some(_)));
            while !came() {
                control.sleep_until(std::time::Duration::MAX, came);
            }
        });
        let writer = one.writer().expect("it was made before");
        writer.append(&body(0)).expect("there is room");
        tail.join().expect("the reader is content");
    });
}

#[test]
fn a_reader_that_sleeps_is_woken() {
    sleep(Orders::default(), false);
}

#[test]
fn a_reader_that_sleeps_and_may_only_read_is_woken() {
    sleep(Orders::default(), true);
}

#[test]
#[should_panic(expected = "deadlock")]
fn an_unlock_that_is_no_fence_is_found() {
    let orders = Orders {
        fences: false,
        ..Orders::default()
    };
    sleep(orders, false);
}
