//! Bits of every word that leads to a record, flipped one by one in a synced and closed journal: each way to read then
//! finds what was appended, or an error.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_journal::{CursorMode, Error, Host, Journal, Options, Sync};

use crate::support::small;

const RECORDS: u64 = 13;
const CURSOR: u64 = 7;
/// Bytes of a segment before its frames.
const FRAMES: usize = 8192;

/// Bodies so long that a few fill a segment.
fn body(sequence: u64) -> Vec<u8> {
    sequence
        .to_le_bytes()
        .repeat(1_200 + sequence as usize % 3 * 100)
}

/// Two records have each time.
fn time_ns(sequence: u64) -> u64 {
    1_000_000 + sequence / 2 * 1_000
}

/// The same with a clock that was a day ahead for some records, and a little late for others.
fn jumping_ns(sequence: u64) -> u64 {
    match sequence {
        3..6 => time_ns(sequence) + 86_400_000_000_000,
        9 => time_ns(1),
        _ => time_ns(sequence),
    }
}

fn now_ns() -> u64 {
    time_ns(RECORDS) + 5
}

/// One boot, no threads.
fn options(read_only: bool) -> Options {
    Options {
        read_only,
        create: false,
        host: Host::simulated(now_ns, || 7).with_boot(5),
        ..small().with_sync(Sync::Always)
    }
}

/// The files of a journal and where the words are that lead to its records.
struct Patient {
    path: PathBuf,
    times: fn(u64) -> u64,
    files: Vec<(PathBuf, Vec<u8>)>,
    places: Vec<(usize, usize)>,
    _folder: tempfile::TempDir,
}

impl Patient {
    fn new(records: u64, pruned: bool) -> Self {
        Self::with_times(records, pruned, time_ns)
    }

    fn with_times(records: u64, pruned: bool, times: fn(u64) -> u64) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let path = folder.path().join("journal");
        let making = Options {
            create: true,
            ..options(false)
        };
        let journal = Journal::open(&path, making).unwrap();
        let writer = journal.writer().unwrap();
        for sequence in 0..records {
            writer.append_at(times(sequence), &body(sequence)).unwrap();
        }
        if pruned {
            let retention = millstream_journal::Retention {
                bytes: Some(1),
                ..Default::default()
            };
            journal.prune(&retention).unwrap();
        }
        let cursor = journal.cursor("reader", CursorMode::Exclusive).unwrap();
        let position = CURSOR.max(journal.first().unwrap());
        cursor.set(position.min(journal.next().unwrap())).unwrap();
        journal.sync().unwrap();
        drop((cursor, writer, journal));
        let mut patient = Patient {
            files: Vec::new(),
            places: Vec::new(),
            path,
            times,
            _folder: folder,
        };
        patient.look();
        patient
    }

    fn look(&mut self) {
        let names = fs::read_dir(&self.path).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        for name in names {
            let file = self.path.join(&name);
            if file.is_dir() {
                continue;
            }
            let bytes = fs::read(&file).unwrap();
            let index = self.files.len();
            let name = name.to_string_lossy().into_owned();
            let mut add = |range: std::ops::Range<usize>| {
                self.places.extend(range.map(|at| (index, at)));
            };
            if name.starts_with("segment-") {
                add(0..56);
                add(64..80);
                add(128..160);
                add(4096..4096 + 8);
                let mut at = FRAMES;
                while bytes[at..at + 8] != [0; 8] {
                    let length = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
                    add(at..at + 16);
                    at += 16 + (length as usize & 0x1FFF_FFFF).next_multiple_of(8);
                }
                add(at..at + 8);
            } else if name == "control" {
                [0..64, 64..96, 128..144, 192..216]
                    .into_iter()
                    .for_each(add);
            } else {
                [0..16, 16..40, 64..104, 128..168]
                    .into_iter()
                    .filter(|range| range.end <= bytes.len())
                    .for_each(add);
            }
            self.files.push((file, bytes));
        }
    }

    fn heal(&self) {
        let left = fs::read_dir(&self.path).unwrap();
        for file in left.map(|entry| entry.unwrap().path()) {
            if file.is_file() && !self.files.iter().any(|(known, _)| *known == file) {
                fs::remove_file(file).unwrap();
            }
        }
        for (file, bytes) in &self.files {
            fs::write(file, bytes).unwrap();
        }
    }
}

/// The result of each way to read, as text.
fn reads(
    journal: &Journal,
    times: fn(u64) -> u64,
    first: u64,
    records: u64,
) -> Vec<(String, Result<String, Error>)> {
    let mut found = Vec::new();
    // Their segments stay mapped meanwhile.
    let _readers: Vec<_> = (first..records)
        .map(|sequence| {
            let mut reader = journal.reader()?;
            reader.seek(sequence)?;
            Ok::<_, Error>(reader)
        })
        .collect();
    let mut note = |way: String, outcome: Result<String, Error>| found.push((way, outcome));
    let all = |from: Option<u64>, since: Option<u64>| {
        let mut reader = journal.reader()?;
        if let Some(from) = from {
            reader.seek(from)?;
        }
        if let Some(since) = since {
            reader.seek_time(since)?;
        }
        let mut text = String::new();
        while let Some(record) = reader.next()? {
            let right = record.body == body(record.sequence);
            text += &format!("{}@{}{right} ", record.sequence, record.time_ns);
            if from.or(since).is_some() {
                // The rest is read from the first record on.
                break;
            }
        }
        Ok(text + &reader.position().to_string())
    };
    note("all".into(), all(None, None));
    for sequence in first..=records {
        note(format!("from {sequence}"), all(Some(sequence), None));
    }
    for sequence in first..=records {
        for time in [times(sequence), times(sequence) + 1] {
            note(format!("since {time}"), all(None, Some(time)));
            note(format!("until {time}"), until(journal, time));
        }
    }
    note("next".into(), journal.next().map(|next| next.to_string()));
    note("first".into(), journal.first().map(|next| next.to_string()));
    note("durable".into(), Ok(journal.durable().to_string()));
    note(
        "info".into(),
        journal.info().map(|info| {
            let millstream_journal::Info {
                first,
                next,
                durable,
                segments,
                segment_bytes,
                bytes,
                times_ns,
                ..
            } = info;
            format!("{first} {next} {durable} {segments} {segment_bytes} {bytes} {times_ns:?}")
        }),
    );
    note(
        "identity".into(),
        journal.identity().map(|identity| format!("{identity:?}")),
    );
    found
}

