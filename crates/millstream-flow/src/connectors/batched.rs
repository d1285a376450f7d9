//! Any source with a largest size of its batches.
//!
//! Made by [`SourceExt::batch_size`](crate::SourceExt::batch_size). The engine asks the source for no more items at a time, and divides what it gives all
//! the same, so a position of the source still stands between two of its own batches.

use std::path::PathBuf;
use std::sync::Arc;

use crate::batch::Kind;
use crate::error::Cause;
use crate::framing::Frames;
use crate::policy::OnError;
use crate::run::poller::Io;
use crate::source::{Beginning, Partition, Position, Recording, Source};

/// A source of which steps see at most so many items at once. See [`SourceExt::batch_size`](crate::SourceExt::batch_size).
#[derive(Clone, Debug)]
pub struct Batched<S> {
    source: S,
    items: usize,
}

impl<S> Batched<S> {
    /// At most `items` items of `source` at once; 0 counts as 1.
    #[must_use]
    pub fn new(source: S, items: usize) -> Self {
        Batched {
            source,
            items: items.max(1),
        }
    }
}

impl<B, S: Source<B>> Source<B> for Batched<S> {
    fn describe(&self) -> String {
        self.source.describe()
    }
    fn partitions(&self) -> Result<Vec<String>, Cause> {
        self.source.partitions()
    }
    fn partitions_for(&self, workers: usize) -> Result<Vec<String>, Cause> {
        self.source.partitions_for(workers)
    }
    fn inputs(&self) -> Vec<PathBuf> {
        self.source.inputs()
    }
    fn is_same_partition(&self, name: &str, saved: &str) -> bool {
        self.source.is_same_partition(name, saved)
    }
    fn on_error(&self) -> OnError {
        self.source.on_error()
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        self.source.open(partition, resume, io)
    }
    fn open_at(
        &self,
        partition: usize,
        resume: Option<Position>,
        place: Option<&[u8]>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        self.source.open_at(partition, resume, place, io)
    }
    fn batch_size_max(&self) -> Option<usize> {
        let of_source = self.source.batch_size_max().unwrap_or(usize::MAX);
        Some(self.items.min(of_source))
    }
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        self.source.begin(run)
    }
    fn over(&self, frames: Arc<dyn Source<Frames>>, kind: Kind) -> Option<Arc<dyn Source<B>>> {
        self.source.over(frames, kind)
    }
}
