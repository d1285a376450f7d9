//! Verbs that every source has: each wraps the source in another one.

use crate::batch::Raw;
use crate::checkpoint::durable::Durable;
use crate::connectors::batched::Batched;
use crate::source::Source;

/// Wraps a source: to record its input, or to bound its batches.
pub trait SourceExt<B>: Source<B> + Sized {
    /// This source, its input recorded in the state directory before it is processed: see [`durable`](crate::checkpoint::durable).
    fn durable(self) -> Durable<Self>
    where
        B: Raw,
    {
        Durable::new(self)
    }
    /// This source with at most `items` items in a batch; 0 counts as 1. Smaller batches make for less latency in a step that
    /// handles a whole batch at once, and cost more for each item.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, SourceExt, codec, files, testing};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("lines");
    /// std::fs::write(&path, "one\ntwo\nthree\n")?;
    /// let (flow, sizes) = (Flow::new("pairs"), testing::Collected::new());
    /// flow.source("lines", files::lines(&path).batch_size(2))
    ///     .map_batch(|batch: Vec<String>| vec![batch.len()])
    ///     .sink("sizes", sizes.sink());
    /// flow.run(Options::default())?;
    /// assert!(sizes.take().iter().all(|size| *size <= 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn batch_size(self, items: usize) -> Batched<Self> {
        Batched::new(self, items)
    }
}

impl<B, S: Source<B>> SourceExt<B> for S {}
