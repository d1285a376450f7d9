//! Reading everything and naming every damage.
//!
//! After a damaged frame the index yields the next sound one, so that one flipped bit costs one report and not the rest
//! of a segment.

use std::ops::{ControlFlow, Range};
use std::path::PathBuf;

use crate::chain;
use crate::copies::identity;
use crate::error::{Error, Result};
use crate::format::control::Control;
use crate::format::files;
use crate::format::frame::{self, Kind};
use crate::format::published::Published;
use crate::format::segment::{self, BLOCK, Mark, Segment};
use crate::options::Options;
use crate::read::cursor_file;
use crate::recover::{self, Plan};
use crate::retain::start::Start;
use crate::storage::{Access, Region, Storage};

const STEP: u64 = 2 << 20;

/// What [`Journal::verify`](crate::Journal::verify) found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Whether everything was read: false when the caller stopped it.
    pub complete: bool,
    /// How many segments were read.
    pub segments: u64,
    /// How many records are sound.
    pub records: u64,
    /// How many bytes of frames were read.
    pub bytes: u64,
    /// Everything that is wrong, in the order of the files.
    pub damages: Vec<Damage>,
    /// The torn end that the next opening to write will clear: no damage.
    pub torn: Option<Torn>,
}

/// A torn end: appends that a loss of power, or a copy taken meanwhile, has left unfinished. None of it was synced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Torn {
    /// The file in which it begins.
    pub path: PathBuf,
    /// The byte in the file at which it begins.
    pub offset: u64,
    /// How many bytes will be cleared, at most: up to the last one that is not zero, in all files.
    pub bytes: u64,
    /// How many records it may have been, at most.
    pub records_max: u64,
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The byte in the file at which it begins.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
    /// The records that cannot be read because of it, as far as known.
    pub records: Option<Range<u64>>,
}

impl Damage {
    /// The damage of the file of that name, from the error of reading it.
    pub(crate) fn of<S: Storage>(error: Error, storage: &S, file: &str) -> Self {
        match error {
            Error::Damage { path, offset, what } => Damage {
                path,
                offset,
                what,
                records: None,
            },
            other => Damage {
                path: storage.path(file),
                offset: 0,
                what: chain(&other).to_string(),
                records: None,
            },
        }
    }
}

