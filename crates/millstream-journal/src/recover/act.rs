//! The second half of a recovery: carrying out the plan.
//!
//! Each step can be repeated, and a plan made between two steps has the same result: a recovery may itself be
//! interrupted.

use std::collections::BTreeMap;

use super::steps::{Plan, Step};
use crate::error::{Error, Result};
use crate::format::segment::{self, Segment, Times};
use crate::options::Options;
use crate::retain::start;
use crate::storage::memory::PAGE;
use crate::storage::{Access, Region, Storage};

/// Carry out a plan. The caller has excluded all other openings.
pub(crate) fn act<S: Storage>(storage: &S, plan: &Plan, options: &Options) -> Result<()> {
    let mut recovery = Recovery {
        storage,
        options,
        // A process may have died between removing a file and having that on disk.
        names_changed: true,
        touched: BTreeMap::new(),
    };
    for step in &plan.steps {
        recovery.perform(step)?;
    }
    recovery.sync_names()
}

struct Recovery<'a, S> {
    storage: &'a S,
    options: &'a Options,
    names_changed: bool,
    /// Segments whose header was changed, and the length that must be synced before a watermark covers it.
    touched: BTreeMap<u64, u64>,
}

impl<S: Storage> Recovery<'_, S> {
    fn perform(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::RemoveFile(name) => self.remove(name),
            Step::Remove(number) => self.remove(&segment::name(*number)),
            Step::Create => {
                let host = &self.options.host;
                let segment = Segment::create(
                    self.storage,
                    0,
                    self.options.size_of_first(),
                    host.random(),
                    host.time_ns(),
                )?;
                segment.begin(self.options.first_sequence, Times::default());
                self.sync(&segment, segment.data_start())
            }
            Step::Start(start) => start::raise(self.storage, self.options, *start),
            Step::Begin { number, base } => {
                let segment = self.open(*number)?;
                segment.begin(*base, Times::default());
                self.touched.insert(*number, segment.data_start());
                Ok(())
            }
            Step::Tail {
                number,
                mark,
                times,
            } => {
                self.open(*number)?.set_tail(*mark, *times);
                self.touched.insert(*number, mark.offset);
                Ok(())
            }
            // Before the tail is synced with the header.
            Step::Disorder(number) => {
                self.open(*number)?.set_disordered();
                Ok(())
            }
            Step::Clear { number, from } => {
                let segment = self.open(*number)?;
                let path = || self.storage.path(&segment::name(*number));
                segment.clear(*from).map_err(|source| Error::Io {
                    verb: "sync",
                    path: path(),
                    source,
                })
            }
            Step::Refresh(number) => {
                let segment = self.open(*number)?;
                store_again(&segment);
                self.sync(&segment, segment.bytes())
            }
            Step::Durable { number, mark } => {
                for (number, to) in std::mem::take(&mut self.touched) {
                    let segment = self.open(number)?;
                    self.sync(&segment, to)?;
                }
                let segment = self.open(*number)?;
                segment.set_durable(*mark);
                self.sync(&segment, mark.offset)
            }
        }
    }

    fn open(&mut self, number: u64) -> Result<Segment<S::Region>> {
        self.sync_names()?;
        Segment::open(self.storage, number, Access::Write)
    }

    fn remove(&mut self, name: &str) -> Result<()> {
        self.names_changed = true;
        let failed = |source| Error::Io {
            verb: "remove",
            path: self.storage.path(name),
            source,
        };
        self.storage.remove(name).map_err(failed)
    }

    /// Removals are on disk before anything else changes.
    fn sync_names(&mut self) -> Result<()> {
        if std::mem::take(&mut self.names_changed) {
            let failed = |source| Error::Io {
                verb: "sync",
                path: self.storage.path(""),
                source,
            };
            self.storage.sync_names().map_err(failed)?;
        }
        Ok(())
    }

    fn sync(&self, segment: &Segment<S::Region>, to: u64) -> Result<()> {
        let path = || self.storage.path(&segment::name(segment.number()));
        segment.sync(to).map_err(|source| Error::Io {
            verb: "sync",
            path: path(),
            source,
        })
    }
}

/// Store the contents again, so that the kernel marks all pages dirty.
fn store_again<R: Region>(segment: &Segment<R>) {
    let region = segment.region();
    for at in (0..segment.bytes()).step_by(PAGE) {
        region.publish(at, region.load(at));
    }
}
