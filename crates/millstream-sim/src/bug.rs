//! Bugs that the journal might have, each as a defect of the machine that has the same effect: the journal's own source
//! has none.
//!
//! A simulation that finds a defect would find the bug.

use millstream_journal::storage::{Access, Defect, Region, Simulated, Storage};

use crate::frames::checksum;

/// A bug that must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Checksums are not examined: the disk writes those that match what a loss of power has left.
    NoChecksum,
    /// `append` does not wait for its sync: syncs of files do nothing.
    AcknowledgeBeforeSync,
    /// Recovery trusts the tail, and scans nothing: the disk writes the tail into the durable watermark.
    TrustTail,
    /// The durable watermark is stored before the sync that makes it true: only the header of a segment is synced.
    WatermarkBeforeSync,
    /// A new segment's name is not synced: syncs of names do nothing.
    NamesNotSynced,
    /// A torn end is not cleared: zeros that a recovery stores are lost.
    KeepTorn,
    /// A frame's first word is stored before its body.
    PublishFirst,
    /// A writer that takes the lock of a dead one repairs nothing: the lock is free when its holder dies.
    NoRepair,
    /// A sync that failed is forgotten: it is reported as done.
    ForgetFailedSync,
    /// A segment's end frame is published before the next segment has begun.
    RollFirst,
    /// An append does not wait for a sync that is late: the wall clock, by which it notices that, does not move.
    LateAppends,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 11] = [
        Bug::NoChecksum,
        Bug::AcknowledgeBeforeSync,
        Bug::TrustTail,
        Bug::WatermarkBeforeSync,
        Bug::NamesNotSynced,
        Bug::KeepTorn,
        Bug::PublishFirst,
        Bug::NoRepair,
        Bug::ForgetFailedSync,
        Bug::RollFirst,
        Bug::LateAppends,
    ];

    /// The defect that a machine has all the time.
    #[must_use]
    pub fn defect(self) -> Option<Defect> {
        match self {
            Bug::AcknowledgeBeforeSync => Some(Defect::NoFileSyncs),
            Bug::WatermarkBeforeSync => Some(Defect::FirstPageSyncs),
            Bug::NamesNotSynced => Some(Defect::NoNameSyncs),
            Bug::PublishFirst => Some(Defect::LateBytes),
            Bug::ForgetFailedSync => Some(Defect::HiddenFailures),
            Bug::RollFirst => Some(Defect::LateBase),
            Bug::NoChecksum | Bug::TrustTail | Bug::KeepTorn | Bug::NoRepair | Bug::LateAppends => {
                None
            }
        }
    }

    /// The defect that a machine has while a journal is opened.
    #[must_use]
    pub fn defect_of_recovery(self) -> Option<Defect> {
        (self == Bug::KeepTorn).then_some(Defect::LostZeros)
    }

    /// What the disk does when the power fails.
    pub fn spoil(self, machine: &Simulated) {
        match self {
            Bug::TrustTail => segments(machine).iter().for_each(trust_tail),
            Bug::NoChecksum => segments(machine).iter().for_each(match_checksums),
            _ => {}
        }
    }

    /// What the machine does when a process was killed.
    pub fn after_kill(self, machine: &Simulated) {
        if self == Bug::NoRepair {
            (LOCK..LOCK + 8).for_each(|at| {
                machine.damage("control", at, |_| 0);
            });
        }
    }
}

/// The append lock in the control page.
const LOCK: u64 = 64;
/// Words of a segment, see `docs/journal-format.md`.
const EPOCH: u64 = 24;
const BYTES: u64 = 32;
const BASE: u64 = 64;
const DURABLE: u64 = 72;
const TAIL: u64 = 128;
const INDEX: u64 = 4096;
const BLOCK: u64 = 64 << 10;
const HEADER: u64 = 16;

/// The segments of all journals on a machine that nothing runs on.
fn segments(machine: &Simulated) -> Vec<impl Region + use<>> {
    let process = machine.process();
    let mut folders = vec![process.clone()];
    folders.extend(process.folders().iter().map(|name| process.folder(name)));
    let names = |folder: &Simulated| folder.list("").unwrap_or_default();
    let is_segment = |name: &String| name.starts_with("segment-");
    let mut segments = Vec::new();
    for folder in &folders {
        for name in names(folder).iter().filter(|name| is_segment(name)) {
            segments.extend(folder.open(name, Access::Write));
        }
    }
    segments
}

fn trust_tail(segment: &impl Region) {
    segment.publish(DURABLE, segment.load(TAIL));
    let _synced = segment.sync(0, INDEX);
}

fn match_checksums(segment: &impl Region) {
    let bytes = segment.load(BYTES).min(segment.bytes_len());
    let epoch = segment.load(EPOCH);
    let base = segment.load(BASE);
    if base == u64::MAX {
        // It was not begun.
        return;
    }
    let mut at = INDEX + (bytes.div_ceil(BLOCK) * 8).next_multiple_of(INDEX);
    for sequence in base.. {
        if at + HEADER > bytes {
            break;
        }
        let low = segment.load(at) as u32;
        let length = u64::from(low) & ((1 << 29) - 1);
        let end = at + HEADER + length.next_multiple_of(8);
        if low >> 31 == 0 || end > bytes {
            break;
        }
        let words = (at + HEADER..end).step_by(8);
        let body: Vec<u8> = words
            .flat_map(|at| segment.load(at).to_le_bytes())
            .take(length as usize)
            .collect();
        let crc = checksum(epoch, sequence, segment.load(at + 8), low, &body);
        segment.publish(at, u64::from(low) | u64::from(crc) << 32);
        at = end;
    }
    let _synced = segment.sync(0, bytes);
}
