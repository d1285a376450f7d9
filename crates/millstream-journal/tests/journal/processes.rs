//! Several processes on one journal: writers and readers at once, and `kill -9` at random moments.
//!
//! The children are this test program again: `child` does what the environment says.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millstream_journal::{Error, Journal, Options, Wait};

use crate::support::{Random, fresh, small};

const ROLE: &str = "MILLSTREAM_JOURNAL_TEST_ROLE";
const PATH: &str = "MILLSTREAM_JOURNAL_TEST_PATH";

fn start(role: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["processes::child", "--exact", "--nocapture"]);
    command
        .env(ROLE, role)
        .env(PATH, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// Wait until a child has printed a line with this prefix; returns the rest.
fn hear(lines: &mut impl Iterator<Item = std::io::Result<String>>, word: &str) -> Option<String> {
    lines.find_map(|line| line.unwrap().strip_prefix(word).map(str::to_owned))
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let journal = Journal::open(
        std::env::var(PATH).unwrap(),
        Options {
            create: false,
            ..small()
        },
    )
    .unwrap();
    let (role, number) = role.split_once(' ').unwrap();
    let number: u64 = number.parse().unwrap();
    match role {
        "write" => write(&journal, number, 20_000),
        "acknowledge" => {
            let writer = journal.writer().unwrap();
            let mut random = Random(number);
            for count in 0..u64::MAX {
                let sequence = writer.append(&body(number, count, &mut random)).unwrap();
                println!("acknowledged {sequence}");
            }
        }
        "read" => read(&journal, number),
        "hold" => {
            let writer = journal.writer().unwrap();
            writer.claim(5_000).unwrap().fill(0xFF);
            let mut claim = writer.claim(number as usize).unwrap();
            claim.fill(0xAA);
            println!("holding ");
            std::io::stdin().lines().next();
            drop(claim);
        }
        "block" => {
            let mut reader = journal.reader().unwrap();
            println!("waiting ");
            for sequence in 0..number {
                assert!(
                    reader
                        .wait(Wait::Block, Some(Duration::from_secs(30)))
                        .unwrap()
                );
                assert_eq!(reader.next().unwrap().unwrap().sequence, sequence);
            }
            println!("done ");
        }
        "fork" => fork(&journal),
        _ => panic!("no such role"),
    }
}

/// Try to append in a forked child, before it becomes another program: only with a journal of its own.
#[expect(
    unsafe_code,
    reason = "nothing else runs code in a child that was forked"
)]
fn fork(journal: &Journal) {
    use std::os::unix::process::CommandExt;
    let writer = journal.writer().unwrap();
    let path = journal.path();
    let mut command = Command::new("true");
    let in_child = move || {
        let refused = || match (writer.append(b"x"), writer.sync()) {
            (Err(Error::Forked { .. }), Err(Error::Forked { .. })) => Ok(()),
            other => Err(std::io::Error::other(format!("{other:?}"))),
        };
        refused()?;
        let own = Journal::open(&path, Options::default()).map_err(std::io::Error::other)?;
        let own = own.writer().map_err(std::io::Error::other)?;
        own.append(b"x").map_err(std::io::Error::other)?;
        refused()
    };
    // SAFETY: this process has one other thread, which holds no lock that the closure takes.
    unsafe { command.pre_exec(in_child) };
    assert!(command.status().unwrap().success());
    journal.writer().unwrap().append(b"x").unwrap();
}

/// A body that names its writer and its number, and that is wrong when a byte is.
pub fn body(writer: u64, count: u64, random: &mut Random) -> Vec<u8> {
    let mut body = Vec::from(writer.to_le_bytes());
    body.extend(count.to_le_bytes());
    body.resize(16 + random.below(300) as usize, (writer * 31 + count) as u8);
    body
}

/// The writer of a record and the number that it gave it; the body must be complete.
pub fn check(body: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap());
    let writer = word(0);
    let count = word(8);
    assert!(
        body[16..]
            .iter()
            .all(|byte| *byte == (writer * 31 + count) as u8)
    );
    (writer, count)
}

fn write(journal: &Journal, number: u64, count: u64) {
    let writer = journal.writer().unwrap();
    let mut random = Random(number);
    let mut sent = 0;
    while sent < count {
        match random.below(3) {
            0 => {
                let bodies: Vec<_> = (sent..count.min(sent + 7))
                    .map(|count| body(number, count, &mut random))
                    .collect();
                sent += bodies.len() as u64;
                writer.append_many(bodies).unwrap();
            }
            1 => {
                let body = body(number, sent, &mut random);
                let mut claim = writer.claim(1_000).unwrap();
                claim[..body.len()].copy_from_slice(&body);
                claim.commit(body.len()).unwrap();
                sent += 1;
            }
            _ => {
                writer.append(&body(number, sent, &mut random)).unwrap();
                sent += 1;
            }
        }
    }
}

/// Read to the end of all writers' records, and check that each one's come in order.
fn read(journal: &Journal, writers: u64) {
    let mut reader = journal.reader().unwrap();
    let mut counts = vec![0; writers as usize];
    while counts.iter().any(|count| *count < 20_000) {
        assert!(
            reader
                .wait(Wait::Block, Some(Duration::from_secs(60)))
                .unwrap(),
            "{counts:?}"
        );
        while let Some(record) = reader.next().unwrap() {
            let (writer, count) = check(record.body);
            assert_eq!(counts[writer as usize], count, "of writer {writer}");
            counts[writer as usize] += 1;
        }
    }
}

