//! With `sync` a time T, what is acknowledged and not durable was acknowledged within T, also while the disk stalls.

#![expect(
    clippy::disallowed_methods,
    reason = "real processes and disks take real time"
)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use millstream_journal::storage::{Failing, Mapped};
use millstream_journal::{Host, Journal, Options, Sync};

use crate::support::small;

const EVERY: Duration = Duration::from_millis(30);

/// How records are appended: one, several, a claim.
fn append(writer: &millstream_journal::Writer<Failing<Mapped>>, round: u64) {
    match round % 4 {
        0 => drop(writer.append_many([[1; 20], [2; 20]]).unwrap()),
        1 => drop(writer.claim(20).unwrap().commit(20).unwrap()),
        2 => drop(writer.append_at(round, &[3; 20]).unwrap()),
        _ => drop(writer.append(&[4; 20]).unwrap()),
    }
}

#[test]
fn appends_wait_for_a_disk_that_stalls() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Failing::new(Mapped::new(folder.path()));
    // Room for all that could be appended: a new segment would wait for the disk as well.
    let options = Options::default().with_sync(Sync::Every(EVERY));
    let journal = Journal::open_in(storage.clone(), options).unwrap();
    let writer = journal.writer().unwrap();
    let host = Host::real();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The wall clock before each append, and after it has returned; and how many records there are then.
        let appending = scope.spawn(|| {
            let mut returned = Vec::new();
            while !ended.load(Ordering::Relaxed) {
                let called = host.time_ns();
                append(&writer, returned.len() as u64);
                returned.push((called, host.time_ns(), journal.next().unwrap()));
                std::thread::sleep(Duration::from_micros(200));
            }
            returned
        });
        // Syncs come and go, and then none ends any more.
        let wait = |until: u64| {
            while host.time_ns() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let every_ns = EVERY.as_nanos() as u64;
        wait(host.time_ns() + 5 * every_ns);
        storage.set_stalled(true);
        wait(host.time_ns() + 20 * every_ns);
        let durable = journal.durable();
        let until = host.time_ns();
        ended.store(true, Ordering::Relaxed);
        storage.set_stalled(false);
        let returned = appending.join().unwrap();
        // What a loss of power would have taken at that moment: by the first that returned, all others were called in
        // time.
        let lost = returned
            .iter()
            .filter(|(_, at, next)| *at < until && *next > durable);
        let lost: Vec<_> = lost.collect();
        let first = lost.first().map_or(until, |(_, at, _)| *at);
        // Twice the time, because a thread may lose its processor between two looks at clocks.
        let late = lost
            .iter()
            .filter(|(called, ..)| *called > first + 2 * every_ns);
        assert_eq!(late.count(), 0, "of {} appends", lost.len());
        let waited = |(called, at, _): &&(u64, u64, u64)| *called < until && until <= *at;
        assert!(durable > 0 && returned.iter().any(|append| waited(&append)));
    });
    drop(writer);
    assert_eq!(Journal::verify(folder.path()).unwrap().damages, []);
}

#[test]
fn an_append_syncs_by_itself_when_it_comes_too_late() {
    // No background thread: nothing else syncs, and time passes only when the test sets it.
    let clock = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(1_000_000_000));
    let time = std::sync::Arc::clone(&clock);
    let options = Options {
        host: Host::simulated(move || time.load(Ordering::Relaxed), || 1),
        sync: Sync::Every(EVERY),
        ..small()
    };
    let machine = millstream_journal::storage::Simulated::new();
    let journal = Journal::open_in(machine.process(), options).unwrap();
    let writer = journal.writer().unwrap();
    let pass = |part: u64| clock.fetch_add(EVERY.as_nanos() as u64 * part / 100, Ordering::Relaxed);
    for _ in 0..3 {
        let durable = journal.durable();
        writer.append(b"a").unwrap();
        pass(60);
        writer.append(b"b").unwrap();
        pass(39);
        assert!(writer.try_append(b"c").unwrap().is_some());
        assert_eq!(journal.durable(), durable, "it is too early");
        pass(1);
        assert!(writer.try_append(b"d").unwrap().is_none());
        writer.append(b"d").unwrap();
        assert_eq!(journal.durable(), durable + 4);
        // After a while without records, the first one is not late.
        pass(1_000);
    }
}
