//! The first half of a recovery: examining the segments and planning the steps.

use super::agree;
use super::intent::CutIntent;
use super::listing::Listing;
use super::steps::{Plan, Step};
use crate::error::{Error, Result};
use crate::format::control::{Control, Facts};
use crate::format::frame::Kind;
use crate::format::index;
use crate::format::published::Published;
use crate::format::segment::{self, Mark, Segment, Times};
use crate::options::Options;
use crate::retain::start::Start;
use crate::storage::{Access, Region, Storage};

/// How much is brought into memory at once.
const STEP: u64 = 2 << 20;

/// Examine a journal and plan. Nothing is written.
pub(crate) fn plan<S: Storage>(
    storage: &S,
    control: Option<&Control<S::Region>>,
    options: &Options,
) -> Result<Plan> {
    let listing = Listing::read(storage)?;
    let boot = options.host.boot();
    listing.check(storage)?;
    let drafts = listing.drafts.iter().cloned().map(Step::RemoveFile);
    // What an interrupted prune has left, in its order.
    let pruned = listing.pruned.iter().copied().map(Step::Remove);
    // The process that moved the start may have died before that was on disk.
    let start = listing.start.filter(|_| !listing.pruned.is_empty());
    let start = start.map(Step::Start);
    let steps: Vec<Step> = drafts.chain(start).chain(pruned).collect();
    let Some(&last) = listing.numbers.last() else {
        let segment_bytes = options.segment_bytes;
        let facts = Facts {
            segment_bytes,
            boot,
            first_segment: 0,
            tail_segment: 0,
            durable: options.first_sequence,
            durable_segment: 0,
        };
        let start = Start {
            segment: 0,
            base: options.first_sequence,
            time_ns: 0,
        };
        return Ok(Plan {
            facts,
            steps: [steps, vec![Step::Create, Step::Start(start)]].concat(),
        });
    };
    if listing.is_cut {
        let first = listing.numbers[0];
        let segment_bytes = Segment::open(storage, first, Access::Read)?.bytes_max();
        let refresh = control.is_none_or(Control::may_have_failed);
        let plan = CutIntent::read(storage)?.plan(first, last, segment_bytes, boot, refresh);
        return Ok(Plan {
            steps: [steps, plan.steps].concat(),
            ..plan
        });
    }
    let mut survey = Survey {
        storage,
        first: listing.numbers[0],
        last,
        start: listing.start,
        boot,
        steps,
        // Without a complete control page nothing is known of earlier syncs.
        refresh: control.is_none(),
    };
    if let Some(control) = control {
        let trusted = boot != 0
            && control.is_ready(boot)
            && control.is_mounted(storage.mount())
            && !control.may_have_failed();
        if trusted && let Some(plan) = survey.after_processes(control)? {
            return Ok(plan);
        }
        survey.refresh = control.may_have_failed();
    }
    survey.after_power_loss()
}

/// The segments while they are examined.
struct Survey<'a, S> {
    storage: &'a S,
    first: u64,
    last: u64,
    start: Option<Start>,
    boot: u128,
    steps: Vec<Step>,
    refresh: bool,
}

/// Where the frames end.
struct End {
    number: u64,
    base: u64,
    mark: Mark,
}

