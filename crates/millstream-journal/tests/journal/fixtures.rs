//! Fixtures of the version that is written, sound and damaged: each opens, or is refused. `tests/write-fixtures` writes
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_journal::{CursorMode, Error, Host, Identity, Journal, Options, Sync};

use crate::support::small;

const RECORDS: u64 = 400;
const LINEAGE: u128 = 0x3C6E_F372_FE95_5717_DAA6_6D2C_7DDF_D32C;
const OWN: u64 = 0x78DD_E6E5_FD2A_4F41;
const CURSOR: u64 = 123;
const SOUND: &str = "sound";
/// The fixture whose segments grow.
const GROWING: &str = "growing";
const FIRST: &str = "segment-0000000000.log";
const SECOND: &str = "segment-0000000001.log";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/v1")
}

fn body(sequence: u64) -> Vec<u8> {
    let text = format!("record {sequence} of the fixture; ");
    text.repeat(sequence as usize % 13).into_bytes()
}

/// Options with the same clock and the same random numbers each time.
fn options(path: &Path) -> Options {
    let time = AtomicU64::new(1_700_000_000_000_000_000);
    let chance = AtomicU64::new(0x5EED);
    let host = Host::simulated(
        move || time.fetch_add(1_000, Ordering::Relaxed),
        move || chance.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed),
    );
    let grows = path.ends_with(GROWING);
    Options {
        host,
        sync: Sync::Always,
        identity: Some(Identity {
            lineage: LINEAGE,
            own: OWN,
        }),
        exclusive: grows,
        segment_bytes_first: grows.then_some(16 << 10),
        ..small()
    }
}

/// A journal that is in the repository: `sound`, or `growing`.
fn write(path: &Path) {
    let journal = Journal::open(path, options(path)).unwrap();
    let writer = journal.writer().unwrap();
    for sequence in 0..100 {
        writer.append(&body(sequence)).unwrap();
    }
    writer.append_many((100..RECORDS - 1).map(body)).unwrap();
    let last = body(RECORDS - 1);
    let mut claim = writer.claim(last.len() + 100).unwrap();
    claim[..last.len()].copy_from_slice(&last);
    claim.commit(last.len()).unwrap();
    let cursor = journal.cursor("reader", CursorMode::Exclusive).unwrap();
    cursor.set(CURSOR).unwrap();
    drop((cursor, writer, journal));
    fs::remove_file(path.join("control")).unwrap();
    fs::remove_dir_all(path.join("writers")).unwrap();
}

/// A change of a copy of the sound journal, and the expected result of opening and reading it.
struct Case {
    name: &'static str,
    file: &'static str,
    change: fn(&mut Vec<u8>),
    outcome: Outcome,
}

enum Outcome {
    /// All records up to this one.
    Records(u64),
    /// [`Error::Damage`] at this offset of the file.
    Damage(u64),
    Version,
}

const CASES: [Case; 7] = [
    Case {
        name: "flipped-bit",
        file: FIRST,
        change: |bytes| bytes[20_000] ^= 4,
        outcome: Outcome::Damage(19_864),
    },
    Case {
        name: "zeroed-sector",
        file: FIRST,
        change: |bytes| bytes[40_960..41_472].fill(0),
        outcome: Outcome::Damage(40_904),
    },
    Case {
        name: "header",
        file: SECOND,
        change: |bytes| bytes[24] ^= 1,
        outcome: Outcome::Damage(0),
    },
    Case {
        name: "short-file",
        file: SECOND,
        change: |bytes| bytes.truncate(30_000),
        outcome: Outcome::Damage(30_000),
    },
    Case {
        name: "lost-index",
        file: FIRST,
        change: |bytes| bytes[4_096..8_192].fill(0),
        outcome: Outcome::Records(RECORDS),
    },
    // The watermark is at the end of the first segment; the frame after it is torn.
    Case {
        name: "torn-end",
        file: SECOND,
        change: |bytes| {
            bytes[72..80].fill(0);
            bytes[8_192 + 20] ^= 1;
        },
        outcome: Outcome::Records(321),
    },
    Case {
        name: "newer-version",
        file: SECOND,
        change: |bytes| bytes[8] = 2,
        outcome: Outcome::Version,
    },
];

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn write_case(case: &Case, sound: &Path, to: &Path) {
    copy(sound, to);
    let file = to.join(case.file);
    let mut bytes = fs::read(&file).unwrap();
    (case.change)(&mut bytes);
    fs::write(file, bytes).unwrap();
}

