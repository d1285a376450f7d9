//! The point from which a run resumes: positions, states and times of the last commit.

use std::collections::{HashMap, HashSet};

use super::record::{Commit, SourceMark};
use super::store::Saved;
use crate::error::FlowError;
use crate::key::Shards;
use crate::saved::codec::Codecs;
use crate::saved::restore::{SavedKey, SavedStates};
use crate::source::Position;
use crate::time::BEFORE_ALL;

/// The point from which a run resumes.
pub(crate) struct Resume {
    /// The saved states, in a run that saves the state of its steps.
    saved: Option<Saved>,
    positions: HashMap<(String, String), Position>,
    /// The workers to which the partitions of sources are dealt, in the order of each source, in a run of several
    /// processes.
    pub(crate) dealt: HashMap<String, Vec<usize>>,
    watermarks: HashMap<(String, String), i64>,
    /// The processing time at the last commit: it never decreases from one run to the next.
    pub(crate) processing_ns: i64,
    /// The epoch before the first of this run.
    pub(crate) epoch: u64,
    /// True if the run before was killed between its last commit and its end: this run ends at once.
    pub(crate) ends_here: bool,
    /// True if shards have moved to other workers since the run before.
    pub(crate) moved: bool,
    /// True if each source reads one batch in an epoch.
    pub(crate) lockstep: bool,
    /// The types whose values can be saved.
    pub(crate) codecs: Codecs,
    /// The shards into which keys are divided.
    pub(crate) shards: Shards,
}

impl Resume {
    /// The start of a run that has no saved state and saves none, and still has epochs.
    pub(crate) fn nothing(codecs: Codecs) -> Self {
        Resume {
            saved: None,
            positions: HashMap::new(),
            dealt: HashMap::new(),
            watermarks: HashMap::new(),
            processing_ns: BEFORE_ALL,
            epoch: 0,
            ends_here: false,
            moved: false,
            lockstep: true,
            codecs,
            shards: Shards::default(),
        }
    }

    /// The start of a run that resumes from `commit`.
    pub(crate) fn of_commit(commit: &Commit, saved: Saved, codecs: Codecs) -> Self {
        let of = |mark: &SourceMark| (mark.source.clone(), mark.partition.clone());
        let sources = commit.own_sources();
        let positions = sources.map(|mark| (of(mark), mark.position.clone()));
        let watermarks = commit.watermarks.iter();
        let watermarks =
            watermarks.map(|mark| ((mark.step.clone(), mark.partition.clone()), mark.at));
        Resume {
            saved: Some(saved),
            positions: positions.collect(),
            dealt: HashMap::new(),
            watermarks: watermarks.collect(),
            processing_ns: commit.processing_ns,
            epoch: commit.epoch,
            ends_here: false,
            moved: false,
            lockstep: false,
            codecs,
            shards: commit.shards,
        }
    }

    /// Whether steps save their state.
    pub(crate) fn saves(&self) -> bool {
        self.saved.is_some()
    }

    /// The saved position of a partition of a source.
    pub(crate) fn position(&self, source: &str, partition: &str) -> Option<&Position> {
        let key = (source.to_owned(), partition.to_owned());
        self.positions.get(&key)
    }

    /// Gives saved partitions of a source their present names, so that they resume.
    pub(crate) fn rename(
        &self,
        source: &str,
        names: &mut [String],
        is_same: impl Fn(&str, &str) -> bool,
    ) {
        let saved = self.positions.keys().filter(|(of, _)| of == source);
        let mut saved: Vec<&str> = saved.map(|(_, partition)| &**partition).collect();
        saved.sort_unstable();
        rename_saved(names, &saved, is_same);
    }

    /// The saved event time of a step, or of a partition to which it assigns times.
    pub(crate) fn watermark(&self, step: &str, partition: &str) -> i64 {
        let key = (step.to_owned(), partition.to_owned());
        self.watermarks.get(&key).copied().unwrap_or(BEFORE_ALL)
    }
}

/// Gives partitions that were saved under another name that name.
pub(super) fn rename_saved(
    names: &mut [String],
    saved: &[&str],
    is_same: impl Fn(&str, &str) -> bool,
) {
    let known: HashSet<&str> = saved.iter().copied().collect();
    let present: HashSet<&str> = names.iter().map(String::as_str).collect();
    let free = saved.iter().filter(|saved| !present.contains(*saved));
    let mut free: Vec<&str> = free.copied().collect();
    for name in names {
        if free.is_empty() {
            break;
        }
        if known.contains(&**name) {
            continue;
        }
        if let Some(at) = free.iter().position(|saved| is_same(name, saved)) {
            free.remove(at).clone_into(name);
        }
    }
}

impl SavedStates for Resume {
    fn keys(&self, step: &str, wanted: &dyn Fn(usize) -> bool) -> Result<Vec<SavedKey>, FlowError> {
        match &self.saved {
            Some(saved) => saved.keys(step, wanted),
            None => Ok(Vec::new()),
        }
    }
    fn codecs(&self) -> &Codecs {
        &self.codecs
    }
    fn moved(&self) -> bool {
        self.moved
    }
    fn watermark(&self, step: &str) -> i64 {
        Resume::watermark(self, step, "")
    }
}
