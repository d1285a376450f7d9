//! Worlds of damage: whatever is wrong with one place of a journal, all records outside of it are salvaged, and none
//! that was not written.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use millstream_journal::{CursorMode, Journal, Options, Salvage, Sync};

const RECORDS: u64 = 1_500;
/// Where frames begin in segments of up to 32 MiB.
const FRAMES_FROM: usize = 8_192;

fn body(sequence: u64) -> Vec<u8> {
    let text = format!("record {sequence}; ");
    text.repeat(1 + sequence as usize % 11).into_bytes()
}

/// A journal with growing segments, its beginning pruned; what all its files hold.
fn sound() -> BTreeMap<PathBuf, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let options = Options {
        exclusive: true,
        segment_bytes: 64 << 10,
        segment_bytes_first: Some(16 << 10),
        sync: Sync::Always,
        ..Options::default()
    };
    let journal = Journal::open(&path, options).unwrap();
    let writer = journal.writer().unwrap();
    for from in (0..RECORDS).step_by(50) {
        writer.append_many((from..from + 50).map(body)).unwrap();
    }
    let cursor = journal.cursor("c", CursorMode::Exclusive).unwrap();
    cursor.set(300).unwrap();
    let retention = millstream_journal::Retention {
        keep_for_cursors: true,
        ..millstream_journal::Retention::default()
    };
    assert!(journal.prune(&retention).unwrap().segments > 0);
    drop((writer, cursor, journal));
    let mut files = BTreeMap::new();
    for name in names(&path) {
        files.insert(PathBuf::from(&name), fs::read(path.join(&name)).unwrap());
    }
    files
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.path().is_file());
    files
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