/// The files of a journal, by their names.
fn files(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for folder in [path.to_owned(), path.join("cursors")] {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                let name = entry.path().strip_prefix(path).unwrap().to_owned();
                found.insert(name, fs::read(entry.path()).unwrap());
            }
        }
    }
    found
}

fn write_fixtures() {
    if fixtures().exists() {
        fs::remove_dir_all(fixtures()).unwrap();
    }
    for name in [SOUND, GROWING] {
        write(&fixtures().join(name));
    }
    for case in &CASES {
        write_case(case, &fixtures().join(SOUND), &fixtures().join(case.name));
    }
}

#[test]
fn what_is_written_today_is_the_fixture_byte_for_byte() {
    if std::env::var_os("MILLSTREAM_WRITE_FIXTURES").is_some() {
        write_fixtures();
    }
    for name in [SOUND, GROWING] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        write(&path);
        let today = files(&path);
        let fixture = files(&fixtures().join(name));
        assert!(today.keys().eq(fixture.keys()), "{:?}", today.keys());
        for (file, today) in &today {
            let differs = today.iter().zip(&fixture[file]).position(|(a, b)| a != b);
            assert_eq!(
                (today.len(), differs),
                (fixture[file].len(), None),
                "{name}: {}",
                file.display()
            );
        }
    }
}

fn read(path: &Path, options: Options) -> Result<u64, Error> {
    let journal = Journal::open(path, options)?;
    let mut reader = journal.reader()?;
    while let Some(record) = reader.next()? {
        assert_eq!(record.body, body(record.sequence));
    }
    assert_eq!(journal.next()?, reader.position());
    Ok(reader.position())
}

#[test]
fn every_damaged_fixture_opens_or_is_refused() {
    for case in &CASES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        copy(&fixtures().join(case.name), &path);
        let found = [
            read(&path, Options::read_only()),
            read(&path, small()),
            read(&path, Options::read_only()),
        ];
        for found in found {
            match (&case.outcome, found) {
                (Outcome::Records(expected), Ok(records)) if *expected == records => {}
                (
                    Outcome::Damage(expected),
                    Err(Error::Damage {
                        path: file, offset, ..
                    }),
                ) if *expected == offset && file == path.join(case.file) => {}
                (Outcome::Version, Err(Error::Version { found: 2, .. })) => {}
                (_, found) => panic!("{}: {found:?}", case.name),
            }
        }
    }
}

#[test]
fn the_identity_of_the_fixture_is_unchanged_and_a_damaged_one_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    copy(&fixtures().join(SOUND), &path);
    let journal = Journal::open(&path, Options::read_only()).unwrap();
    let identity = journal.identity().unwrap();
    assert_eq!((identity.lineage, identity.own), (LINEAGE, OWN));
    let file = path.join("identity");
    let sound = fs::read(&file).unwrap();
    let mut damaged: Vec<Vec<u8>> = (0..sound.len()).map(|end| sound[..end].to_vec()).collect();
    damaged.extend((0..40).map(|at| {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        bytes
    }));
    for bytes in damaged {
        fs::write(&file, bytes).unwrap();
        let found = journal.identity();
        let told = matches!(&found, Err(Error::Damage { path, offset: 0, .. }) if *path == file);
        assert!(told, "{found:?}");
    }
}

#[test]
fn a_sound_fixture_is_read_and_appended_to() {
    for (name, sizes) in [(SOUND, &[64, 64][..]), (GROWING, &[16, 32, 64])] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        copy(&fixtures().join(name), &path);
        for (number, kib) in sizes.iter().enumerate() {
            let file = path.join(format!("segment-{number:010}.log"));
            assert_eq!(fs::metadata(file).unwrap().len(), kib << 10, "{name}");
        }
        assert_eq!(read(&path, Options::read_only()).unwrap(), RECORDS);
        for round in 0..3 {
            let journal = Journal::open(&path, options(&path)).unwrap();
            let cursor = journal.cursor("reader", CursorMode::Exclusive).unwrap();
            assert_eq!(cursor.position().unwrap(), CURSOR + round);
            cursor.set(CURSOR + round + 1).unwrap();
            let from = RECORDS + round * 500;
            let writer = journal.writer().unwrap();
            writer.append_many((from..from + 500).map(body)).unwrap();
            drop((cursor, writer, journal));
            assert_eq!(read(&path, small()).unwrap(), from + 500);
        }
        let report = Journal::verify(&path).unwrap();
        assert_eq!((report.damages, report.records), (vec![], RECORDS + 1_500));
    }
}
