//! What a run resumes from: positions, states and times of the last commit.

use std::collections::HashMap;

use super::record::{Commit, SourceMark};
use super::store::Saved;
use crate::error::FlowError;
use crate::source::Position;
use crate::state::codec::Codecs;
use crate::state::restore::{SavedKey, SavedStates};
use crate::time::BEFORE_ALL;

/// What a run resumes from.
pub(crate) struct Resume {
    /// What is saved, in a run that saves what its steps know.
    saved: Option<Saved>,
    positions: HashMap<(String, String), Position>,
    watermarks: HashMap<(String, String), i64>,
    /// How far processing time had come: it does not go back from one run to the next.
    pub(crate) processing_ns: i64,
    /// The epoch before the first of this run.
    pub(crate) epoch: u64,
    /// True when the run before was killed between its last commit and its end: this one is its end.
    pub(crate) ends_here: bool,
    /// True when shards are on other workers than before.
    pub(crate) moved: bool,
    /// True when each source reads one batch in an epoch.
    pub(crate) lockstep: bool,
    /// The types whose values can be saved.
    pub(crate) codecs: Codecs,
}

impl Resume {
    /// For a run that begins with nothing and saves nothing, and still goes from epoch to epoch.
    pub(crate) fn nothing(codecs: Codecs) -> Self {
        Resume {
            saved: None,
            positions: HashMap::new(),
            watermarks: HashMap::new(),
            processing_ns: BEFORE_ALL,
            epoch: 0,
            ends_here: false,
            moved: false,
            lockstep: true,
            codecs,
        }
    }

    /// For a run that goes on after `commit`.
    pub(crate) fn of_commit(commit: &Commit, saved: Saved, codecs: Codecs) -> Self {
        let of = |mark: &SourceMark| (mark.source.clone(), mark.partition.clone());
        let sources = commit.sources.iter();
        let positions = sources.map(|mark| (of(mark), mark.position.clone()));
        let watermarks = commit.watermarks.iter();
        let watermarks =
            watermarks.map(|mark| ((mark.step.clone(), mark.partition.clone()), mark.at));
        Resume {
            saved: Some(saved),
            positions: positions.collect(),
            watermarks: watermarks.collect(),
            processing_ns: commit.processing_ns,
            epoch: commit.epoch,
            ends_here: false,
            moved: false,
            lockstep: false,
            codecs,
        }
    }

    /// Whether steps save what they know.
    pub(crate) fn saves(&self) -> bool {
        self.saved.is_some()
    }

    /// The position of a partition of a source.
    pub(crate) fn position(&self, source: &str, partition: &str) -> Option<&Position> {
        let key = (source.to_owned(), partition.to_owned());
        self.positions.get(&key)
    }

    /// Gives partitions of a source that were saved under other names those names, so that they resume.
    pub(crate) fn rename(
        &self,
        source: &str,
        names: &mut [String],
        is_same: impl Fn(&str, &str) -> bool,
    ) {
        let saved = self.positions.keys().filter(|(of, _)| of == source);
        let mut saved: Vec<&String> = saved.map(|(_, partition)| partition).collect();
        saved.sort_unstable();
        for at in 0..names.len() {
            if saved.contains(&&names[at]) {
                continue;
            }
            let known = saved
                .iter()
                .find(|known| !names.contains(known) && is_same(&names[at], known));
            if let Some(known) = known {
                names[at] = (*known).clone();
            }
        }
    }

    /// How far event time had come for a step, or for a partition to which it gives times.
    pub(crate) fn watermark(&self, step: &str, partition: &str) -> i64 {
        let key = (step.to_owned(), partition.to_owned());
        self.watermarks.get(&key).copied().unwrap_or(BEFORE_ALL)
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
