//! The sources of a flow without the type of their batches, for the beginning of a run.

use std::sync::Arc;

use crate::error::Cause;
use crate::node::NodeId;
use crate::source::{
    Beginning, NewPartitions, Position, Recording, Source, SourceSettings, is_same_partition,
};
use crate::starting::Starting;

/// A source of any type of batch.
pub(crate) trait ErasedSource: Send + Sync {
    fn partitions(&self, workers: usize) -> Result<Vec<String>, Cause>;
    fn await_server(&self, starting: &Starting) -> Result<(), Cause>;
    fn first_positions(
        &self,
        new: &NewPartitions<'_>,
        resumes: bool,
    ) -> Result<Vec<(String, Position)>, Cause>;
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause>;
    fn is_same_partition(&self, name: &str, saved: &str) -> bool;
    /// What the engine needs to know of it.
    fn settings(&self) -> SourceSettings;
}

/// A source without its type.
struct Erased<B>(Arc<dyn Source<B>>);

impl<B: 'static> ErasedSource for Erased<B> {
    fn partitions(&self, workers: usize) -> Result<Vec<String>, Cause> {
        self.0.partitions(workers)
    }
    fn await_server(&self, starting: &Starting) -> Result<(), Cause> {
        match self.0.resumable() {
            Some(resumable) => resumable.await_server(starting),
            None => Ok(()),
        }
    }
    fn first_positions(
        &self,
        new: &NewPartitions<'_>,
        resumes: bool,
    ) -> Result<Vec<(String, Position)>, Cause> {
        match self.0.resumable() {
            Some(resumable) => resumable.first_positions(new, resumes),
            None => Ok(Vec::new()),
        }
    }
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        match self.0.resumable() {
            Some(resumable) => resumable.begin(run),
            None => Ok(None),
        }
    }
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        is_same_partition(self.0.resumable(), name, saved)
    }
    fn settings(&self) -> SourceSettings {
        self.0.settings()
    }
}

/// The same source without the type of its batches.
pub(crate) fn erased_source<B: 'static>(source: Arc<dyn Source<B>>) -> Arc<dyn ErasedSource> {
    Arc::new(Erased(source))
}

/// The sources of a flow.
pub(crate) type Sources = Vec<(NodeId, Arc<dyn ErasedSource>)>;
