//! Dropping messages that have come before, by the numbers that a numbered TCP sink puts before them.
//!
//! What has come is known from the output file alone, so that a receiver may be killed at any moment: a half message at
//! its end is truncated, and the numbers before it are read.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use millstream_flow::framing::{Cutter, Framing};
use millstream_flow::numbered;

use crate::failure::Failure;

const READ_BYTES: usize = 1 << 20;

/// The number that each sender sends next.
#[derive(Debug, Default)]
pub(super) struct Dedupe {
    next: BTreeMap<u64, u64>,
    /// Messages that had come before.
    pub(super) repeated: u64,
    /// Numbers that are missing.
    pub(super) missing: u64,
}

impl Dedupe {
    /// Whether a message has not come before.
    pub(super) fn admit(&mut self, message: &[u8]) -> Result<bool, String> {
        let (sender, number, _) = numbered::parse(message)
            .ok_or_else(|| format!("a message of {} bytes has no number", message.len()))?;
        // The first number of a sender: nothing before it counts as missing.
        let next = self.next.entry(sender).or_insert(number);
        if number < *next {
            self.repeated += 1;
            return Ok(false);
        }
        self.missing += number - *next;
        *next = number + 1;
        Ok(true)
    }

    /// Opens or creates the output file, to resume after its last complete message.
    pub(super) fn resume(
        &mut self,
        path: &Path,
        framing: &Framing,
        max_frame: usize,
    ) -> Result<File, Failure> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("cannot resume '{}': {error}", path.display()))
        };
        let mut file = options.open(path).map_err(|error| cannot(&error))?;
        let mut cutter = Cutter::new(framing.clone(), max_frame);
        let mut buffer = Vec::new();
        let mut spans = Vec::new();
        loop {
            let had = buffer.len();
            (&mut file)
                .take(READ_BYTES as u64)
                .read_to_end(&mut buffer)
                .map_err(|error| cannot(&error))?;
            if buffer.len() == had {
                break;
            }
            let base = cutter.offset();
            let cut = cutter.cut(&buffer, 0, &mut spans);
            for (start, end) in spans.drain(..) {
                let message = &buffer[start as usize..end as usize];
                self.admit(message).map_err(|what| cannot(&what))?;
            }
            cut.map_err(|error| cannot(&error))?;
            buffer.drain(..(cutter.offset() - base) as usize);
        }
        file.set_len(cutter.offset())
            .and_then(|()| file.seek(SeekFrom::Start(cutter.offset())))
            .map_err(|error| cannot(&error))?;
        // Only what comes from now on is worth a report.
        (self.repeated, self.missing) = (0, 0);
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use millstream_flow::framing::encode;

    use super::*;

    fn message(sender: u64, number: u64) -> Vec<u8> {
        let mut message = (sender << 48 | number).to_le_bytes().to_vec();
        message.extend(b"payload");
        message
    }

    #[test]
    fn repeats_are_dropped_and_gaps_are_counted_for_each_sender() {
        let mut dedupe = Dedupe::default();
        let admitted: Vec<bool> = [
            (0, 0),
            (0, 1),
            (1, 5),
            (0, 1),
            (0, 0),
            (0, 2),
            (1, 8),
            (1, 7),
        ]
        .map(|(sender, number)| dedupe.admit(&message(sender, number)).expect("numbered"))
        .into();
        assert_eq!(
            admitted,
            [true, true, true, false, false, true, true, false]
        );
        assert_eq!((dedupe.repeated, dedupe.missing), (3, 2));
        assert!(dedupe.admit(b"short").is_err());
    }

    #[test]
    fn a_file_is_resumed_wherever_it_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        let mut whole = Vec::new();
        for number in 0..3 {
            encode(&Framing::U32, &message(2, number), &mut whole).expect("it is short");
        }
        let each = whole.len() / 3;
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).expect("it is written");
            let mut dedupe = Dedupe::default();
            let Ok(file) = dedupe.resume(&path, &Framing::U32, 1 << 20) else {
                panic!("it does not resume after {length} bytes");
            };
            let messages = length / each;
            assert_eq!(
                file.metadata().expect("it is there").len(),
                (messages * each) as u64
            );
            if messages > 0 {
                assert_eq!(dedupe.next[&2], messages as u64);
                assert!(
                    !dedupe
                        .admit(&message(2, messages as u64 - 1))
                        .expect("numbered")
                );
            }
            assert!(
                dedupe
                    .admit(&message(2, messages as u64))
                    .expect("numbered")
            );
        }
    }
}
