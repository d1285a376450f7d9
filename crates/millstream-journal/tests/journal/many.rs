//! Many journals open in one process: they share a few threads, and each has one file open, which it has locked.
//!
//! Each test counts what a process has, and so runs in one of its own: this test program again.

#![expect(
    clippy::disallowed_methods,
    reason = "what a thread does in the background is waited for"
)]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use millstream_journal::storage::{Failing, Mapped};
use millstream_journal::{Journal, Options, Sync, Writer};

use crate::support::small;

const MANY: usize = 1_000;
const ROUNDS: u64 = 2;
/// The most threads of the journals of one file system.
const THREADS_MAX: usize = 8;
const CHILD: &str = "MILLSTREAM_MANY_JOURNALS_FOLDER";

fn count(what: &str) -> usize {
    std::fs::read_dir(format!("/proc/self/{what}"))
        .unwrap()
        .count()
}

fn journal_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap();
    let names =
        names.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.trim() == "journals").count()
}

/// Waits for what other threads do.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("after a minute: {what}");
}

/// Runs a test of this file in a process that may open this many files.
fn again(test: &str, files_max: usize) {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("ulimit -n {files_max}; exec \"$0\" many::{test} --exact --nocapture");
    let output = Command::new("sh")
        .args(["-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, folder.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn open(folder: &Path, index: usize, options: Options) -> (Journal, Writer) {
    let journal = Journal::open(folder.join(index.to_string()), options).unwrap();
    let writer = journal.writer().unwrap();
    (journal, writer)
}

#[test]
fn child_with_a_thousand_journals() {
    let Ok(folder) = std::env::var(CHILD) else {
        return;
    };
    let folder = Path::new(&folder);
    let files = count("fd");
    let threads = count("task");
    let syncs = [
        Sync::Never,
        Sync::Always,
        Sync::Every(Duration::from_millis(10)),
        Sync::Every(Duration::from_secs(3600)),
    ];
    let options = |index: usize| small().with_sync(syncs[index % syncs.len()]);
    let journals: Vec<_> = (0..MANY)
        .map(|index| open(folder, index, options(index)))
        .collect();
    assert_eq!(count("fd") - files, MANY, "files of open journals");
    for round in 0..ROUNDS {
        for (index, (_, writer)) in journals.iter().enumerate() {
            let body = format!("{index} {round}");
            assert_eq!(writer.append(body.as_bytes()).unwrap(), round);
            assert!(index % 100 > 0 || count("task") <= threads + THREADS_MAX);
        }
    }
    // Those with a short time are synced by the threads, the others by this one.
    for (index, (journal, writer)) in journals.iter().enumerate() {
        if index % syncs.len() == 2 {
            wait_until("not synced", || journal.durable() == ROUNDS);
        }
        assert_eq!(writer.sync().unwrap(), ROUNDS);
    }
    // Nothing has to be done: one thread stays for the journals with a time.
    wait_until("threads without work", || count("task") == threads + 1);
    assert_eq!(count("fd") - files, MANY, "files of open journals");
    for (index, (journal, writer)) in journals.iter().enumerate() {
        assert_eq!(writer.append(b"after idleness").unwrap(), ROUNDS);
        let mut reader = journal.reader().unwrap();
        for round in 0..ROUNDS {
            let body = format!("{index} {round}");
            assert_eq!(reader.next().unwrap().unwrap().body, body.as_bytes());
        }
        assert_eq!(reader.next().unwrap().unwrap().body, b"after idleness");
    }
    for (journal, _) in journals.iter().skip(2).step_by(syncs.len()) {
        wait_until("not synced", || journal.durable() == ROUNDS + 1);
    }
    drop(journals);
    assert_eq!(count("fd"), files);
    wait_until("threads without journals", || count("task") == threads);
    for index in 0..MANY {
        let report = Journal::verify(folder.join(index.to_string())).unwrap();
        assert_eq!((report.records, report.damages), (ROUNDS + 1, vec![]));
    }
}

#[test]
fn a_thousand_journals_share_threads_and_have_one_file_each() {
    again("child_with_a_thousand_journals", 1024);
}

#[test]
fn an_idle_journal_without_a_time_has_no_thread() {
    let Ok(folder) = std::env::var(CHILD) else {
        return again("an_idle_journal_without_a_time_has_no_thread", 100);
    };
    let journals: Vec<_> = [Sync::Never, Sync::Always]
        .into_iter()
        .enumerate()
        .map(|(index, sync)| open(Path::new(&folder), index, small().with_sync(sync)))
        .collect();
    assert_eq!(journal_threads(), 0);
    for (_, writer) in &journals {
        writer.append(b"a").unwrap();
    }
    // A thread gives itself its name.
    wait_until("no thread", || (1..=2).contains(&journal_threads()));
    wait_until("a thread", || journal_threads() == 0);
}

#[test]
fn a_disk_that_stalls_does_not_hold_up_the_syncs_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let options = || small().with_sync(Sync::Every(Duration::from_millis(5)));
    let storage = Failing::new(Mapped::new(folder.path().join("stalled")));
    let stalled = Journal::open_in(storage.clone(), options()).unwrap();
    let others: Vec<_> = (0..20)
        .map(|index| open(folder.path(), index, options()))
        .collect();
    let writer = stalled.writer().unwrap();
    storage.set_stalled(true);
    writer.write(b"waits").unwrap();
    for round in 1..=10 {
        for (_, writer) in &others {
            writer.write(b"does not").unwrap();
        }
        for (journal, _) in &others {
            wait_until("held up", || journal.durable() == round);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(stalled.durable(), 0);
    storage.set_stalled(false);
    wait_until("stalled", || stalled.durable() == 1);
}

/// Each record comes after a pause in which the journal fell asleep, or while it does.
#[test]
fn a_record_after_idleness_is_synced() {
    let every = Duration::from_millis(2);
    let (_folder, journal) = crate::support::fresh(small().with_sync(Sync::Every(every)));
    let writer = journal.writer().unwrap();
    for sequence in 0..300 {
        assert_eq!(writer.append(b"a").unwrap(), sequence);
        wait_until("not synced", || journal.durable() == sequence + 1);
        std::thread::sleep(Duration::from_micros(sequence * 50));
    }
}

/// The first append after idleness looks whether the directory is still there. All rounds after it may come and go
/// meanwhile: the next append must wake the journal again.
#[test]
fn a_record_after_an_append_that_was_slow_to_wake_the_journal_is_synced() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Failing::new(Mapped::new(folder.path().join("j")));
    let options = small().with_sync(Sync::Every(Duration::from_millis(50)));
    let journal = Journal::open_in(storage.clone(), options).unwrap();
    let writer = journal.writer().unwrap();
    for round in 0..3 {
        writer.append(b"a").unwrap();
        wait_until("not synced", || journal.durable() == 3 * round + 1);
        std::thread::sleep(Duration::from_millis(1_100));
        storage.slow_presence(Duration::from_millis(120));
        writer.append(b"b").unwrap();
        storage.slow_presence(Duration::ZERO);
        writer.append(b"c").unwrap();
        wait_until("not synced", || journal.durable() == 3 * round + 3);
    }
}

#[test]
fn a_journal_that_is_dropped_in_the_middle_of_a_sync_is_complete() {
    for round in 0..50 {
        let folder = tempfile::tempdir().unwrap();
        let options = small().with_sync(Sync::Every(Duration::from_micros(100)));
        let (journal, writer) = open(folder.path(), 0, options);
        for _ in 0..round * 20 {
            writer.append(&[1; 100]).unwrap();
        }
        drop((journal, writer));
        let path = folder.path().join("0");
        let read = Journal::open(&path, Options::read_only()).unwrap();
        assert_eq!(
            (read.durable(), read.next().unwrap()),
            (round * 20, round * 20)
        );
    }
}
