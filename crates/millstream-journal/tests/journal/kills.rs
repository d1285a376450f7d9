//! A process is killed between any two stores of its appends: the others continue, and find all that was acknowledged.

use millstream_journal::storage::Simulated;
use millstream_journal::{Host, Journal, Options};

use crate::support::{Random, small};

fn options() -> Options {
    // Every look at the clock is a millisecond later, so that waiting ends.
    let time = std::sync::atomic::AtomicU64::new(1);
    let tick = move || time.fetch_add(1_000_000, std::sync::atomic::Ordering::Relaxed);
    Options {
        host: Host::simulated(tick, || 1),
        ..small()
    }
}

/// Kill a writer after `stores` stores, then let another one append. Returns how many records of the first are there.
fn kill_after(stores: u64, body_bytes: usize) -> u64 {
    let machine = Simulated::new();
    let survivor = Journal::open_in(machine.process(), options()).unwrap();
    let process = machine.process();
    let victim = Journal::open_in(process.clone(), options()).unwrap();
    let doomed = victim.writer().unwrap();
    process.kill_after(stores);
    let mut acknowledged = 0;
    for number in 0..40_u8 {
        let appended = match number % 3 {
            0 => doomed.append(&vec![number; body_bytes]),
            1 => doomed
                .append_many([vec![number; body_bytes]])
                .map(|range| range.start),
            _ => doomed.claim(body_bytes).and_then(|mut claim| {
                claim.fill(number);
                claim.commit(body_bytes)
            }),
        };
        if process.is_dead() {
            break;
        }
        assert_eq!(appended.unwrap(), u64::from(number));
        acknowledged += 1;
    }
    let mut tail = survivor.reader().unwrap();
    let writer = survivor.writer().unwrap();
    let next = writer.append(b"the living").unwrap();
    assert!(
        (acknowledged..=acknowledged + 1).contains(&next),
        "{stores} stores: {acknowledged}, {next}"
    );
    for number in 0..next {
        assert_eq!(
            tail.next().unwrap().unwrap().body,
            vec![number as u8; body_bytes],
            "{stores} stores"
        );
    }
    for _ in 0..30 {
        assert_eq!(tail.next().unwrap().unwrap().body, b"the living");
        writer.append(b"the living").unwrap();
    }
    drop((doomed, victim));
    next
}

#[test]
fn a_writer_may_die_between_any_two_stores() {
    let counts: Vec<u64> = (0..500).map(|stores| kill_after(stores, 100)).collect();
    assert!(
        counts.is_sorted() && counts[0] == 0 && counts[499] == 40,
        "{counts:?}"
    );
}

#[test]
fn also_in_the_middle_of_a_roll() {
    // Six records fill a segment.
    for stores in (0..900).step_by(2) {
        kill_after(stores, 9_000);
    }
}

/// What a reader finds after a writer was killed is what the next opening to write finds: [`Journal::info`] counts a
/// record that was published and not yet counted by its writer.
#[test]
fn a_reader_counts_what_the_next_recovery_keeps() {
    // Six records fill a segment.
    for stores in 0..300 {
        let machine = Simulated::new();
        let process = machine.process();
        let victim = Journal::open_in(process.clone(), options()).unwrap();
        let doomed = victim.writer().unwrap();
        process.kill_after(stores);
        for number in 0..10_u8 {
            let _outcome = doomed.append(&[number; 9_000]);
        }
        let read_only = Options {
            read_only: true,
            ..options()
        };
        let reading = Journal::open_in(machine.process(), read_only).unwrap();
        let seen = reading.info().unwrap();
        assert_eq!(seen.next, reading.next().unwrap(), "{stores} stores");
        drop(reading);
        let kept = Journal::open_in(machine.process(), options()).unwrap();
        let kept = kept.info().unwrap();
        assert_eq!(
            (seen.first, seen.next, seen.bytes, seen.times_ns),
            (kept.first, kept.next, kept.bytes, kept.times_ns),
            "{stores} stores"
        );
        drop((doomed, victim));
    }
}

#[test]
fn an_opening_may_die_at_any_moment_too() {
    let mut random = Random(1);
    for stores in 0..80 {
        let machine = Simulated::new();
        let process = machine.process();
        process.kill_after(stores);
        let _outcome = Journal::open_in(process, options());
        let journal = Journal::open_in(machine.process(), options()).unwrap();
        let body = random.bytes(100);
        assert_eq!(journal.writer().unwrap().append(&body).unwrap(), 0);
        assert_eq!(
            journal.reader().unwrap().next().unwrap().unwrap().body,
            body
        );
    }
}