/// The progress of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[doc(hidden)] // For the other crates of Millstream.
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
    let mut check = Check {
        storage,
        report: Report {
            complete: true,
            ..Report::default()
        },
        plan: None,
        tail_segment: 0,
    };
    let (numbers, start) = check.list(options)?;
    check.small_files()?;
    let segments_total = numbers.len() as u64;
    let mut expected = start.map(|start| start.base);
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
    // The damage that the plan reported is found again by reading, with more detail.
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
    /// The value, or `None` after noting the damage that prevented it.
    fn sound<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(Error::Damage { path, offset, what }) => {
                self.report.damages.push(Damage {
                    path,
                    offset,
                    what,
                    records: None,
                });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The segments to read, and the start of the journal.
    fn list(&mut self, options: &Options) -> Result<(Vec<u64>, Option<Start>)> {
        let found = recover::segments(self.storage);
        let Some(found) = self.sound(found)? else {
            let numbers = files::segments(self.storage)?;
            let is_begun = |number: &&u64| {
                let segment = Segment::open(self.storage, **number, Access::Read);
                !segment.is_ok_and(|segment| segment.base().is_none())
            };
            self.tail_segment = numbers.iter().rfind(is_begun).copied().unwrap_or(0);
            return Ok((numbers, None));
        };
        self.tail_segment = found.numbers.last().copied().unwrap_or(0);
        if self.sound(found.checked)?.is_some() {
            self.end(options)?;
        }
        let oldest = found.numbers.first();
        let start = found.start.filter(|start| oldest == Some(&start.segment));
        Ok((found.numbers, start))
    }

    /// Find out where the records end: from the control page if the segments agree with it, otherwise from the plan of
    /// a recovery.
    fn end(&mut self, options: &Options) -> Result<()> {
        let control = Control::open(self.storage, Access::Read)?
            .filter(|control| control.is_live(self.storage, options.host.boot()));
        if let Some(control) = &control {
            let agreed = recover::agree(self.storage, control);
            match self.sound(agreed)? {
                Some(Some(_)) => {
                    self.tail_segment = control.tail_segment();
                    return Ok(());
                }
                Some(None) => {}
                None => return Ok(()),
            }
        }
        let plan = recover::plan(self.storage, control.as_ref(), options);
        if let Some(plan) = self.sound(plan)? {
            self.tail_segment = plan.facts.tail_segment;
            self.report.torn = self.torn(&plan)?;
            self.plan = Some(plan);
        }
        Ok(())
    }

    /// The torn end that a recovery would clear. A cut that a process has begun is no torn end.
    fn torn(&self, plan: &Plan) -> Result<Option<Torn>> {
        if plan.ends_cut() {
            return Ok(None);
        }
        let mut torn: Option<Torn> = None;
        for (number, from) in plan.cleared() {
            let segment = Segment::open(self.storage, number, Access::Read)?;
            let from = from.unwrap_or(segment.data_start());
            let bytes = used(&segment, from).saturating_sub(from);
            if bytes > 0 {
                let torn = torn.get_or_insert_with(|| Torn {
                    path: self.storage.path(&segment::name(number)),
                    offset: from,
                    bytes: 0,
                    records_max: 0,
                });
                torn.bytes += bytes;
                torn.records_max += bytes.div_ceil(frame::HEADER);
            }
        }
        Ok(torn)
    }

    /// The files beside the segments.
    fn small_files(&mut self) -> Result<()> {
        let identity = identity::read(self.storage);
        self.sound(identity)?;
        for cursor in cursor_file::check_all(self.storage)? {
            self.sound(cursor)?;
        }
        Ok(())
    }

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

    /// Read a segment; returns the sequence number with which the next one should begin.
    fn segment(&mut self, number: u64, expected: Option<u64>) -> Result<Option<u64>> {
        let segment = match Segment::open(self.storage, number, Access::Read) {
            // Pruned meanwhile.
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            opened => match self.sound(opened)? {
                Some(segment) => segment,
                None => return Ok(None),
            },
        };
        let planned = self.plan.as_ref().and_then(|plan| plan.base(number));
        let base = match (planned.or_else(|| segment.base()), expected) {
            (Some(base), Some(expected)) if base != expected => {
                let what = format!(
                    "the segment begins with record {base}, and record {expected} is expected"
                );
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
            // Frames that a recovery would clear are no damage.
            if planned == Some(at) && number == self.tail_segment {
                return Some(sequence);
            }
            let fault = match Published::at(segment, at.offset) {
                Ok(None) if at.offset >= tail.offset && number == self.tail_segment => {
                    return Some(sequence);
                }
                Ok(None) => "a frame that was written is missing",
                Err(what) => what,
                Ok(Some(frame)) if frame.is_sound(sequence) => {
                    self.report.bytes += frame.bytes();
                    if frame.kind == Kind::End {
                        return Some(sequence);
                    }
                    self.report.records += 1;
                    at = Mark {
                        offset: at.offset + frame.bytes(),
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

/// Where the zeros begin that fill up a segment, or `from`.
fn used<R: Region>(segment: &Segment<R>, from: u64) -> u64 {
    let mut used = from;
    for step in (from..segment.bytes()).step_by(STEP as usize) {
        let to = (step + STEP).min(segment.bytes());
        segment.region().populate(step, to);
        let last = (step..to)
            .step_by(8)
            .filter(|at| segment.region().load(*at) != 0)
            .last();
        used = last.map_or(used, |at| at + 8);
    }
    used
}

/// The first sound frame that the index knows after a damaged one.
fn after<R: Region>(segment: &Segment<R>, base: u64, at: Mark) -> Option<Mark> {
    let blocks = at.offset / BLOCK + 1..segment.bytes().div_ceil(BLOCK);
    blocks.filter_map(|block| segment.slot(block)).find(|mark| {
        let ahead = mark.offset > at.offset && mark.records > at.records;
        let frame = if ahead {
            Published::at(segment, mark.offset).ok().flatten()
        } else {
            None
        };
        frame.is_some_and(|frame| frame.is_sound(base + mark.records))
    })
}