fn segments(files: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<PathBuf> {
    let is_segment = |file: &&PathBuf| file.to_string_lossy().starts_with("segment-");
    files.keys().filter(is_segment).cloned().collect()
}

/// The bytes of each frame of a segment, headers and bodies without what fills them up; the last one is the end frame,
/// if there is one.
fn frames(segment: &[u8]) -> Vec<Range<usize>> {
    let mut frames = Vec::new();
    let mut at = FRAMES_FROM;
    while let Some(word) = segment.get(at..at + 4) {
        let low = u32::from_le_bytes(word.try_into().unwrap());
        if low == 0 {
            break;
        }
        let length = (low & ((1 << 29) - 1)) as usize;
        frames.push(at..at + 16 + length);
        at += 16 + length.next_multiple_of(8);
        if low & (1 << 29) != 0 {
            break;
        }
    }
    frames
}

struct World {
    folder: tempfile::TempDir,
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// The records of each segment.
    records: BTreeMap<PathBuf, Range<u64>>,
}

impl World {
    fn new() -> Self {
        let files = sound();
        let folder = tempfile::tempdir().unwrap();
        for (file, content) in &files {
            fs::write(folder.path().join(file), content).unwrap();
        }
        let mut records = BTreeMap::new();
        let mut next = RECORDS;
        for segment in segments(&files).into_iter().rev() {
            let base = u64::from_le_bytes(files[&segment][64..72].try_into().unwrap());
            if base != u64::MAX {
                records.insert(segment, base..next);
                next = base;
            }
        }
        assert!(records.len() >= 3 && next > 0, "{records:?}");
        World {
            folder,
            files,
            records,
        }
    }

    /// The salvaged records and the reported losses, while `file` is changed by `change`.
    fn salvaged(&self, file: &Path, change: impl FnOnce(&Path)) -> (Vec<u64>, Vec<String>) {
        let path = self.folder.path().join(file);
        change(&path);
        let mut salvage = Salvage::open(self.folder.path()).unwrap();
        let mut found = Vec::new();
        while let Some((place, record)) = salvage.next() {
            assert_eq!(record.body, body(record.sequence));
            let sequence = record.sequence;
            assert_eq!(salvage.read(place).unwrap().sequence, sequence);
            found.push(sequence);
        }
        let lost = salvage.lost().iter();
        let lost =
            lost.map(|lost| format!("{} {}: {}", lost.path.display(), lost.offset, lost.what));
        fs::write(path, &self.files[file]).unwrap();
        (found, lost.collect())
    }

    fn all(&self) -> Vec<u64> {
        self.records.values().cloned().flatten().collect()
    }

    /// All records but those of which this content of the file has another byte, or none.
    fn outside(&self, file: &Path, content: &[u8]) -> Vec<u64> {
        let sound = &self.files[file];
        let is_hit =
            |frame: &Range<usize>| content.get(frame.clone()) != Some(&sound[frame.clone()]);
        let frames = frames(sound);
        let records = self.records[file].clone().zip(&frames);
        let lost: Vec<u64> = records
            .filter(|(_, frame)| is_hit(frame))
            .map(|(sequence, _)| sequence)
            .collect();
        let all = self.all().into_iter();
        all.filter(|sequence| !lost.contains(sequence)).collect()
    }

    /// Overwrite a range of a segment: all outside is found, and the file is named where a record is lost.
    fn check(&self, file: &Path, damaged: Range<usize>, with: impl Fn(u8) -> u8) {
        let mut content = self.files[file].clone();
        let bytes = content[damaged.clone()].iter_mut();
        bytes.for_each(|byte| *byte = with(*byte));
        let (found, lost) = self.salvaged(file, |path| fs::write(path, &content).unwrap());
        let expected = self.outside(file, &content);
        let place = format!("{} {damaged:?} {lost:?}", file.display());
        assert!(found == expected, "{place}");
        let is_named = lost
            .iter()
            .any(|lost| lost.contains(&*file.to_string_lossy()));
        assert!(expected == self.all() || is_named, "{place}");
    }
}

#[test]
fn a_sound_journal_is_salvaged_without_a_loss() {
    let world = World::new();
    let file = segments(&world.files).remove(0);
    assert_eq!(world.salvaged(&file, |_| {}), (world.all(), vec![]));
}

#[test]
fn each_bit_of_each_header_may_flip() {
    let world = World::new();
    for file in world.records.keys() {
        for at in (0..80).chain(128..144) {
            for bit in 0..8 {
                world.check(file, at..at + 1, |byte| byte ^ 1 << bit);
            }
        }
    }
}

#[test]
fn each_field_of_each_header_may_be_lost() {
    let world = World::new();
    let fields = [
        0..8,
        8..12,
        12..16,
        16..24,
        24..32,
        32..40,
        40..48,
        48..56,
        64..72,
        72..80,
        128..136,
        136..144,
    ];
    let wider = [
        0..64,
        0..72,
        0..512,
        16..40,
        64..144,
        0..4_096,
        4_096..8_192,
        0..8_192,
    ];
    for file in world.records.keys() {
        for range in fields.iter().chain(&wider) {
            for with in [
                |_| 0,
                |_| 0xFF,
                |byte: u8| !byte,
                |byte: u8| byte.wrapping_mul(31) ^ 0xA5,
            ] {
                world.check(file, range.clone(), with);
            }
        }
    }
}

#[test]
fn ranges_of_frames_may_be_lost() {
    let world = World::new();
    for file in world.records.keys() {
        let used = frames(&world.files[file]).last().unwrap().end;
        for (turn, bytes) in [1, 8, 60, 512, 4_096].into_iter().enumerate() {
            let step = (bytes * 7 / 3).max(397);
            for from in (FRAMES_FROM + turn..used).step_by(step) {
                let range = from..(from + bytes).min(used);
                world.check(file, range.clone(), |byte| byte ^ 0x81);
                world.check(file, range, |_| 0);
            }
        }
    }
}

#[test]
fn each_file_may_be_missing_empty_or_short() {
    let world = World::new();
    for file in world.files.keys() {
        let records = world.records.get(file).cloned().unwrap_or(0..0);
        let others: Vec<u64> = world
            .all()
            .into_iter()
            .filter(|n| !records.contains(n))
            .collect();
        let (found, lost) = world.salvaged(file, |path| fs::remove_file(path).unwrap());
        let is_last = world.records.keys().next_back() == Some(file);
        assert_eq!(found, others, "{} {lost:?}", file.display());
        assert!(
            records.is_empty() || is_last || !lost.is_empty(),
            "{}",
            file.display()
        );
        let (found, _) = world.salvaged(file, |path| fs::write(path, "").unwrap());
        assert_eq!(found, others, "{}", file.display());
        let length = world.files[file].len();
        for short in [
            1,
            63,
            4_095,
            4_096,
            8_191,
            8_192,
            9_001,
            length / 2,
            length - 1,
        ] {
            let kept = short.min(length);
            let (found, lost) = world.salvaged(file, |path| {
                fs::write(path, &world.files[file][..kept]).unwrap();
            });
            let expected = if records.is_empty() {
                world.all()
            } else {
                world.outside(file, &world.files[file][..kept & !7])
            };
            assert_eq!(
                found,
                expected,
                "{} cut to {kept}: {lost:?}",
                file.display()
            );
        }
    }
}

#[test]
fn a_directory_without_a_segment_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let error = Salvage::open(folder.path()).unwrap_err();
    assert!(
        matches!(error, millstream_journal::Error::NotFound { .. }),
        "{error}"
    );
    assert!(Salvage::open(folder.path().join("none")).is_err());
}

#[test]
fn the_one_record_of_a_segment_is_read_with_a_damaged_header() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let journal = Journal::open(&path, Options::default()).unwrap();
    journal.writer().unwrap().append(b"the only one").unwrap();
    drop(journal);
    let file = path.join("segment-0000000000.log");
    let sound = fs::read(&file).unwrap();
    // All but the epoch, without which the checksum of one frame says nothing.
    for at in (0..64).filter(|at| !(24..32).contains(at)) {
        let mut damaged = sound.clone();
        damaged[at] ^= 0xff;
        fs::write(&file, damaged).unwrap();
        let mut salvage = Salvage::open(&path).unwrap();
        let mut records = Vec::new();
        while let Some((_, record)) = salvage.next() {
            records.push((record.sequence, record.body.to_vec()));
        }
        assert_eq!(records, [(0, b"the only one".to_vec())], "byte {at}");
    }
}
