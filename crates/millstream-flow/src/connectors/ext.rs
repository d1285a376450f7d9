//! Methods that every source has: each wraps the source in another one.

use crate::batch::Raw;
use crate::connectors::batched::Batched;
use crate::durable::Durable;
use crate::source::Source;

/// Wraps a source to record its input or to bound its batches.
pub trait SourceExt<B>: Source<B> + Sized {
    /// Records the input of this source in the state directory before it is processed: see
    /// [`durable`](crate::durable).
    fn durable(self) -> Durable<Self>
    where
        B: Raw,
    {
        Durable::new(self)
    }
    /// Bounds the batches of this source to `items` items; 0 counts as 1. Smaller batches reduce the latency of
    /// a step that processes a whole batch at once, and cost more time for each item.
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
