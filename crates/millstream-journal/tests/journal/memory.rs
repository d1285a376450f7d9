//! A journal may be longer than memory: what a process maps of it is a few segments.

use std::process::{Command, Stdio};

use millstream_journal::{Journal, Options};

use crate::support::fresh;

const PATH: &str = "MILLSTREAM_MEMORY_TEST_PATH";
const SEGMENT_BYTES: u64 = 1 << 20;
const RECORDS: u64 = 1 << 16;
/// More than two and a half times as much as is allowed.
const BODY: [u8; 1000] = [7; 1000];
const MORE_MAX: u64 = 24 << 20;

/// The most memory that this process ever had mapped, in bytes.
fn mapped_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let kib: u64 = line
        .unwrap()
        .trim()
        .strip_suffix(" kB")
        .unwrap()
        .parse()
        .unwrap();
    kib * 1024
}

#[test]
fn child() {
    let Ok(path) = std::env::var(PATH) else {
        return;
    };
    let options = Options::default().with_segment_bytes(SEGMENT_BYTES);
    let journal = Journal::open(path, options).unwrap();
    let writer = journal.writer().unwrap();
    let mut reader = journal.reader().unwrap();
    writer.append(&BODY).unwrap();
    // What threads and the allocator need is there by now.
    let before = mapped_max();
    for _ in 1..RECORDS {
        writer.append(&BODY).unwrap();
    }
    while let Some(record) = reader.next().unwrap() {
        assert_eq!(record.body, BODY);
    }
    assert_eq!(reader.position(), RECORDS);
    for sequence in (0..RECORDS).step_by(1_000) {
        assert_eq!(reader.read(sequence).unwrap().body, BODY);
    }
    let more = mapped_max() - before;
    assert!(more < MORE_MAX, "{more} bytes more than at first");
}

/// In a process of its own: other tests map journals too.
#[test]
fn a_long_journal_is_written_and_read_in_little_memory() {
    let (_folder, journal) = fresh(Options::default().with_segment_bytes(SEGMENT_BYTES));
    let path = journal.path();
    drop(journal);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["memory::child", "--exact", "--nocapture"])
        .env(PATH, path)
        // Otherwise the allocator maps 64 MiB for each thread.
        .env("MALLOC_ARENA_MAX", "1");
    let output = command.stdout(Stdio::null()).output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
