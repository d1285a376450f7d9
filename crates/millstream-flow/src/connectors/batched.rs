//! Bounds the size of the batches of any source.
//!
//! [`SourceExt::batch_size`](crate::SourceExt::batch_size) creates it. The engine requests no more items at
//! once from the source, and divides larger batches, so that a position of the source is still between two of
//! its own batches.

use std::sync::Arc;

use crate::batch::Kind;
use crate::error::Cause;
use crate::forward_source;
use crate::framing::Frames;
use crate::poller::Io;
use crate::source::{Partition, Position, Source, SourceSettings};

/// A source with a largest number of items in a batch. See
/// [`SourceExt::batch_size`](crate::SourceExt::batch_size).
#[derive(Clone, Debug)]
pub struct Batched<S> {
    source: S,
    items: usize,
}

impl<S> Batched<S> {
    /// Bounds the batches of `source` to `items` items; 0 counts as 1.
    #[must_use]
    pub fn new(source: S, items: usize) -> Self {
        Batched {
            source,
            items: items.max(1),
        }
    }
}

#[warn(clippy::missing_trait_methods)]
impl<B, S: Source<B>> Source<B> for Batched<S> {
    forward_source!(this => this.source; describe partitions resumable growing);
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<B>>, Cause> {
        self.source.open(partition, resume, io)
    }
    fn over(&self, frames: Arc<dyn Source<Frames>>, kind: Kind) -> Option<Arc<dyn Source<B>>> {
        self.source.over(frames, kind)
    }
    fn settings(&self) -> SourceSettings {
        let settings = self.source.settings();
        let of_source = settings.batch_size_max.unwrap_or(usize::MAX);
        SourceSettings {
            batch_size_max: Some(self.items.min(of_source)),
            ..settings
        }
    }
}
