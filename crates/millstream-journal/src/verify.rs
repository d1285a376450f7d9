//! Reading everything and naming every damage.
//!
//! Behind a damaged frame the index tells where sound ones go on, so that one flipped bit costs one report and not the rest of a
//! segment.

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

use crate::control::Control;
use crate::error::{Error, Result};
use crate::frame::Kind;
use crate::options::Options;
use crate::recover::{self, Plan};
use crate::segment::{self, BLOCK, Mark, Segment};
use crate::storage::{Access, Region, Storage};

const STEP: u64 = 2 << 20;

/// What [`Journal::verify`](crate::Journal::verify) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether all was read: false when the caller had enough.
    pub complete: bool,
    /// How many segments were read.
    pub segments: u64,
    /// How many records are sound.
    pub records: u64,
    /// How many bytes of frames were read.
    pub bytes: u64,
    /// Everything that is wrong, in the order of the files.
    pub damages: Vec<Damage>,
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The byte in the file at which it begins.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// The records that cannot be read because of it, as far as that is known.
    pub records: Option<Range<u64>>,
}

/// How far a verification has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Segments that were read.
    pub segments: u64,
    /// Segments in all.
    pub segments_total: u64,
}

pub(crate) fn verify<S: Storage>(
    storage: &S,
    options: &Options,
    progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report> {
    let report = read_all(storage, options, progress);
    // What a device cannot read now is not known to be damaged.
    match storage.fault() {
        Some(fault) => Err(fault.into()),
        None => report,
    }
}

fn read_all<S: Storage>(
    storage: &S,
    options: &Options,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Report> {
    let numbers = recover::segments(storage)?;
    let control = Control::open(storage, Access::Read)?
        .filter(|control| control.is_live(storage, options.host.boot()));
    let mut check = Check {
        storage,
        report: Report {
            complete: true,
            ..Report::default()
        },
        plan: None,
        tail_segment: 0,
    };
    match control {
        Some(control) => check.tail_segment = control.tail_segment(),
        None => match recover::plan(storage, None, options) {
            Ok(plan) => {
                check.tail_segment = plan.facts.tail_segment;
                check.plan = Some(plan);
            }
            Err(Error::Damage { path, offset, what }) => {
                check.report.damages.push(Damage {
                    path,
                    offset,
                    what,
                    records: None,
                });
                check.tail_segment = numbers.last().copied().unwrap_or(0);
            }
            Err(error) => return Err(error),
        },
    }
    let segments_total = numbers.len() as u64;
    let mut expected = None;
    for (done, number) in (0..).zip(numbers) {
        let so_far = Progress {
            segments: done,
            segments_total,
        };
        if progress(so_far).is_break() {
            check.report.complete = false;
            break;
        }
        if number <= check.tail_segment {
            expected = check.segment(number, expected)?;
            check.report.segments += 1;
        }
    }
    // What the plan objected to is found again by reading, with more about it.
    let mut seen = std::collections::BTreeSet::new();
    check
        .report
        .damages
        .sort_by_key(|damage| (damage.path.clone(), damage.offset, damage.records.is_none()));
    check
        .report
        .damages
        .retain(|damage| seen.insert((damage.path.clone(), damage.offset)));
    Ok(check.report)
}

struct Check<'a, S> {
    storage: &'a S,
    report: Report,
    plan: Option<Plan>,
    tail_segment: u64,
}

impl<S: Storage> Check<'_, S> {
    fn damage(
        &mut self,
        number: u64,
        offset: u64,
        what: impl Into<String>,
        records: Option<Range<u64>>,
    ) {
        let path = self.storage.path(&segment::name(number));
        self.report.damages.push(Damage {
            path,
            offset,
            what: what.into(),
            records,
        });
    }

    /// Read a segment; gives the sequence number with which the next one should begin.
    fn segment(&mut self, number: u64, expected: Option<u64>) -> Result<Option<u64>> {
        let segment = match Segment::open(self.storage, number, Access::Read) {
            Ok(segment) => segment,
            Err(Error::Damage { path, offset, what }) => {
                self.report.damages.push(Damage {
                    path,
                    offset,
                    what,
                    records: None,
                });
                return Ok(None);
            }
            // Pruned meanwhile.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let planned = self.plan.as_ref().and_then(|plan| plan.base(number));
        let base = match (planned.or_else(|| segment.base()), expected) {
            (Some(base), Some(expected)) if base != expected => {
                let what =
                    format!("the segment begins with record {base}, and {expected} should follow");
                self.damage(number, 64, what, None);
                expected
            }
            (Some(base), _) | (None, Some(base)) => base,
            (None, None) => {
                self.damage(number, 64, "the segment has no first sequence number", None);
                return Ok(None);
            }
        };
        Ok(self.frames(&segment, base))
    }

    fn frames(&mut self, segment: &Segment<S::Region>, base: u64) -> Option<u64> {
        let number = segment.number();
        let planned = self.plan.as_ref().and_then(|plan| plan.tail(number));
        let tail = planned.unwrap_or_else(|| segment.tail());
        let mut at = Mark {
            offset: segment.data_start(),
            records: 0,
        };
        let mut populated = at.offset;
        loop {
            if at.offset >= populated {
                populated = at.offset + STEP;
                segment.region().populate(at.offset, populated);
            }
            let sequence = base + at.records;
            let fault = match segment.head(at.offset) {
                Ok(None) if at.offset >= tail.offset && number == self.tail_segment => {
                    return Some(sequence);
                }
                Ok(None) => "a frame that was written is not there",
                Err(what) => what,
                Ok(Some(head)) if segment.is_sound(at.offset, head, sequence) => {
                    self.report.bytes += head.bytes();
                    if head.kind == Kind::End {
                        return Some(sequence);
                    }
                    self.report.records += 1;
                    at = Mark {
                        offset: at.offset + head.bytes(),
                        records: at.records + 1,
                    };
                    continue;
                }
                Ok(Some(_)) => "a frame does not match its checksum",
            };
            let next = after(segment, base, at);
            let last = next
                .map(|next| next.records)
                .or(Some(tail.records))
                .filter(|last| *last > at.records);
            let records = last.map(|last| sequence..base + last);
            self.damage(number, at.offset, fault, records);
            match next {
                Some(next) => at = next,
                None => return None,
            }
        }
    }
}

/// The first sound frame that the index knows behind a damaged one.
fn after<R: Region>(segment: &Segment<R>, base: u64, at: Mark) -> Option<Mark> {
    let blocks = at.offset / BLOCK + 1..segment.bytes() / BLOCK;
    blocks.filter_map(|block| segment.slot(block)).find(|mark| {
        let ahead = mark.offset > at.offset && mark.records > at.records;
        let head = if ahead {
            segment.head(mark.offset).ok().flatten()
        } else {
            None
        };
        head.is_some_and(|head| segment.is_sound(mark.offset, head, base + mark.records))
    })
}
