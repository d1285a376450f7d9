//! What the tests share: a directory, a model, seeded randomness.

use millstream_journal::{Journal, Options, Reader, Writer};
use tempfile::TempDir;

/// The smallest segments, so that everything rolls.
pub const SEGMENT_BYTES: u64 = 64 << 10;

/// Options with the smallest segments.
pub fn small() -> Options {
    Options::default().with_segment_bytes(SEGMENT_BYTES)
}

/// A directory and an open journal in it.
pub fn fresh(options: Options) -> (TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("journal"), options).unwrap();
    (folder, journal)
}

/// A small generator (xorshift64*), so that a failure repeats from its seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    pub fn bytes(&mut self, length_max: u64) -> Vec<u8> {
        let length = self.below(length_max + 1);
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

/// What was appended, from sequence number 0 on.
#[derive(Default)]
pub struct Model {
    pub records: Vec<Vec<u8>>,
}

impl Model {
    pub fn append(&mut self, writer: &Writer, body: Vec<u8>) {
        assert_eq!(writer.append(&body).unwrap(), self.records.len() as u64);
        self.records.push(body);
    }

    /// The reader returns exactly the records from its position on, with times that never decrease.
    pub fn check(&self, reader: &mut Reader) {
        let mut time_ns = 0;
        for sequence in reader.position()..self.records.len() as u64 {
            let record = reader
                .next()
                .unwrap()
                .unwrap_or_else(|| panic!("record {sequence} is not there"));
            assert_eq!(record.sequence, sequence);
            assert!(
                record.body == self.records[sequence as usize],
                "record {sequence} differs"
            );
            assert!(
                record.time_ns >= time_ns,
                "the time of record {sequence} falls"
            );
            time_ns = record.time_ns;
        }
        assert_eq!(reader.next().unwrap(), None);
        assert_eq!(reader.position(), self.records.len() as u64);
    }
}
