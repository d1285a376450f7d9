//! Where sources begin that a flow has not read before: what their options stand for is committed before any input is
//! read.
//!
//! The end of a topic is another one at each start. A flow that reads from there, and is killed before its first epoch
//! is committed, would lose what came in between.

use std::collections::HashSet;

use super::Recovery;
use super::local::LocalPartitions;
use super::record::{Commit, SourceMark};
use super::sources::Sources;
use crate::error::FlowError;
use crate::node::{Node, open_error};
use crate::panics::in_step;

/// Returns the names of the sources that the flow has read, in this process or in another one.
pub(super) fn known_sources(commit: &Commit, options: &Recovery) -> HashSet<String> {
    let marks = commit.sources.iter().map(|mark| &mark.source);
    let divided = commit.division.iter().flat_map(|it| &it.partitions);
    let divided = divided.map(|(source, _)| source);
    let is_kept = |source: &&String| !options.fresh && !options.drop.contains(source);
    marks.chain(divided).filter(is_kept).cloned().collect()
}

/// Asks the sources where the partitions begin that the flow has not read before, of those that this process reads.
pub(super) fn first_positions(
    (nodes, sources): (&[Node], &Sources),
    (commit, local): (&Commit, &LocalPartitions),
    (known, all_workers): (&HashSet<String>, usize),
    reads: &dyn Fn(&str, usize) -> bool,
) -> Result<Vec<SourceMark>, FlowError> {
    let mut first = Vec::new();
    for (node, source) in sources {
        let this = &nodes[*node];
        let _called = in_step(&this.name);
        let is_new = |name: &str| {
            let mut marks = commit.own_sources();
            !marks.any(|mark| {
                mark.source == this.name && source.is_same_partition(name, &mark.partition)
            })
        };
        let new = || {
            let names = source.partitions(all_workers)?.into_iter().enumerate();
            let new = names.filter(|(number, name)| reads(&this.name, *number) && is_new(name));
            Ok(new.map(|(_, name)| name).collect())
        };
        let positions = source.first_positions(&new, known.contains(&this.name));
        let positions = positions.map_err(|cause| open_error(this, cause))?;
        first.extend(positions.into_iter().map(|(partition, position)| {
            let mut mark = SourceMark {
                source: this.name.clone(),
                partition,
                position,
                recorded: false,
                local: None,
                input: None,
            };
            local.complete(&mut mark);
            mark
        }));
    }
    Ok(first)
}