#[test]
fn writers_and_readers_in_processes_and_threads() {
    let (_folder, journal) = fresh(small());
    let path = journal.path();
    let children: Vec<_> = ["write 0", "write 1", "read 4", "read 4"]
        .iter()
        .map(|role| start(role, &path))
        .collect();
    std::thread::scope(|scope| {
        for number in 2..4 {
            let journal = &journal;
            scope.spawn(move || write(journal, number, 20_000));
        }
        scope.spawn(|| read(&journal, 4));
    });
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
    }
    assert_eq!(journal.next().unwrap(), 80_000);
    assert_eq!(Journal::verify(path).unwrap().damages, []);
}

#[test]
fn what_was_acknowledged_survives_kills_under_load() {
    let (_folder, journal) = fresh(small());
    let path = journal.path();
    let mut random = Random(11);
    let mut acknowledged = Vec::new();
    for round in 0..15 {
        let children: Vec<_> = (0..3)
            .map(|child| start(&format!("acknowledge {}", round * 3 + child), &path))
            .collect();
        let next = journal.next().unwrap();
        let mut tail = journal.reader().unwrap();
        tail.seek(next).unwrap();
        // A random number of records later.
        for _ in 0..random.below(3_000) {
            assert!(
                tail.wait(Wait::Block, Some(Duration::from_secs(30)))
                    .unwrap()
            );
            tail.next().unwrap().unwrap();
        }
        for mut child in children {
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8(output.stdout).unwrap();
            // The last line may be cut short by the kill.
            let whole = said.rsplit_once('\n').map_or("", |(whole, _)| whole);
            let lines = whole
                .lines()
                .filter_map(|line| line.strip_prefix("acknowledged "));
            acknowledged.extend(lines.map(|line| line.parse::<u64>().unwrap()));
        }
        // The living continue at once.
        journal
            .writer()
            .unwrap()
            .append(&body(99, 0, &mut random))
            .unwrap();
    }
    let mut reader = journal.reader().unwrap();
    let mut count = 0;
    while let Some(record) = reader.next().unwrap() {
        check(record.body);
        count += 1;
    }
    assert_eq!(count, journal.next().unwrap());
    assert!(acknowledged.len() > 1_000 && acknowledged.iter().all(|sequence| *sequence < count));
    drop((reader, journal));
    assert_eq!(Journal::open(path, small()).unwrap().next().unwrap(), count);
}

#[test]
fn a_claim_dies_with_its_process() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let mut tail = journal.reader().unwrap();
    for claimed in [1, 100, 20_000, 56_000] {
        let mut holder = start(&format!("hold {claimed}"), &journal.path());
        let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        hear(&mut lines, "holding ").unwrap();
        assert_eq!(tail.next().unwrap(), None);
        holder.kill().unwrap();
        holder.wait().unwrap();
        for body in [vec![1; 3], vec![2; 3_000]] {
            writer.append(&body).unwrap();
            assert_eq!(tail.next().unwrap().unwrap().body, body);
        }
    }
    assert_eq!(Journal::verify(journal.path()).unwrap().damages, []);
}

#[test]
fn a_claim_held_for_too_long_is_reported_with_its_process() {
    let (_folder, journal) = fresh(Options {
        busy_timeout: Duration::from_millis(50),
        ..small()
    });
    let writer = journal.writer().unwrap();
    let mut holder = start("hold 10", &journal.path());
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    hear(&mut lines, "holding ").unwrap();
    let error = writer.append(b"x").unwrap_err();
    assert!(
        matches!(error, Error::Busy { pid, .. } if pid == holder.id()),
        "{error}"
    );
    let claim = {
        holder.kill().unwrap();
        holder.wait().unwrap();
        // On a busy machine the time may be over before a process checked whether the holder is alive.
        let mut claims = (0..1_000).filter_map(|_| writer.claim(10).ok());
        claims.next().unwrap()
    };
    let own = std::thread::scope(|scope| {
        scope
            .spawn(|| writer.append(b"x").unwrap_err())
            .join()
            .unwrap()
    });
    assert!(
        matches!(own, Error::Busy { pid, .. } if pid == std::process::id()),
        "{own}"
    );
    drop(claim);
    writer.append(b"x").unwrap();
}

#[test]
fn a_reader_that_sleeps_is_woken_by_another_process() {
    let (_folder, journal) = fresh(small());
    let writer = journal.writer().unwrap();
    let mut reader = start("block 200", &journal.path());
    let mut lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    hear(&mut lines, "waiting ").unwrap();
    let mut own = journal.reader().unwrap();
    for sequence in 0..200_u64 {
        // Long enough for it to fall asleep, most times.
        assert!(
            !own.wait(Wait::Block, Some(Duration::from_millis(sequence % 4)))
                .unwrap()
        );
        writer.append(&[0; 2_000]).unwrap();
        assert_eq!(own.next().unwrap().unwrap().sequence, sequence);
    }
    assert!(hear(&mut lines, "done ").is_some());
    assert!(reader.wait().unwrap().success());
}

#[test]
fn a_forked_child_must_open_the_journal_itself() {
    let (_folder, journal) = fresh(small());
    let child = start("fork 0", &journal.path());
    assert!(child.wait_with_output().unwrap().status.success());
    // One of the child of that child, which has opened it anew, and one of its parent.
    assert_eq!(journal.next().unwrap(), 2);
}
