//! Fixtures of every version, sound and damaged: each opens, or is refused, as in earlier versions.
//!
//! `MILLSTREAM_WRITE_FIXTURES=1 cargo test -p millstream-journal byte_for_byte` writes them. Those of a version that was released are never
//! written again.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_journal::{CursorMode, Error, Host, Identity, Journal, Options, Sync};

use crate::support::small;

const RECORDS: u64 = 400;
const LINEAGE: u128 = 0x3C6E_F372_FE95_5717_DAA6_6D2C_7DDF_D32C;
const OWN: u64 = 0x78DD_E6E5_FD2A_4F41;
const FIRST: &str = "segment-0000000000.log";
const SECOND: &str = "segment-0000000001.log";

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn body(sequence: u64) -> Vec<u8> {
    let text = format!("record {sequence} of the fixture; ");
    text.repeat(sequence as usize % 13).into_bytes()
}

/// The journal that is in the repository, with the same clock and the same chance.
fn write_sound(path: &Path) {
    let (time, chance) = (
        AtomicU64::new(1_700_000_000_000_000_000),
        AtomicU64::new(0x5EED),
    );
    let host = Host::simulated(
        move || time.fetch_add(1_000, Ordering::Relaxed),
        move || chance.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed),
    );
    let journal = Journal::open(
        path,
        Options {
            host,
            sync: Sync::Always,
            identity: Some(Identity {
                lineage: LINEAGE,
                own: OWN,
            }),
            ..small()
        },
    )
    .unwrap();
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
    cursor.set(123).unwrap();
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

const CASES: [Case; 8] = [
    Case {
        name: "sound",
        file: FIRST,
        change: |_| {},
        outcome: Outcome::Records(RECORDS),
    },
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

fn files(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let names = [FIRST, SECOND, "cursors/reader", "identity"];
    names
        .iter()
        .map(|name| (path.join(name), fs::read(path.join(name)).unwrap()))
        .collect()
}

#[test]
fn what_is_written_today_is_version_1_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    write_sound(folder.path());
    if std::env::var_os("MILLSTREAM_WRITE_FIXTURES").is_some() {
        for case in &CASES {
            write_case(case, folder.path(), &fixtures().join("v1").join(case.name));
        }
    }
    for ((path, today), (_, fixture)) in files(folder.path())
        .iter()
        .zip(files(&fixtures().join("v1/sound")))
    {
        let differs = today.iter().zip(&fixture).position(|(a, b)| a != b);
        assert_eq!(
            (today.len(), differs),
            (fixture.len(), None),
            "{}",
            path.display()
        );
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
fn every_fixture_opens_or_is_refused_as_it_always_did() {
    for case in &CASES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        copy(&fixtures().join("v1").join(case.name), &path);
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
    copy(&fixtures().join("v1/sound"), &path);
    let journal = Journal::open(&path, Options::read_only()).unwrap();
    let identity = journal.identity().unwrap().unwrap();
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
fn the_cursor_of_the_fixture_stands_where_it_did() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    copy(&fixtures().join("v1/sound"), &path);
    let journal = Journal::open(&path, small()).unwrap();
    assert_eq!(
        journal
            .cursor("reader", CursorMode::Exclusive)
            .unwrap()
            .position()
            .unwrap(),
        123
    );
}