/// The number of the first record after all that are before this time.
fn until(journal: &Journal, time_ns: u64) -> Result<String, Error> {
    let mut reader = journal.reader()?;
    reader.seek_time_end(time_ns)?;
    Ok(reader.position().to_string())
}

/// An append gets the next number and a time that is not earlier, and is read back.
fn append(journal: &Journal) -> Result<String, Error> {
    let writer = journal.writer()?;
    let sequence = writer.append(b"behind")?;
    let mut reader = journal.reader()?;
    let record = reader.read(sequence)?;
    Ok(format!("{sequence}@{} {:?}", record.time_ns, record.body))
}

/// Open, read in every way, and append if that is allowed.
fn outcomes(
    path: &Path,
    times: fn(u64) -> u64,
    read_only: bool,
    first: u64,
    records: u64,
) -> Vec<(String, Result<String, Error>)> {
    let journal = match Journal::open(path, options(read_only)) {
        Ok(journal) => journal,
        Err(error) => return vec![("open".to_owned(), Err(error))],
    };
    let mut found = reads(&journal, times, first, records);
    if !read_only {
        found.push(("append".to_owned(), append(&journal)));
        drop(journal);
        // The next one finds it too.
        let again = Journal::open(path, options(true));
        let again = again.and_then(|journal| {
            let mut reader = journal.reader()?;
            while reader.next()?.is_some() {}
            Ok(format!("{} {}", reader.position(), journal.next()?))
        });
        found.push(("again".to_owned(), again));
    }
    found
}

/// Flip two bits of each byte, or all with `MILLSTREAM_ALL_BITS`, each alone, and compare. Returns how many flips were
/// reported, and how many did no harm.
fn flip_all(patient: &Patient, first: u64, records: u64, with_control: bool) -> (u64, u64) {
    let every = match std::env::var_os("MILLSTREAM_ALL_BITS") {
        Some(_) => 1,
        None => 4,
    };
    let mut reported = 0;
    let mut harmless = 0;
    for read_only in [true, false] {
        patient.heal();
        let expected = outcomes(&patient.path, patient.times, read_only, first, records);
        assert!(
            expected.iter().all(|(_, outcome)| outcome.is_ok()),
            "{expected:?}"
        );
        patient.heal();
        for &(file, at) in &patient.places {
            let (name, sound) = &patient.files[file];
            let is_control = name.ends_with("control");
            if is_control && !with_control {
                continue;
            }
            for bit in (at % every..8).step_by(every) {
                if !read_only {
                    patient.heal();
                }
                if !with_control {
                    let _gone = fs::remove_file(patient.path.join("control"));
                }
                let mut bytes = sound.clone();
                bytes[at] ^= 1 << bit;
                fs::write(name, &bytes).unwrap();
                let found = outcomes(&patient.path, patient.times, read_only, first, records);
                let mut is_reported = false;
                for (way, outcome) in &found {
                    let right = &expected.iter().find(|(name, _)| name == way);
                    match (outcome, right) {
                        (Err(Error::Damage { .. } | Error::Version { .. }), _) => {
                            is_reported = true
                        }
                        (Ok(found), Some((_, Ok(right)))) if found == right => {}
                        _ => panic!(
                            "bit {bit} of byte {at} of {}, read only: {read_only}, {way}: {outcome:?} instead of {right:?}",
                            name.display()
                        ),
                    }
                }
                reported += u64::from(is_reported);
                harmless += u64::from(!is_reported);
                if read_only {
                    fs::write(name, sound).unwrap();
                }
            }
        }
    }
    (reported, harmless)
}

#[test]
fn no_flipped_bit_of_a_closed_journal_is_silent() {
    let patient = Patient::new(RECORDS, false);
    let (reported, harmless) = flip_all(&patient, 0, RECORDS, true);
    assert!(reported > 500 && harmless > 250, "{reported} {harmless}");
}

#[test]
fn no_flipped_bit_of_a_copied_journal_is_silent() {
    let patient = Patient::new(RECORDS, false);
    let (reported, harmless) = flip_all(&patient, 0, RECORDS, false);
    assert!(reported > 500 && harmless > 250, "{reported} {harmless}");
}

#[test]
fn no_flipped_bit_of_a_journal_whose_clock_jumped_is_silent() {
    let patient = Patient::with_times(RECORDS, false, jumping_ns);
    flip_all(&patient, 0, RECORDS, true);
}

#[test]
fn no_flipped_bit_of_an_empty_or_pruned_journal_is_silent() {
    for with_control in [true, false] {
        let empty = Patient::new(0, false);
        flip_all(&empty, 0, 0, with_control);
        let pruned = Patient::new(RECORDS, true);
        let first = Journal::open(&pruned.path, options(true))
            .unwrap()
            .first()
            .unwrap();
        assert!(first > 0);
        flip_all(&pruned, first, RECORDS, with_control);
    }
}