impl<S: Storage> Survey<'_, S> {
    fn open(&self, number: u64) -> Result<Segment<S::Region>> {
        Segment::open(self.storage, number, Access::Read)
    }

    fn damage(&self, number: u64, offset: u64, what: &str) -> Error {
        Error::Damage {
            path: self.storage.path(&segment::name(number)),
            offset,
            what: what.to_owned(),
        }
    }

    /// Only processes have ended: all is there, and the tail may be a few frames late. `None` when the control page
    /// does not fit the segments, as in a copy of a journal.
    fn after_processes(&mut self, control: &Control<S::Region>) -> Result<Option<Plan>> {
        let number = control.tail_segment();
        if !(self.first..=self.last).contains(&number) {
            return Ok(None);
        }
        let segment = self.open(number)?;
        let Some(base) = segment.base() else {
            return Ok(None);
        };
        let segment_bytes = segment.bytes_max();
        let (mark, traced) = self.tail(&segment, base)?;
        if mark.records == 0 && self.check_base(&segment, base).is_err() {
            return Ok(None);
        }
        let planned = self.steps.len();
        let times = self.times(&segment, base, mark, traced)?;
        let end = match self.scan(segment, base, mark, times)? {
            (end, None) => end,
            // A copy made while the journal was in use, or damage: the complete scan decides.
            (_, Some(_)) => {
                self.steps.truncate(planned);
                return Ok(None);
            }
        };
        if control.has_unpublished() {
            self.steps.push(Step::Clear {
                number: end.number,
                from: end.mark.offset,
            });
        }
        let Some((durable, durable_segment)) =
            agree::durable(self.storage, control, self.start, self.first, end.number)?
        else {
            self.steps.truncate(planned);
            return Ok(None);
        };
        self.remove_after(end.number + 1);
        self.write_start()?;
        let facts = Facts {
            segment_bytes,
            boot: self.boot,
            first_segment: self.first,
            tail_segment: end.number,
            durable: durable.min(end.base + end.mark.records),
            durable_segment,
        };
        Ok(Some(Plan {
            facts,
            steps: std::mem::take(&mut self.steps),
        }))
    }

    /// The machine may have lost power: find the watermark, scan the frames after it, clear the torn end.
    fn after_power_loss(mut self) -> Result<Plan> {
        let (segment, base, mark, times) = self.watermark()?;
        let from = segment.number();
        let segment_bytes = segment.bytes_max();
        let (end, _torn) = self.scan(segment, base, mark, times)?;
        let tail = self.open(end.number)?;
        // Even without a fault at the end, later bytes may be left from pages that were written before earlier ones.
        if !is_zero(&tail, end.mark.offset) {
            self.steps.push(Step::Clear {
                number: end.number,
                from: end.mark.offset,
            });
        }
        if self.refresh {
            self.steps.extend((from..=end.number).map(Step::Refresh));
        }
        self.steps.push(Step::Durable {
            number: end.number,
            mark: end.mark,
        });
        self.remove_after(end.number);
        self.write_start()?;
        let facts = Facts {
            segment_bytes,
            boot: self.boot,
            first_segment: self.first,
            tail_segment: end.number,
            durable: end.base + end.mark.records,
            durable_segment: end.number,
        };
        Ok(Plan {
            facts,
            steps: self.steps,
        })
    }

    /// Removals come first, the last segment before the others, so that a recovery which is interrupted can be
    /// repeated.
    fn remove_after(&mut self, number: u64) {
        let removals: Vec<Step> = (number + 1..=self.last).rev().map(Step::Remove).collect();
        self.steps.splice(0..0, removals);
    }

    /// A journal without a start gets one, when it is sure with which record its first segment begins.
    fn write_start(&mut self) -> Result<()> {
        if self.start.is_some() {
            return Ok(());
        }
        let segment = self.open(self.first)?;
        let begun = self.steps.iter().find_map(|step| match step {
            Step::Begin { number, base } if *number == self.first => Some(*base),
            _ => None,
        });
        let stored = segment.base().filter(|base| {
            index::shows_base(&segment, *base) || segment.head(segment.data_start()) == Ok(None)
        });
        if let Some(base) = begun.or(stored) {
            self.steps.push(Step::Start(Start {
                segment: self.first,
                base,
                time_ns: if segment.tail().records == 0 {
                    segment.times().latest_ns
                } else {
                    0
                },
            }));
        }
        Ok(())
    }

    /// The tail of a segment whose frames no loss of power has touched, and the time of the last record before it. Only
    /// the frames confirm it. Where they contradict it, its two halves decide which is damaged: when the mark is wrong,
    /// the frames end where one half says, or after the mark; when frames are missing, they contradict both halves.
    fn tail(&self, segment: &Segment<S::Region>, base: u64) -> Result<(Mark, Option<u64>)> {
        let mark = segment.tail();
        if let Some(traced) = index::trace(segment, base, mark) {
            return Ok((mark, traced));
        }
        self.check_base(segment, base)?;
        let number = segment.number();
        let end = index::sound_end(segment, base);
        match Published::at(segment, end.offset) {
            Ok(None) => {}
            Ok(Some(frame)) if frame.kind == Kind::End && frame.is_sound(base + end.records) => {}
            Ok(Some(_)) => {
                let what = "a frame does not match its checksum";
                return Err(self.damage(number, end.offset, what));
            }
            Err(what) => return Err(self.damage(number, end.offset, what)),
        }
        let confirmed = end.offset >= mark.offset || end.records == mark.records;
        match index::trace(segment, base, end) {
            Some(traced) if confirmed => Ok((end, traced)),
            _ => Err(self.damage(
                number,
                end.offset,
                "the frames end before the tail of the segment",
            )),
        }
    }

    /// A segment begins with the record that its base says.
    fn check_base(&self, segment: &Segment<S::Region>, base: u64) -> Result<()> {
        let number = segment.number();
        // Nothing else says with which record a journal without a start begins.
        let is_oldest = self.start.is_none() && number == self.first;
        if is_oldest || agree::is_base(self.storage, self.start, segment, base) {
            Ok(())
        } else {
            Err(self.damage(
                number,
                64,
                "the segment does not begin with the record that follows the segment before it",
            ))
        }
    }

    /// The times of the records before a mark; `traced` is that of the last of them in its segment.
    fn times(
        &self,
        segment: &Segment<S::Region>,
        base: u64,
        mark: Mark,
        traced: Option<u64>,
    ) -> Result<Times> {
        let number = segment.number();
        let before = || {
            if number > self.first {
                index::end_time(&self.open(number - 1).ok()?, base)
            } else {
                self.start.map(|start| start.time_ns)
            }
        };
        let latest_ns = index::latest_to(segment, base, mark, traced, || {
            Ok(before().unwrap_or_else(|| segment.times().latest_ns))
        })?;
        let last = || {
            let segment = self.open(number.checked_sub(1)?).ok()?;
            index::last_time(&segment, segment.base()?)
        };
        Ok(Times {
            last_ns: traced.or_else(last).unwrap_or(latest_ns),
            latest_ns,
        })
    }

    /// The segment, its first sequence number, the mark up to which all has been synced, and the times of the records
    /// before it.
    fn watermark(&self) -> Result<(Segment<S::Region>, u64, Mark, Times)> {
        for number in (self.first..=self.last).rev() {
            let segment = self.open(number)?;
            let mark = segment.durable();
            let Some(base) = segment.base() else { continue };
            if mark.offset == 0 && mark.records == 0 {
                continue;
            }
            let Some(traced) = index::trace(&segment, base, mark) else {
                return Err(self.damage(
                    number,
                    72,
                    "no frame begins at the durable watermark, or a frame before it is damaged",
                ));
            };
            if mark.records == 0 {
                self.check_base(&segment, base)?;
            }
            let times = self.times(&segment, base, mark, traced)?;
            return Ok((segment, base, mark, times));
        }
        // Nothing was ever synced: everything is above the watermark.
        let segment = self.open(self.first)?;
        let mark = Mark {
            offset: segment.data_start(),
            records: 0,
        };
        let base = match (segment.base(), self.start) {
            (Some(base), _) => {
                self.check_base(&segment, base)?;
                base
            }
            (None, Some(start)) => start.base,
            (None, None) if self.first == 0 => 0,
            (None, None) => {
                let what = "the oldest segment has no first sequence number";
                return Err(self.damage(self.first, 64, what));
            }
        };
        let times = self.times(&segment, base, mark, None)?;
        Ok((segment, base, mark, times))
    }

    /// A record of this segment is earlier than the one before it. A loss of power may have taken the word that says
    /// so.
    fn note_disorder(&mut self, segment: &Segment<S::Region>) {
        let noted = Step::Disorder(segment.number());
        if segment.is_ordered() && !self.steps.contains(&noted) {
            self.steps.push(noted);
        }
    }

    /// The record at `mark` has this time.
    fn note_time(
        &mut self,
        segment: &Segment<S::Region>,
        mark: Mark,
        times: &mut Times,
        time_ns: u64,
    ) {
        if mark.records > 0 && time_ns < times.last_ns {
            self.note_disorder(segment);
        }
        times.last_ns = time_ns;
        times.latest_ns = times.latest_ns.max(time_ns);
    }

    /// Moves over sound frames from `mark` on. The first frame that does not match its checksum is the torn record: the
    /// journal ends before it. Returns the end, and what is wrong there if it is not zeros.
    fn scan(
        &mut self,
        segment: Segment<S::Region>,
        base: u64,
        mark: Mark,
        times: Times,
    ) -> Result<(End, Option<&'static str>)> {
        let mut segment = segment;
        let mut base = base;
        let mut mark = mark;
        let mut times = times;
        if segment.base() != Some(base) {
            self.steps.push(Step::Begin {
                number: segment.number(),
                base,
            });
        }
        loop {
            let sequence = base + mark.records;
            let fault = match Published::at(&segment, mark.offset) {
                Ok(None) => None,
                Err(what) => Some(what),
                Ok(Some(frame)) if !frame.is_sound(sequence) => {
                    Some("a frame does not match its checksum")
                }
                Ok(Some(frame)) => {
                    if frame.kind == Kind::Record {
                        self.note_time(&segment, mark, &mut times, frame.time_ns());
                        mark.offset += frame.bytes();
                        mark.records += 1;
                        continue;
                    }
                    self.steps.push(Step::Tail {
                        number: segment.number(),
                        mark,
                        times,
                    });
                    let next = segment.number() + 1;
                    if next > self.last {
                        return Err(self.damage(
                            next,
                            0,
                            "the segment is missing: the segment before it has ended",
                        ));
                    }
                    segment = self.open(next)?;
                    base = sequence;
                    mark = Mark {
                        offset: segment.data_start(),
                        records: 0,
                    };
                    if segment.base() != Some(base) {
                        self.steps.push(Step::Begin { number: next, base });
                    }
                    continue;
                }
            };
            self.steps.push(Step::Tail {
                number: segment.number(),
                mark,
                times,
            });
            return Ok((
                End {
                    number: segment.number(),
                    base,
                    mark,
                },
                fault,
            ));
        }
    }
}

/// Whether a segment holds nothing but zeros from `from` on.
fn is_zero<R: Region>(segment: &Segment<R>, from: u64) -> bool {
    (from..segment.bytes()).step_by(STEP as usize).all(|from| {
        let to = (from + STEP).min(segment.bytes());
        segment.region().populate(from, to);
        (from..to)
            .step_by(8)
            .all(|at| segment.region().load(at) == 0)
    })
}
