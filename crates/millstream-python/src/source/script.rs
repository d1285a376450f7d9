//! A source of lists, with pauses and breaks: what `millstream.testing.items` makes.

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::batch::Batch;
use millstream_flow::clock::now_ns;
use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::testing::VirtualClock;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::batch::PyBatch;
use crate::gil::locked;

/// A piece of a script.
enum Piece {
    Items(Py<PyList>),
    Pause(f64),
    Advance(VirtualClock, Duration),
    Abort,
    End,
}

/// Scripted partitions: each a list of pieces, where a list is items, a number a pause in seconds, a
/// clock and a number an advance of the clock, `None` an abort and `False` an end.
#[pyclass(frozen, module = "millstream._millstream")]
#[derive(Clone)]
pub(crate) struct Script {
    partitions: Vec<Arc<Vec<Piece>>>,
    batch: usize,
}

#[pymethods]
impl Script {
    #[new]
    fn new(partitions: Vec<Vec<Bound<'_, PyAny>>>, batch_size: usize) -> PyResult<Self> {
        let read = |piece: &Bound<'_, PyAny>| {
            Ok(if piece.is_none() {
                Piece::Abort
            } else if let Ok(list) = piece.cast::<PyList>() {
                Piece::Items(list.clone().unbind())
            } else if let Ok((clock, by)) =
                piece.extract::<(Bound<'_, crate::clock::VirtualClock>, Duration)>()
            {
                Piece::Advance(clock.get().clock.clone(), by)
            } else if let Ok(false) = piece.extract::<bool>() {
                Piece::End
            } else if let Ok(seconds) = piece.extract::<f64>() {
                Piece::Pause(seconds)
            } else {
                return Err(PyTypeError::new_err("not a piece of a script"));
            })
        };
        let partitions = partitions
            .iter()
            .map(|pieces| {
                Ok(Arc::new(
                    pieces.iter().map(read).collect::<PyResult<Vec<_>>>()?,
                ))
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Script {
            partitions,
            batch: batch_size.max(1),
        })
    }

    /// The same script, with each item in a batch of its own.
    fn one_by_one(&self) -> Self {
        Script {
            batch: 1,
            ..self.clone()
        }
    }

    /// This source, its input recorded before it is processed.
    #[pyo3(signature = (keep=None))]
    fn durable<'py>(
        source: &Bound<'py, Self>,
        keep: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        super::durable::of(source, keep)
    }
}

impl Source<PyBatch> for Script {
    fn describe(&self) -> String {
        "test script".to_owned()
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok((0..self.partitions.len()).map(|p| p.to_string()).collect())
    }
    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<PyBatch>>, Cause> {
        let pieces = Arc::clone(&self.partitions[partition]);
        let position = resume.map_or(Ok(0), Position::require_number)?;
        let piece = (position >> ITEM_BITS) as usize;
        for at in pieces.iter() {
            if let Piece::Advance(clock, _) = at {
                clock.advanced_by(place(&pieces), advanced(&pieces, piece, clock));
            }
        }
        Ok(Box::new(ScriptReader {
            pieces,
            piece,
            item: (position & ITEM_MASK) as usize,
            until: None,
            settled: false,
            batch: self.batch,
        }))
    }
}

/// A position is the number of a piece and, below it, that of an item in the piece.
const ITEM_BITS: u32 = 32;
const ITEM_MASK: u64 = (1 << ITEM_BITS) - 1;

/// By how much the pieces before `end` have advanced a clock.
fn advanced(pieces: &[Piece], end: usize, clock: &VirtualClock) -> Duration {
    let before = pieces.iter().take(end);
    let times = before.map(|piece| match piece {
        Piece::Advance(other, by) if other.is(clock) => *by,
        _ => Duration::ZERO,
    });
    times.sum()
}

/// The number of the script in this process.
fn place(pieces: &Arc<Vec<Piece>>) -> usize {
    Arc::as_ptr(pieces) as usize
}

struct ScriptReader {
    pieces: Arc<Vec<Piece>>,
    piece: usize,
    item: usize,
    until: Option<u64>,
    /// True when the worker has been idle since the batch before an `Advance`.
    settled: bool,
    batch: usize,
}

impl Partition<PyBatch> for ScriptReader {
    fn next_batch(&mut self, batch: &mut PyBatch, events: &mut Events<'_>) -> Result<Next, Cause> {
        let most = self.batch.min(events.limit());
        if let Some(until) = self.until {
            if now_ns() < until {
                return Ok(Next::Idle);
            }
            self.until = None;
            self.piece += 1;
        }
        loop {
            match self.pieces.get(self.piece) {
                Some(Piece::Items(items)) => {
                    let taken = locked(|py| {
                        let items = items.bind(py);
                        PyBatch::of(items.get_slice(self.item, self.item + most))
                    });
                    let count = taken.len();
                    if count > 0 {
                        self.item += count;
                        *batch = taken;
                        return Ok(Next::Batch);
                    }
                    // Its position is in the last piece, which may have more items in the next run.
                    if self.piece + 1 == self.pieces.len() {
                        return Ok(Next::End);
                    }
                    self.item = 0;
                    self.piece += 1;
                }
                Some(Piece::Pause(seconds)) => {
                    self.until = Some(now_ns() + (seconds.max(0.0) * 1e9) as u64);
                    return Ok(Next::Idle);
                }
                Some(Piece::Advance(clock, by)) => {
                    // As in the engine's own script: earlier items arrive before the clock advances.
                    if self.settled && !events.quiet() {
                        return Ok(Next::Idle);
                    }
                    if self.settled {
                        let total = advanced(&self.pieces, self.piece, clock) + *by;
                        clock.advanced_by(place(&self.pieces), total);
                        self.until = Some(now_ns());
                    }
                    self.settled = !self.settled;
                    return Ok(Next::Idle);
                }
                Some(Piece::Abort) => return Ok(Next::Abort),
                Some(Piece::End) | None => return Ok(Next::End),
            }
        }
    }
    fn next_awake(&self) -> Option<u64> {
        Some(self.until.unwrap_or(0))
    }
    fn position(&self) -> Result<Position, Cause> {
        let position = (self.piece as u64) << ITEM_BITS | self.item as u64;
        Ok(position.into())
    }
}
