//! Damage in what was synced is an error that names file and offset, for readers and for `verify`; nothing is skipped
//! in silence.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use millstream_journal::{Error, Journal, Mapped, Options, Reader};

use crate::support::{Random, fresh, small};

const RECORDS: u64 = 2_000;

fn body(sequence: u64) -> Vec<u8> {
    sequence.to_le_bytes().repeat(1 + sequence as usize % 20)
}

/// A journal of several segments, synced and closed.
fn synced() -> (tempfile::TempDir, std::path::PathBuf) {
    let (folder, journal) = fresh(small());
    journal
        .writer()
        .unwrap()
        .append_many((0..RECORDS).map(body))
        .unwrap();
    journal.sync().unwrap();
    let path = journal.path();
    (folder, path)
}

/// Read to the end or to the first error; every record on the way must be right.
fn read_all(reader: &mut Reader) -> Result<u64, Error> {
    while let Some(record) = reader.next()? {
        assert_eq!(record.body, body(record.sequence));
    }
    Ok(reader.position())
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_is_never_silent() {
    let (_folder, path) = synced();
    let file = path.join("segment-0000000001.log");
    let sound = fs::read(&file).unwrap();
    let mut random = Random(8);
    let mut found = 0;
    for _ in 0..300 {
        let at = random.below(sound.len() as u64);
        fs::write(&file, &sound).unwrap();
        rewrite(&file, |bytes| bytes[at as usize] ^= 1 << random.below(8));
        let opened = Journal::open(&path, Options::read_only());
        let told = match opened.and_then(|journal| read_all(&mut journal.reader()?)) {
            Ok(end) => {
                assert_eq!(end, RECORDS, "a flip at {at} lost records in silence");
                false
            }
            Err(error) => {
                let Error::Damage { path, offset, .. } = &error else {
                    panic!("a flip at {at}: {error}")
                };
                // The error names the offset at which a frame begins, at most one frame before.
                assert!(
                    *path == file && *offset <= at && at < *offset + 400,
                    "a flip at {at}: {error}"
                );
                true
            }
        };
        let report = Journal::verify(&path).unwrap();
        assert_eq!(
            !report.damages.is_empty(),
            told,
            "a flip at {at}: {:?}",
            report.damages
        );
        found += u64::from(told);
    }
    assert!(found > 200, "{found}");
}

#[test]
fn a_zeroed_sector_and_a_short_file_are_never_silent() {
    let (_folder, path) = synced();
    let file = path.join("segment-0000000001.log");
    let sound = fs::read(&file).unwrap();
    for sector in 0..sound.len() / 512 {
        fs::write(&file, &sound).unwrap();
        rewrite(&file, |bytes| bytes[sector * 512..][..512].fill(0));
        let opened = Journal::open(&path, Options::read_only());
        match opened.and_then(|journal| read_all(&mut journal.reader()?)) {
            Ok(end) => assert_eq!(end, RECORDS, "sector {sector}"),
            Err(Error::Damage { .. }) => {}
            Err(error) => panic!("sector {sector}: {error}"),
        }
    }
    for length in [0, 1, 4_095, 4_096, 40_000, sound.len() - 1] {
        fs::write(&file, &sound[..length]).unwrap();
        let told = Journal::open(&path, Options::read_only())
            .and_then(|journal| read_all(&mut journal.reader()?));
        assert!(
            matches!(told, Err(Error::Damage { .. })),
            "{length}: {told:?}"
        );
        assert!(!Journal::verify(&path).unwrap().damages.is_empty());
    }
}

#[test]
fn a_missing_segment_is_damage() {
    let (_folder, path) = synced();
    fs::remove_file(path.join("segment-0000000001.log")).unwrap();
    for options in [small(), Options::read_only()] {
        let error = Journal::open(&path, options)
            .and_then(|journal| read_all(&mut journal.reader()?))
            .unwrap_err();
        assert!(
            error.to_string().contains("segment-0000000001.log"),
            "{error}"
        );
    }
}

#[test]
fn verify_names_each_damage_and_counts_the_rest() {
    let (_folder, path) = synced();
    let sound = Journal::verify(&path).unwrap();
    assert_eq!((sound.records, sound.damages.len()), (RECORDS, 0));
    for segment in [0, 2] {
        rewrite(&path.join(format!("segment-{segment:010}.log")), |bytes| {
            bytes[20_000] ^= 1
        });
    }
    let report = Journal::verify(&path).unwrap();
    assert_eq!(report.damages.len(), 2);
    for (damage, name) in report
        .damages
        .iter()
        .zip(["segment-0000000000.log", "segment-0000000002.log"])
    {
        assert!(
            damage.path.ends_with(name) && (19_600..=20_000).contains(&damage.offset),
            "{damage:?}"
        );
        assert!(damage.records.as_ref().unwrap().start < RECORDS);
    }
    assert!(report.records < RECORDS);
}

#[test]
fn verify_can_be_stopped() {
    let (_folder, path) = synced();
    let whole = Journal::verify(&path).unwrap();
    assert!(whole.complete && whole.segments > 2, "{whole:?}");
    let storage = Mapped::new(&path);
    let part = Journal::verify_in(&storage, &Options::default(), |progress| {
        assert_eq!(progress.segments_total, whole.segments);
        match progress.segments {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })
    .unwrap();
    assert_eq!((part.complete, part.segments), (false, 2));
}

#[test]
fn a_lost_index_is_found_again() {
    let (_folder, path) = synced();
    let sound = fs::read(path.join("segment-0000000000.log")).unwrap();
    for filling in [0, 0xFF, 0x55] {
        fs::write(path.join("segment-0000000000.log"), &sound).unwrap();
        rewrite(&path.join("segment-0000000000.log"), |bytes| {
            bytes[4_096..8_192].fill(filling)
        });
        let journal = Journal::open(&path, small()).unwrap();
        let mut reader = journal.reader().unwrap();
        for sequence in (0..RECORDS).rev().step_by(7) {
            assert_eq!(reader.read(sequence).unwrap().body, body(sequence));
        }
    }
}
