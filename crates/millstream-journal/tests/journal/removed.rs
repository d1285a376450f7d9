//! A directory that is removed, moved or replaced while its journal is open, and a process that may open no more files.

#![expect(
    clippy::disallowed_methods,
    reason = "a directory is looked at from time to time, and appends go on meanwhile"
)]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use millstream_journal::{CursorMode, Error, Journal, Options, Sync, Wait, Writer};

use crate::support::{fresh, small};

/// Append until an error, which must come in time.
fn append_until_error(writer: &Writer, pause: Duration) -> Error {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        if let Err(error) = writer.append(&[1; 100]) {
            return error;
        }
        std::thread::sleep(pause);
    }
    panic!("it goes on acknowledging");
}

fn remove(path: &Path) {
    fs::remove_dir_all(path).unwrap();
}

fn move_away(path: &Path) {
    fs::rename(path, path.with_extension("moved")).unwrap();
}

fn replace(path: &Path) {
    remove(path);
    drop(Journal::open(path, small()).unwrap());
}

fn empty(path: &Path) {
    remove(path);
    fs::create_dir(path).unwrap();
}

const WAYS: [fn(&Path); 4] = [remove, move_away, replace, empty];

#[test]
fn a_writer_notices_that_its_directory_is_gone_in_each_mode() {
    for (way, sync) in WAYS.into_iter().zip([
        Sync::Never,
        Sync::Always,
        Sync::Every(Duration::from_millis(10)),
        Sync::Never,
    ]) {
        let (_folder, journal) = fresh(small().with_segment_bytes(16 << 20).with_sync(sync));
        let writer = journal.writer().unwrap();
        writer.append(b"a").unwrap();
        way(&journal.path());
        let error = append_until_error(&writer, Duration::from_millis(5));
        assert!(matches!(error, Error::Gone { .. }), "{sync:?}: {error}");
        assert!(error.to_string().contains("removed, moved or replaced"));
        assert!(matches!(writer.sync(), Err(Error::Gone { .. })));
        assert!(matches!(writer.claim(1), Err(Error::Gone { .. })));
        assert!(matches!(journal.next(), Err(Error::Gone { .. })));
    }
}

/// As fast as it goes, so that segments are rolled.
#[test]
fn a_busy_writer_notices_that_its_directory_is_gone() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    remove(&journal.path());
    let error = append_until_error(&writer, Duration::ZERO);
    assert!(matches!(error, Error::Gone { .. }), "{error}");
}

#[test]
fn a_tail_notices_that_its_directory_is_gone() {
    for way in WAYS {
        for wait in [Wait::Block, Wait::BackOff] {
            let (_folder, journal) = fresh(small());
            journal.writer().unwrap().append(b"a").unwrap();
            let only = Journal::open(journal.path(), Options::read_only()).unwrap();
            let mut tail = only.reader().unwrap();
            tail.next().unwrap().unwrap();
            way(&journal.path());
            let came = tail.wait(wait, Some(Duration::from_secs(60)));
            assert!(matches!(came, Err(Error::Gone { .. })), "{came:?}");
        }
    }
}

#[test]
fn a_journal_beside_which_files_come_and_go_is_still_there() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let only = Journal::open(journal.path(), Options::read_only()).unwrap();
    let mut tail = only.reader().unwrap();
    let start = Instant::now();
    for sequence in 0.. {
        writer.append(&[1; 1_000]).unwrap();
        drop(journal.cursor("c", CursorMode::Exclusive).unwrap());
        journal.remove_cursor("c").unwrap();
        tail.wait(Wait::Block, None).unwrap();
        assert_eq!(tail.next().unwrap().unwrap().sequence, sequence);
        if start.elapsed() > Duration::from_millis(2_500) {
            break;
        }
    }
}

const PATH: &str = "MILLSTREAM_JOURNAL_TEST_REMOVED";

/// In a process of its own: it uses up what it may open.
#[test]
fn child_that_may_open_no_more_files() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let says = |error: Error| {
        let text = format!("{error:?}");
        assert!(text.contains("os error 24"), "{text}");
    };
    let mut open = Vec::new();
    while let Ok(file) = fs::File::open("/dev/null") {
        open.push(file);
    }
    // With none left, and with one, two, ... for each of the files on the way.
    let mut opened = 0;
    while opened < 2 {
        match Journal::open(
            &path,
            Options {
                create: false,
                ..small()
            },
        ) {
            Ok(journal) => match journal.writer() {
                Ok(_) => opened += 1,
                Err(error) => says(error),
            },
            Err(error) => says(error),
        }
        match Journal::open(&path, Options::read_only()) {
            Ok(journal) => match journal.cursors() {
                Ok(cursors) => assert_eq!(cursors.len(), 1, "{} open", open.len()),
                Err(error) => says(error),
            },
            Err(error) => says(error),
        }
        open.pop().unwrap();
    }
    println!("opened");
}

#[test]
fn a_process_at_its_file_limit_gets_an_error() {
    let (_folder, journal) = fresh(small());
    drop(journal.cursor("c", CursorMode::Exclusive).unwrap());
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 40; exec \"$0\" removed::child_that_may_open_no_more_files --exact --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .env(PATH, journal.path());
    // A process has it open, so that the other takes part and does not recover; then no process has.
    let path = journal.path();
    expect_file_limit_error(&mut command);
    drop(journal);
    expect_file_limit_error(&mut command);
    let again = Journal::open(path, small()).unwrap();
    assert_eq!(again.cursors().unwrap().len(), 1);
}

fn expect_file_limit_error(command: &mut Command) {
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success() && said.contains("opened"),
        "{said}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
