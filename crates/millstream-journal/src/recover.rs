//! Recovery: what the first opener makes of the segments that it finds. It plans first and acts afterwards.
//!
//! When the machine is the same boot that wrote them, the page cache holds everything that was ever appended: only what a dead
//! writer left unfinished behind the last tail is looked at. After a loss of power, pages may show any moment since they
//! were last synced. Then everything above the durable watermark is scanned. The first frame that is not sound is the
//! torn end: it and what follows is cleared. Below the watermark nothing is ever cut; damage there is an error.
//!
//! The watermark is the `durable` mark of the last segment that has one. It is stored after a sync and so becomes durable itself
//! with the next one: what it claims is always true, and sometimes less than the truth. Segments before it are not read.

mod act;

pub(crate) use act::act;

use crate::control::{self, Control, Facts};
use crate::cut::{self, Intent};
use crate::error::{Error, Result};
use crate::frame::Kind;
use crate::identity;
use crate::index;
use crate::options::Options;
use crate::planted::{self, Bug};
use crate::segment::{self, Mark, Segment};
use crate::storage::{Access, Region, Storage};
use crate::term;

/// How much is brought into memory at once.
const STEP: u64 = 2 << 20;

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Remove a file that is no segment: a draft that nobody finished, a cut that has ended.
    RemoveFile(String),
    /// Remove a segment behind the end; the last one comes first.
    Remove(u64),
    /// Make the first segment.
    Create,
    /// The segment begins with this sequence number.
    Begin { number: u64, base: u64 },
    /// The segment's frames end here.
    Tail {
        number: u64,
        mark: Mark,
        last_time_ns: u64,
    },
    /// Nothing but zeros from here to the end of the segment.
    Clear { number: u64, from: u64 },
    /// Store all of a segment once more and sync it: a sync has failed, and the kernel may think that it is on disk.
    Refresh(u64),
    /// All that the segment holds is durable.
    Durable { number: u64, mark: Mark },
}

/// The plan of a recovery and what will be true after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub facts: Facts,
    pub steps: Vec<Step>,
}

impl Plan {
    /// Whether there is nothing yet.
    pub fn is_new(&self) -> bool {
        self.steps.contains(&Step::Create)
    }

    /// The planned first sequence number of a segment, where it differs from what is stored.
    pub fn base(&self, segment: u64) -> Option<u64> {
        self.steps.iter().find_map(|step| match step {
            Step::Begin { number, base } if *number == segment => Some(*base),
            _ => None,
        })
    }

    /// The planned time of a segment's last record, where it was looked for.
    pub fn last_time_ns(&self, segment: u64) -> Option<u64> {
        self.steps.iter().find_map(|step| match step {
            Step::Tail {
                number,
                last_time_ns,
                ..
            } if *number == segment => Some(*last_time_ns),
            _ => None,
        })
    }

    /// The planned end of a segment, where it was looked for.
    pub fn tail(&self, segment: u64) -> Option<Mark> {
        self.steps.iter().find_map(|step| match step {
            Step::Tail { number, mark, .. } if *number == segment => Some(*mark),
            _ => None,
        })
    }
}

/// Look at a journal and plan. Nothing is written.
pub(crate) fn plan<S: Storage>(
    storage: &S,
    control: Option<&Control<S::Region>>,
    options: &Options,
) -> Result<Plan> {
    let listing = Listing::read(storage)?;
    let boot = options.host.boot();
    let steps: Vec<Step> = listing
        .drafts
        .iter()
        .cloned()
        .map(Step::RemoveFile)
        .collect();
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
        return Ok(Plan {
            facts,
            steps: [steps, vec![Step::Create]].concat(),
        });
    };
    if listing.is_cut {
        let first = listing.numbers[0];
        let segment_bytes = Segment::open(storage, first, Access::Read)?.bytes();
        let refresh = control.is_none_or(Control::may_have_failed);
        let plan = Intent::read(storage)?.plan(first, last, segment_bytes, boot, refresh);
        return Ok(Plan {
            steps: [steps, plan.steps].concat(),
            ..plan
        });
    }
    let mut survey = Survey {
        storage,
        first: listing.numbers[0],
        last,
        boot,
        steps,
        // Without a finished control page nothing is known of earlier syncs.
        refresh: control.is_none(),
    };
    if let Some(control) = control {
        let trusted = boot != 0 && control.is_ready(boot) && !control.may_have_failed();
        if trusted && let Some(plan) = survey.after_processes(control)? {
            return Ok(plan);
        }
        survey.refresh = control.may_have_failed();
    }
    survey.after_power_loss()
}

