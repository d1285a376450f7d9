//! Taking back records from the end, as a sink does when its flow resumes from an earlier position.
//!
//! A cut can touch several files, and a loss of power between two of them must not leave a journal with a hole. So the intention is
//! written first, in a file of its own; a recovery that finds it does the same cut again.

use std::sync::Arc;

use crate::append::appender::Held;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::format::control::Facts;
use crate::format::index;
use crate::format::sealed;
use crate::format::segment::Mark;
use crate::read::cursor;
use crate::recover::{self, Plan, Step};
use crate::storage::Storage;

/// The file that says that a cut was begun.
pub(crate) const NAME: &str = "cut";

const BYTES: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"MSCUT\0\0\x01");
const WORDS: usize = 6;

/// A cut that was begun: what is to be the end of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Intent {
    number: u64,
    base: u64,
    mark: Mark,
    last_time_ns: u64,
}

impl Intent {
    fn words(&self) -> [u64; WORDS] {
        let Mark { offset, records } = self.mark;
        [
            MAGIC,
            self.number,
            self.base,
            offset,
            records,
            self.last_time_ns,
        ]
    }

    fn write<S: Storage>(&self, storage: &S, draft: &str) -> std::io::Result<()> {
        sealed::write(storage, draft, NAME, BYTES, &self.words())
    }

    /// The cut that was begun and not ended.
    pub fn read<S: Storage>(storage: &S) -> Result<Self> {
        let failed = |source| Error::Io {
            verb: "open",
            path: storage.path(NAME),
            source,
        };
        let words = sealed::read(storage, NAME, BYTES, MAGIC).map_err(failed)?;
        let words = words.ok_or_else(|| Error::Damage {
            path: storage.path(NAME),
            offset: 0,
            what: "the intention to cut does not match its checksum".to_owned(),
        })?;
        let [_, number, base, offset, records, last_time_ns]: [u64; WORDS] = words;
        Ok(Intent {
            number,
            base,
            mark: Mark { offset, records },
            last_time_ns,
        })
    }

    /// What has to be done, given the segments that there are. `refresh` says that a sync may have failed before.
    pub fn plan(
        &self,
        first: u64,
        last: u64,
        segment_bytes: u64,
        boot: u128,
        refresh: bool,
    ) -> Plan {
        let Intent {
            number,
            base,
            mark,
            last_time_ns,
        } = *self;
        let mut steps: Vec<Step> = (number + 1..=last).rev().map(Step::Remove).collect();
        steps.push(Step::Tail {
            number,
            mark,
            last_time_ns,
        });
        steps.push(Step::Clear {
            number,
            from: mark.offset,
        });
        if refresh {
            steps.push(Step::Refresh(number));
        }
        steps.push(Step::Durable { number, mark });
        steps.push(Step::RemoveFile(NAME.to_owned()));
        let durable = base + mark.records;
        let facts = Facts {
            segment_bytes,
            boot,
            first_segment: first,
            tail_segment: number,
            durable,
            durable_segment: number,
        };
        Plan { facts, steps }
    }
}

/// Drop the records from `sequence` on. Everything before is durable, and nobody appends.
pub(crate) fn cut<S: Storage>(
    core: &Arc<Core<S>>,
    held: &mut Held<'_, S>,
    sequence: u64,
) -> Result<()> {
    core.check_sequence(sequence)?;
    if sequence == core.next()? {
        return Ok(());
    }
    let intent = intent(core, sequence)?;
    let draft = format!("draft-cut-{:016x}", core.options.host.random());
    let failed = |source| Error::Io {
        verb: "create",
        path: core.storage.path(NAME),
        source,
    };
    intent.write(&core.storage, &draft).map_err(failed)?;
    let control = core.control()?;
    let last = recover::present(&core.storage)?
        .last()
        .copied()
        .unwrap_or(0);
    let plan = intent.plan(
        core.first_segment(),
        last,
        core.segment_bytes,
        core.options.host.boot(),
        false,
    );
    control.begin_sync();
    // Half a cut: the next opening ends it.
    recover::act(&core.storage, &plan, &core.options)
        .and_then(|()| cursor::take_back(&core.storage, plan.facts.tail_segment))
        .inspect_err(|_| control.poison())?;
    control.end_sync();
    core.forget_from(intent.number + 1);
    control.move_back(&plan.facts);
    held.follow()
}

fn intent<S: Storage>(core: &Core<S>, sequence: u64) -> Result<Intent> {
    let segment = core.locate(sequence)?;
    let (number, base) = (segment.number(), core.base(&segment)?);
    let mark = core.find(&segment, sequence)?;
    // What is cut is gone: not by a word that may be damaged.
    let traced = index::trace(&segment, base, mark).ok_or_else(|| {
        let what = "the frames before the cut do not match their checksums";
        core.damage(&segment, segment.data_start(), what)
    })?;
    let last_time_ns = match traced {
        Some(time_ns) => time_ns,
        None if number > core.first_segment() => core.ended(&*core.segment(number - 1)?)?.1,
        None => core.start_time_ns()?,
    };
    Ok(Intent {
        number,
        base,
        mark,
        last_time_ns,
    })
}
