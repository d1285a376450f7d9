//! What a run of Market Spread measures.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millstream_observe::Observer;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Worker threads of the flow.
    pub workers: usize,
    /// Never sleep.
    pub spin: bool,
    /// Messages a second over both streams; `None` for as many as go through.
    pub rate: Option<f64>,
    /// Record the input before it is processed, and commit each second, in this directory; and whether that must
    /// survive a loss of power.
    pub durable: Option<(PathBuf, bool)>,
    /// Length of the run.
    pub seconds: f64,
    /// The seed of the data.
    pub seed: u64,
    /// The server of the page that shows the flow.
    pub observer: Option<Arc<Observer>>,
    /// Raised to end the run early: what has been sent is handled and reported.
    pub stop: Arc<AtomicBool>,
}
