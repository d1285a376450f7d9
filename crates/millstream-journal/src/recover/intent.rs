//! The intent of a cut: a file that names the new end of the journal, so that a recovery can complete a cut that was
//! interrupted.

use super::steps::{Plan, Step};
use crate::error::{Error, Result};
use crate::format::control::Facts;
use crate::format::files;
use crate::format::sealed;
use crate::format::segment::{Mark, Times};
use crate::storage::Storage;

const BYTES: u64 = 4096;
const MAGIC: u64 = u64::from_le_bytes(*b"MSCUT\0\0\x01");
const WORDS: usize = 6;

/// A cut that was begun: the new end of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CutIntent {
    pub number: u64,
    pub base: u64,
    pub mark: Mark,
    pub latest_time_ns: u64,
}

impl CutIntent {
    fn words(&self) -> [u64; WORDS] {
        let Mark { offset, records } = self.mark;
        [
            MAGIC,
            self.number,
            self.base,
            offset,
            records,
            self.latest_time_ns,
        ]
    }

    pub fn write<S: Storage>(&self, storage: &S, draft: &str) -> std::io::Result<()> {
        sealed::write(storage, draft, files::CUT, BYTES, &self.words())
    }

    /// The cut that was begun and not ended.
    pub fn read<S: Storage>(storage: &S) -> Result<Self> {
        let failed = |source| Error::Io {
            verb: "open",
            path: storage.path(files::CUT),
            source,
        };
        let words = sealed::read(storage, files::CUT, BYTES, MAGIC).map_err(failed)?;
        let words = words.ok_or_else(|| Error::Damage {
            path: storage.path(files::CUT),
            offset: 0,
            what: "the intention to cut does not match its checksum".to_owned(),
        })?;
        let [_, number, base, offset, records, latest_time_ns]: [u64; WORDS] = words;
        Ok(CutIntent {
            number,
            base,
            mark: Mark { offset, records },
            latest_time_ns,
        })
    }

    /// The plan that completes the cut, given the existing segments. `refresh` says that a sync may have failed before.
    pub fn plan(
        &self,
        first: u64,
        last: u64,
        segment_bytes: u64,
        boot: u128,
        refresh: bool,
    ) -> Plan {
        let CutIntent {
            number,
            base,
            mark,
            latest_time_ns,
        } = *self;
        let mut steps: Vec<Step> = (number + 1..=last).rev().map(Step::Remove).collect();
        steps.push(Step::Tail {
            number,
            mark,
            times: Times::up_to(latest_time_ns),
        });
        steps.push(Step::Clear {
            number,
            from: mark.offset,
        });
        if refresh {
            steps.push(Step::Refresh(number));
        }
        steps.push(Step::Durable { number, mark });
        steps.push(Step::RemoveFile(files::CUT.to_owned()));
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