/// Refuse a directory that holds something else.
pub(crate) fn check_names<S: Storage>(storage: &S) -> Result<()> {
    match Listing::read(storage) {
        Err(error @ Error::NotAJournal { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// The numbers of the segments that there are, without a gap.
pub(crate) fn segments<S: Storage>(storage: &S) -> Result<Vec<u64>> {
    let listing = Listing::read(storage)?;
    if listing.numbers.is_empty() {
        return Err(Error::NotFound {
            path: storage.path(""),
        });
    }
    Ok(listing.numbers)
}

/// The files of the directory.
struct Listing {
    numbers: Vec<u64>,
    drafts: Vec<String>,
    is_cut: bool,
}

impl Listing {
    fn read<S: Storage>(storage: &S) -> Result<Self> {
        let path = storage.path("");
        let names = storage.list("").map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::NotFound { path: path.clone() },
            _ => Error::Io {
                verb: "list",
                path: path.clone(),
                source,
            },
        })?;
        let mut numbers: Vec<u64> = names
            .iter()
            .filter_map(|name| segment::number(name))
            .collect();
        numbers.sort_unstable();
        if let Some(gap) = numbers.windows(2).find(|pair| pair[0] + 1 != pair[1]) {
            let path = storage.path(&segment::name(gap[0] + 1));
            return Err(Error::Damage {
                path,
                offset: 0,
                what: "the segment is missing, and later ones are there".to_owned(),
            });
        }
        let ours = |name: &str| {
            [
                control::NAME,
                cut::NAME,
                identity::NAME,
                "writers",
                "cursors",
            ]
            .contains(&name)
                || name.starts_with("draft-")
                || term::is_ours(name)
        };
        if numbers.is_empty()
            && let Some(other) = names.iter().find(|name| !ours(name))
        {
            return Err(Error::NotAJournal {
                path,
                why: format!("the directory holds \"{other}\""),
            });
        }
        let is_cut = names.iter().any(|name| name == cut::NAME);
        let drafts = names
            .into_iter()
            .filter(|name| name.starts_with("draft-"))
            .collect();
        Ok(Listing {
            numbers,
            drafts,
            is_cut,
        })
    }
}

/// The segments while they are looked at.
struct Survey<'a, S> {
    storage: &'a S,
    first: u64,
    last: u64,
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

    /// Only processes have ended: all is there, and the tail may be a few frames late. `None` when the control page does not fit
    /// the segments, as in a copy of a journal.
    fn after_processes(&mut self, control: &Control<S::Region>) -> Result<Option<Plan>> {
        let number = control.tail_segment();
        if !(self.first..=self.last).contains(&number) {
            return Ok(None);
        }
        let segment = self.open(number)?;
        let Some(base) = segment.base() else {
            return Ok(None);
        };
        let segment_bytes = segment.bytes();
        let mark = segment.tail();
        if mark.offset < segment.data_start() || mark.offset > segment_bytes {
            return Ok(None);
        }
        let planned = self.steps.len();
        let end = match self.scan(segment, base, mark)? {
            (end, None) => end,
            // A copy made while the journal was in use, or damage: the long way tells.
            (_, Some(_)) => {
                self.steps.truncate(planned);
                return Ok(None);
            }
        };
        if control.has_unseen() {
            self.steps.push(Step::Clear {
                number: end.number,
                from: end.mark.offset,
            });
        }
        self.remove_after(end.number + 1);
        let facts = Facts {
            segment_bytes,
            boot: self.boot,
            first_segment: self.first,
            tail_segment: end.number,
            durable: control.durable().min(end.base + end.mark.records),
            durable_segment: control.durable_segment().clamp(self.first, end.number),
        };
        Ok(Some(Plan {
            facts,
            steps: std::mem::take(&mut self.steps),
        }))
    }

    /// The machine may have lost power: find the watermark, scan what is above it, cut the torn end.
    fn after_power_loss(mut self) -> Result<Plan> {
        let (segment, base, mark) = self.watermark()?;
        let (from, segment_bytes) = (segment.number(), segment.bytes());
        let (end, _torn) = self.scan(segment, base, mark)?;
        let tail = self.open(end.number)?;
        if !is_zero(&tail, end.mark.offset) && !planted::has(Bug::KeepTorn) {
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

    /// Removals come first, the last segment before the others, so that a recovery which is interrupted can be repeated.
    fn remove_after(&mut self, number: u64) {
        let removals: Vec<Step> = (number + 1..=self.last).rev().map(Step::Remove).collect();
        self.steps.splice(0..0, removals);
    }

    /// The segment, its first sequence number and the mark up to which all has been synced.
    fn watermark(&self) -> Result<(Segment<S::Region>, u64, Mark)> {
        for number in (self.first..=self.last).rev() {
            let segment = self.open(number)?;
            let mark = if planted::has(Bug::TrustTail) {
                segment.tail()
            } else {
                segment.durable()
            };
            let Some(base) = segment.base() else { continue };
            if mark.offset == 0 && mark.records == 0 {
                continue;
            }
            if !index::is_mark(&segment, base, mark) {
                return Err(self.damage(
                    number,
                    72,
                    "no frame begins where the durable watermark stands, or it is damaged before",
                ));
            }
            return Ok((segment, base, mark));
        }
        // Nothing was ever synced: everything is above the watermark.
        let segment = self.open(self.first)?;
        let mark = Mark {
            offset: segment.data_start(),
            records: 0,
        };
        match segment.base() {
            Some(base) => Ok((segment, base, mark)),
            None if self.first == 0 => Ok((segment, 0, mark)),
            None => Err(self.damage(
                self.first,
                64,
                "the oldest segment has no first sequence number",
            )),
        }
    }

    /// Hop over sound frames from `mark` on. Gives the end, and what is wrong there if it is not zeros.
    fn scan(
        &mut self,
        segment: Segment<S::Region>,
        base: u64,
        mark: Mark,
    ) -> Result<(End, Option<&'static str>)> {
        let (mut segment, mut base, mut mark) = (segment, base, mark);
        let mut last_time_ns = segment.last_time_ns();
        if segment.base() != Some(base) {
            self.steps.push(Step::Begin {
                number: segment.number(),
                base,
            });
        }
        loop {
            let sequence = base + mark.records;
            let fault = match segment.head(mark.offset) {
                Ok(None) => None,
                Err(what) => Some(what),
                Ok(Some(head)) if !segment.is_sound(mark.offset, head, sequence) => {
                    Some("a frame does not match its checksum")
                }
                Ok(Some(head)) => {
                    if head.kind == Kind::Record {
                        last_time_ns = segment.time_ns(mark.offset);
                        mark.offset += head.bytes();
                        mark.records += 1;
                        continue;
                    }
                    self.steps.push(Step::Tail {
                        number: segment.number(),
                        mark,
                        last_time_ns,
                    });
                    let next = segment.number() + 1;
                    if next > self.last {
                        return Err(self.damage(
                            next,
                            0,
                            "the segment is missing: the one before it says that it follows",
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
                last_time_ns,
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
