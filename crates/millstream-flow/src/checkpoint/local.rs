//! The partitions of sources that each process reads from its own machine.
//!
//! Another machine may have a partition of the same name, and another file under it. So the mark of such a partition in
//! a commit names the process, and identifies what the machine had under the name: a position counts in that only.

use std::collections::HashMap;
use std::path::Path;

use super::record::{Commit, SourceMark};
use super::resume::rename_saved;
use super::sources::Sources;
use super::store::failed;
use crate::error::FlowError;
use crate::input::InputId;
use crate::named::drop_state;
use crate::node::{Node, open_error};
use crate::panics::in_step;

/// The partitions that this process reads from its own machine.
#[derive(Default)]
pub(crate) struct LocalPartitions {
    process: usize,
    /// By source, the partitions with what the machine has there, where that can be compared.
    of: HashMap<String, HashMap<String, Option<InputId>>>,
}

impl LocalPartitions {
    /// Finds the partitions of this machine, under the names that `commit` has of them. `process` is `None` in a run of
    /// one process.
    pub(crate) fn find(
        nodes: &[Node],
        sources: &Sources,
        commit: &Commit,
        (process, workers): (Option<usize>, usize),
    ) -> Result<Self, FlowError> {
        let mut of = HashMap::new();
        for (node, source) in sources {
            let this = &nodes[*node];
            let _called = in_step(&this.name);
            let settings = source.settings();
            if !settings.local {
                continue;
            }
            let names = source.partitions(workers);
            let mut names = names.map_err(|cause| open_error(this, cause))?;
            let saved = commit.own_sources();
            let saved = saved.filter(|mark| mark.source == this.name);
            let saved: Vec<&str> = saved.map(|mark| &*mark.partition).collect();
            rename_saved(&mut names, &saved, |name, saved| {
                source.is_same_partition(name, saved)
            });
            // The files of a directory are known by its list.
            let is_one = |id: &InputId| !matches!(id, InputId::Directory(_));
            let input = |number: usize| settings.inputs.get(number)?.id().filter(is_one);
            let inputs = (0..names.len()).map(input);
            let partitions = names.into_iter().zip(inputs);
            of.insert(this.name.clone(), partitions.collect());
        }
        Ok(LocalPartitions {
            process: process.unwrap_or(0),
            of,
        })
    }

    /// Whether each process reads this source from its own machine.
    pub(crate) fn has(&self, source: &str) -> bool {
        self.of.contains_key(source)
    }

    /// Completes the mark of a partition that this process reads.
    pub(crate) fn complete(&self, mark: &mut SourceMark) {
        let partitions = self.of.get(&mark.source);
        mark.local = partitions.map(|_| self.process);
        let input = partitions.and_then(|partitions| partitions.get(&mark.partition));
        mark.input = input.cloned().flatten();
    }

    /// Checks that the positions of the last commit count in what this machine has. `is_alone` in a run of one process.
    ///
    /// # Errors
    /// A source that was of each machine is not now, or the other way round; a file is another one than in the run
    /// before.
    pub(crate) fn check(
        &self,
        commit: &Commit,
        is_alone: bool,
        dir: &Path,
    ) -> Result<(), FlowError> {
        for mark in commit.sources.iter() {
            let is_local = self.has(&mark.source);
            let can_change = is_alone && mark.is_of(None);
            if mark.local.is_some() != is_local && !can_change {
                return Err(failed(dir, other_sharing(&mark.source, is_local)));
            }
        }
        for mark in commit.own_sources() {
            let partitions = self.of.get(&mark.source);
            let now = partitions.and_then(|partitions| partitions.get(&mark.partition));
            if let (Some(Some(now)), Some(saved)) = (now, &mark.input)
                && !now.continues(saved)
            {
                return Err(failed(dir, other_input(mark)));
            }
        }
        Ok(())
    }
}

fn other_sharing(source: &str, is_local: bool) -> String {
    let (now, before) = if is_local {
        (
            "each machine reads its own files",
            "all read the same files together",
        )
    } else {
        (
            "all machines read the same files together",
            "each read its own files",
        )
    };
    format!(
        "source \"{source}\": {now}, and in the run before {before} (local=True); define it as before, or let it begin anew with {} \
         in all processes",
        drop_state(source)
    )
}

fn other_input(mark: &SourceMark) -> String {
    let SourceMark {
        source, partition, ..
    } = mark;
    format!(
        "source \"{source}\" would resume at its position in {partition}, which is another file or journal than in the run before; start the \
         process on the machine that has it, give what is new a name of its own, or let the source begin anew with {} in all \
         processes",
        drop_state(source)
    )
}
