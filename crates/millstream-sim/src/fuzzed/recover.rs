//! A journal that has lost power on a disk that was then damaged at will: it opens or says what is damaged, and what it
//! gives is what was appended. Below the watermark nothing is lost without an error.
//!
//! An input says what is left of each page, and what was done to the files then.

use std::ops::ControlFlow;

use arbitrary::{Result, Unstructured};
use millstream_journal::storage::Simulated;
use millstream_journal::{Host, Journal, Options, Reader};

const FILES: [&str; 4] = [
    "segment-0000000000.log",
    "segment-0000000001.log",
    "segment-0000000002.log",
    "control",
];
const BYTES: u64 = 1 << 16;
const SECTOR: u64 = 512;
/// The base and the durable watermark of a segment, which no checksum covers: two words, each stored at once.
const MARKS: std::ops::Range<u64> = 64..80;
/// Records before this one were synced.
const SYNCED: u64 = 300;
const RECORDS: u64 = 330;

thread_local! {
    static MACHINE: Simulated = crashed();
}

fn options(boot: u128) -> Options {
    let host = Host::simulated(|| 1, || 5).with_boot(boot);
    Options {
        host,
        ..Options::default().with_segment_bytes(BYTES)
    }
}

fn body(sequence: u64) -> Vec<u8> {
    sequence.to_le_bytes().repeat(3 + sequence as usize % 90)
}

/// A machine with a journal of three segments that was never closed.
fn crashed() -> Simulated {
    let machine = Simulated::new();
    let process = machine.process();
    let journal =
        Journal::open_in(process.clone(), options(1)).expect("an empty journal can be made");
    let writer = journal.writer().expect("nobody else writes");
    writer
        .append_many((0..SYNCED).map(body))
        .expect("there is room");
    assert_eq!(journal.sync().expect("the disk is sound"), SYNCED);
    for sequence in SYNCED..RECORDS {
        writer.append(&body(sequence)).expect("there is room");
    }
    process.kill();
    machine
}

/// Damages files as a failing disk does. Returns whether it changed anything, and whether it changed a watermark.
fn damage(machine: &Simulated, input: &mut Unstructured<'_>) -> Result<(bool, bool)> {
    let mut damaged = false;
    let mut marks = false;
    let mut change = |name: &str, at: u64, new: &dyn Fn(u8) -> u8| {
        machine.damage(name, at, |old| {
            damaged |= new(old) != old;
            marks |= new(old) != old && MARKS.contains(&at) && name != FILES[3];
            new(old)
        });
    };
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        let what = input.arbitrary::<u8>()?;
        let name = *input.choose(&FILES)?;
        let at = u64::from(input.arbitrary::<u16>()?);
        let sector = at / SECTOR * SECTOR;
        match what % 4 {
            0 => change(name, at, &|old| old ^ 1 << (what >> 5)),
            1 => (0..SECTOR).for_each(|byte| change(name, sector + byte, &|_| 0)),
            2 => {
                let value = input.arbitrary::<u64>()?.to_le_bytes();
                (0..8).for_each(|byte| change(name, at / 8 * 8 + byte, &|_| value[byte as usize]));
            }
            _ => {
                let (from, other) = (
                    *input.choose(&FILES)?,
                    u64::from(input.arbitrary::<u16>()?) / SECTOR * SECTOR,
                );
                for byte in 0..SECTOR {
                    let mut found = 0;
                    machine.damage(from, other + byte, |old| {
                        found = old;
                        old
                    });
                    change(name, sector + byte, &|_| found);
                }
            }
        }
    }
    Ok((damaged, marks))
}

/// The word at `at` of a file.
fn word(machine: &Simulated, name: &str, at: u64) -> u64 {
    let mut word = [0; 8];
    for (at, byte) in (at..).zip(&mut word) {
        machine.damage(name, at, |old| {
            *byte = old;
            old
        });
    }
    u64::from_le_bytes(word)
}

/// The records below the watermark that is on the disk.
fn watermark(machine: &Simulated) -> u64 {
    let segments = FILES.iter().filter(|name| **name != "control");
    let marks =
        segments.map(|name| [MARKS.start, MARKS.start + 8].map(|at| word(machine, name, at)));
    let begun = marks.filter(|[base, durable]| *base != u64::MAX && *durable != 0);
    // A mark has the number of records of its segment in its lower half.
    let records = begun.map(|[base, durable]| base + (durable & u64::from(u32::MAX)));
    records.max().unwrap_or(0)
}

/// Read to the end or to the first error; returns whether there was one. Every record on the way must be right.
fn read(reader: &mut Reader<Simulated>, extra: Option<u64>) -> bool {
    loop {
        match reader.next() {
            Ok(Some(record)) if Some(record.sequence) == extra => {
                assert_eq!(record.body, b"behind")
            }
            Ok(Some(record)) => {
                assert!(record.sequence < RECORDS, "invented");
                assert_eq!(record.body, body(record.sequence));
            }
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

fn play(input: &mut Unstructured<'_>) -> Result<()> {
    let power_was_lost: bool = input.arbitrary()?;
    let choices: Vec<u8> = (0..input.len().min(64))
        .map(|_| input.arbitrary())
        .collect::<Result<_>>()?;
    let mut choices = choices.into_iter();
    let machine = MACHINE.with(|machine| {
        machine.lose_power(&mut |limit| match (power_was_lost, choices.next()) {
            (true, Some(choice)) => u64::from(choice) % limit,
            _ => limit - 1,
        })
    });
    let boot = if power_was_lost { 2 } else { 1 };
    let marked = watermark(&machine);
    assert!(marked <= SYNCED, "a mark above what was synced");
    let (damaged, marks) = damage(&machine, input)?;
    let least = match (marks, damaged, power_was_lost) {
        (true, ..) => 0,
        (false, true, true) => marked,
        (false, true, false) | (false, false, true) => SYNCED,
        (false, false, false) => RECORDS,
    };
    for read_only in [true, false] {
        let options = Options {
            read_only,
            ..options(boot)
        };
        let journal = match Journal::open_in(machine.process(), options.clone()) {
            Ok(journal) => journal,
            Err(error) => {
                assert!(damaged, "{error}");
                continue;
            }
        };
        let Ok(mut reader) = journal.reader() else {
            assert!(damaged);
            continue;
        };
        let told = read(&mut reader, None);
        assert!(
            told || reader.position() >= least,
            "lost in silence: {} of {least}",
            reader.position()
        );
        assert!(damaged || !told);
        let report =
            Journal::verify_in(&machine.process(), &options, |_| ControlFlow::Continue(()));
        assert!(
            !told || report.is_ok_and(|report| !report.damages.is_empty()),
            "verify finds nothing"
        );
        if !read_only {
            go_on(&journal, damaged);
        }
    }
    Ok(())
}

/// Append to what was recovered.
fn go_on(journal: &Journal<Simulated>, damaged: bool) {
    let appended = journal.writer().and_then(|writer| writer.append(b"behind"));
    let Ok(sequence) = appended else {
        assert!(damaged, "{:?}", appended.err());
        return;
    };
    let mut reader = journal.reader().expect("there was one before");
    let told = read(&mut reader, Some(sequence));
    assert!(told && damaged || !told && reader.position() == sequence + 1);
}

/// Feeds one input. It panics when it finds something.
pub fn run(input: &[u8]) {
    // An input that is too short is another input.
    let _short = play(&mut Unstructured::new(input));
}
