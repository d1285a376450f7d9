//! The damage trial: the files of a synced journal are damaged in one place at a time, as disks do it. The next process
//! that opens it must get an error or find every record. `MILLSTREAM_DAMAGES` sets the number of damages,
//! `MILLSTREAM_SEED` the first seed.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_journal::{Error, Host, Journal, Options};

use crate::support::{Random, SEGMENT_BYTES, small};

const RECORDS: u64 = 1_200;
const SECTOR: u64 = 512;
const PAGE: u64 = 4096;
const KINDS: [&str; 8] = [
    "a flipped bit",
    "several flipped bits",
    "a zeroed sector",
    "a zeroed page",
    "a short file",
    "two sectors swapped",
    "two pages swapped",
    "a page that was never written again",
];

fn body(sequence: u64) -> Vec<u8> {
    sequence.to_le_bytes().repeat(1 + sequence as usize % 25)
}

/// A number from the environment.
pub fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().unwrap())
}

/// No threads, so that a seed determines the run.
fn options() -> Options {
    let host = Host::simulated(|| 1, || 7);
    Options { host, ..small() }
}

type Images = Vec<Vec<u8>>;

/// A journal of three segments in memory: as it was in the middle of the last one, and in the end.
struct Patient {
    path: PathBuf,
    before: Images,
    after: Images,
    _folder: tempfile::TempDir,
}

impl Patient {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let path = folder.path().join("journal");
        let journal = Journal::open(&path, options()).unwrap();
        let writer = journal.writer().unwrap();
        writer.append_many((0..RECORDS - 200).map(body)).unwrap();
        journal.sync().unwrap();
        let mut patient = Patient {
            path,
            before: Vec::new(),
            after: Vec::new(),
            _folder: folder,
        };
        patient.before = patient.images();
        writer
            .append_many((RECORDS - 200..RECORDS).map(body))
            .unwrap();
        journal.sync().unwrap();
        drop((writer, journal));
        patient.after = patient.images();
        assert_eq!((patient.before.len(), patient.after.len()), (3, 3));
        patient
    }

    fn file(&self, segment: usize) -> PathBuf {
        self.path.join(format!("segment-{segment:010}.log"))
    }

    fn images(&self) -> Images {
        let files = (0..).map(|segment| fs::read(self.file(segment)));
        files.map_while(Result::ok).collect()
    }

    /// Damage the files. Returns which of them have changed.
    fn damage(&self, kind: &str, random: &mut Random) -> Vec<usize> {
        let mut images = self.after.clone();
        let segment = random.below(3) as usize;
        let at = random.below(SEGMENT_BYTES);
        let other = (random.below(3) as usize, random.below(SEGMENT_BYTES));
        match kind {
            "a flipped bit" => images[segment][at as usize] ^= 1 << random.below(8),
            "several flipped bits" => {
                for _ in 0..2 + random.below(60) {
                    let at = random.below(SEGMENT_BYTES) as usize;
                    images[segment][at] ^= 1 << random.below(8);
                }
            }
            "a zeroed sector" => part(&mut images[segment], at, SECTOR).fill(0),
            "a zeroed page" => part(&mut images[segment], at, PAGE).fill(0),
            "a short file" => images[segment].truncate(at as usize),
            "two sectors swapped" => swap(&mut images, (segment, at), other, SECTOR),
            "two pages swapped" => swap(&mut images, (segment, at), other, PAGE),
            _ => {
                let stale = part(&mut self.before[segment].clone(), at, PAGE).to_vec();
                part(&mut images[segment], at, PAGE).copy_from_slice(&stale);
            }
        }
        let changed = (0..3).filter(|segment| images[*segment] != self.after[*segment]);
        let changed: Vec<_> = changed.collect();
        for segment in &changed {
            fs::write(self.file(*segment), &images[*segment]).unwrap();
        }
        changed
    }

    /// Restores every file: a process that had the journal open may have changed the undamaged ones too.
    fn heal(&self) {
        for (segment, image) in self.after.iter().enumerate() {
            fs::write(self.file(segment), image).unwrap();
        }
    }
}

/// The part of this length that contains the byte at `at`.
fn part(image: &mut [u8], at: u64, length: u64) -> &mut [u8] {
    &mut image[(at / length * length) as usize..][..length as usize]
}

fn swap(images: &mut Images, one: (usize, u64), other: (usize, u64), length: u64) {
    let first = part(&mut images[one.0], one.1, length).to_vec();
    let second = part(&mut images[other.0], other.1, length).to_vec();
    part(&mut images[one.0], one.1, length).copy_from_slice(&second);
    part(&mut images[other.0], other.1, length).copy_from_slice(&first);
}

/// Read all; every record must be right. Returns how many there are.
fn read_all(path: &Path, options: Options) -> Result<u64, Error> {
    let journal = Journal::open(path, options)?;
    let mut reader = journal.reader()?;
    while let Some(record) = reader.next()? {
        assert_eq!(record.body, body(record.sequence));
    }
    Ok(reader.position())
}

#[test]
fn no_damage_is_silent() {
    let patient = Patient::new();
    let runs = number("MILLSTREAM_DAMAGES", 10_000);
    let first = number("MILLSTREAM_SEED", 1);
    let mut told = vec![0; KINDS.len()];
    let mut silent = Vec::new();
    for seed in first..first + runs {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let kind = random.below(KINDS.len() as u64) as usize;
        let changed = patient.damage(KINDS[kind], &mut random);
        // After a loss of power, or a copy, nothing but the segments tells what is there.
        if random.below(2) == 0 {
            let _none = fs::remove_file(patient.path.join("control"));
        }
        let read_only = random.below(2) == 0;
        let options = Options {
            read_only,
            ..options()
        };
        match read_all(&patient.path, options) {
            Ok(RECORDS) => {}
            Ok(end) => {
                let kind = KINDS[kind];
                eprintln!("{kind}: {end} of {RECORDS} records and no word about it");
                eprintln!("  repeat with: MILLSTREAM_SEED={seed} MILLSTREAM_DAMAGES=1");
                silent.push(seed);
            }
            Err(Error::Damage { path, .. } | Error::Version { path, .. }) => {
                let named = changed.iter().any(|segment| patient.file(*segment) == path);
                assert!(named, "seed {seed}: {} was not damaged", path.display());
                told[kind] += 1;
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
        if !changed.is_empty() || !read_only {
            patient.heal();
        }
    }
    println!(
        "{{\"promise\":4,\"runs\":{runs},\"failures\":{},\"first_seed\":{first}}} {:?}",
        silent.len(),
        KINDS.iter().zip(&told).collect::<Vec<_>>(),
    );
    assert_eq!(silent, [0; 0]);
    assert!(runs < 1_000 || told.iter().all(|told| *told > runs / 100));
}
