//! Arbitrary bytes in the frames of a segment: a reader returns what the format defines, whether the journal is in use,
//! read as a recovery would leave it, or recovered. The judge is a second implementation of the format, see
//! [`frames`](crate::frames).
//!
//! An input is a list of pieces: sound frames, frames with one thing wrong, noise.

use arbitrary::{Result, Unstructured};
use millstream_journal::storage::Simulated;
use millstream_journal::{Error, Host, Journal, Options};

use crate::frames::{checksum, frame};

const FILE: &str = "segment-0000000000.log";
const BYTES: usize = 1 << 16;
/// Where frames begin in a segment of one block.
const DATA: usize = 8192;
/// The random number of the host, and so the segment's epoch.
const EPOCH: u64 = 7;

/// The bytes in the place of frames.
fn pieces(input: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut sequence = 0;
    while !input.is_empty() && bytes.len() < 4096 {
        let what: u8 = input.arbitrary()?;
        let length = usize::from(input.arbitrary::<u8>()?).min(input.len());
        let body = input.bytes(length)?;
        let time_ns = u64::from(what) << 8;
        match what % 8 {
            0 => bytes.extend(frame(0, EPOCH + 1, sequence, time_ns, body)),
            1 => bytes.extend(frame(0, EPOCH, sequence + 1, time_ns, body)),
            2 => bytes.extend(frame(2, EPOCH, sequence, time_ns, body)),
            3 => bytes.extend(frame(1, EPOCH, sequence, time_ns, body)),
            4 => bytes.extend(body),
            5 => bytes.extend([0; 8]),
            _ => {
                bytes.extend(frame(0, EPOCH, sequence, time_ns, body));
                sequence += 1;
            }
        }
    }
    Ok(bytes)
}

/// How a reading ended.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// At a zero word.
    Open,
    /// At an end frame.
    Ended,
    /// At something else.
    Wrong,
}

/// The records of a segment, and how they end.
fn model(segment: &[u8]) -> (Vec<&[u8]>, End) {
    let mut records = Vec::new();
    let mut at = DATA;
    loop {
        let Some(header) = segment.get(at..at + 16) else {
            return (records, End::Wrong);
        };
        let word = |from: usize| {
            u32::from_le_bytes(header[from..from + 4].try_into().expect("four bytes"))
        };
        let low = word(0);
        let crc = word(4);
        if low == 0 && crc == 0 {
            return (records, End::Open);
        }
        let time_ns = u64::from(word(8)) | u64::from(word(12)) << 32;
        let committed = low >> 31 == 1;
        let kind = low >> 29 & 3;
        let length = (low & ((1 << 29) - 1)) as usize;
        let Some(body) = segment.get(at + 16..at + 16 + length) else {
            return (records, End::Wrong);
        };
        let sound = checksum(EPOCH, records.len() as u64, time_ns, low, body) == crc;
        match kind {
            _ if !committed || !sound => return (records, End::Wrong),
            0 => records.push(body),
            1 => return (records, End::Ended),
            _ => return (records, End::Wrong),
        }
        at += 16 + length.next_multiple_of(8);
    }
}

/// Read until there is nothing more, or an error.
fn read(journal: &Journal<Simulated>) -> (Vec<Vec<u8>>, Option<Error>) {
    let mut reader = journal.reader().expect("the segment is there");
    let mut records = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(record)) => {
                assert_eq!(record.sequence, records.len() as u64);
                records.push(record.body.to_vec());
            }
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

/// Feeds one input. It panics when it finds something.
pub fn run(input: &[u8]) {
    let Ok(bytes) = pieces(&mut Unstructured::new(input)) else {
        return;
    };
    let host = Host::simulated(|| 0, || EPOCH);
    let options = Options {
        host,
        ..Options::default().with_segment_bytes(BYTES as u64)
    };
    let read_only = Options {
        read_only: true,
        ..options.clone()
    };
    let machine = Simulated::new();
    drop(
        Journal::open_in(machine.process(), options.clone()).expect("an empty journal can be made"),
    );
    let mut segment = vec![0; BYTES];
    segment[DATA..][..bytes.len()].copy_from_slice(&bytes);
    for (at, byte) in bytes.iter().enumerate() {
        assert!(machine.damage(FILE, (DATA + at) as u64, |_| *byte));
    }
    let (records, end) = model(&segment);

    check_live(&machine, &read_only, &records, end);
    // The machine was started again: everything is above the watermark, and what is wrong is cut.
    let machine = machine.lose_power(&mut |limit| limit - 1);
    check_recovered(&machine, &options, &read_only, &records, end);
}

/// The control page is kept. A reader believes it only if the frames agree with it, and otherwise reads what a recovery
/// would leave.
fn check_live(machine: &Simulated, read_only: &Options, records: &[&[u8]], end: End) {
    match Journal::open_in(machine.process(), read_only.clone()) {
        Ok(live) => {
            let (found, error) = read(&live);
            assert_eq!(found, records);
            assert!(error.is_none() || end != End::Open, "{end:?}, {error:?}");
        }
        Err(error) => assert!(
            matches!(error, Error::Damage { .. }) && end != End::Open,
            "{end:?}, {error}"
        ),
    }
}

fn check_recovered(
    machine: &Simulated,
    options: &Options,
    read_only: &Options,
    records: &[&[u8]],
    end: End,
) {
    let again = |options: &Options| Options {
        host: options.host.clone().with_boot(2),
        ..options.clone()
    };
    let planned = Journal::open_in(machine.process(), again(read_only));
    let recovered = Journal::open_in(machine.process(), again(options));
    if end == End::Ended {
        assert!(
            matches!(planned, Err(Error::Damage { .. })),
            "the next segment is missing"
        );
        assert!(
            matches!(recovered, Err(Error::Damage { .. })),
            "the next segment is missing"
        );
        return;
    }
    let planned = planned.expect("it can be read");
    let recovered = recovered.expect("it can be recovered");
    assert_eq!(
        recovered.next().expect("the tail is there"),
        records.len() as u64
    );
    let writer = recovered.writer().expect("nobody else writes");
    writer.append(b"behind").expect("there is room");
    let mut all: Vec<_> = records.iter().map(|record| record.to_vec()).collect();
    all.push(b"behind".to_vec());
    let (found, error) = read(&recovered);
    assert_eq!(
        (found, error.map(|error| error.to_string())),
        (all.clone(), None)
    );
    // A reader that planned before sees the result of the recovery.
    let (found, error) = read(&planned);
    assert!(error.is_none() && all.starts_with(&found), "{error:?}");
    let report = Journal::verify_in(&machine.process(), &again(options), |_| {
        std::ops::ControlFlow::Continue(())
    });
    assert_eq!(report.expect("it can be verified").damages, []);
}
