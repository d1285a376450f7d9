//! A TCP sink that numbers its messages, so that a receiver can drop duplicates.
//!
//! Each payload is preceded, inside the frame, by 8 bytes, little-endian: a number below 2^48 that counts the
//! messages of a worker from 0, and in the upper 16 bits the worker. With recovery the numbers are part of a
//! commit: messages that are sent again after a crash have the same numbers.
//!
//! Invariant: the n-th message of a worker has the number n, in every run. It is the same message only if the
//! flow emits a worker's outputs in the same order again: with one worker and one partition for each source, or
//! with state that fixes the order.
//!
//! ```
//! use millstream_flow::numbered;
//! assert_eq!(numbered::parse(&[7, 0, 0, 0, 0, 0, 1, 0, b'x']), Some((1, 7, &b"x"[..])));
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::connectors::tcp::TcpSink;
use crate::control::Control;
use crate::error::Cause;
use crate::framing::{Frames, Framing};
use crate::mutex::lock;
use crate::named::DROP_STATE;
use crate::sink::{Scope, Sink, Token, Transactional, Writer};

/// The number of bytes of a message number.
pub const NUMBER_BYTES: usize = 8;
const COUNT_BITS: u32 = 48;
/// An entry of a token: a worker and its next number.
const ENTRY_BYTES: usize = 16;

/// Returns the sender (a worker), the number and the payload of a message; `None` if it is too short to have a
/// number.
#[must_use]
pub fn parse(message: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (number, payload) = message.split_first_chunk::<NUMBER_BYTES>()?;
    let number = u64::from_le_bytes(*number);
    Some((
        number >> COUNT_BITS,
        number & ((1 << COUNT_BITS) - 1),
        payload,
    ))
}

/// A TCP sink that numbers its messages. [`TcpSink::numbered`] creates it.
pub struct Numbered {
    sink: TcpSink,
    /// The next numbers of workers that have not opened the sink in this run.
    next: Mutex<BTreeMap<u64, u64>>,
}

impl TcpSink {
    /// Numbers the messages, so that a receiver can drop those that are sent again after a crash; see the
    /// [module](self).
    #[must_use]
    pub fn numbered(self) -> Numbered {
        Numbered::new(self)
    }
}

impl Numbered {
    fn new(sink: TcpSink) -> Self {
        Numbered {
            sink,
            next: Mutex::default(),
        }
    }
}

impl Sink<Frames> for Numbered {
    fn describe(&self) -> String {
        format!("{}, numbered", self.sink.describe())
    }
    fn open(
        &self,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<Box<dyn Writer<Frames>>, Cause> {
        if *self.sink.framing_used() == Framing::Lines {
            return Err(
                "a number may contain a line end: numbered messages need another framing".into(),
            );
        }
        let worker = worker as u64;
        let next = lock(&self.next).remove(&worker).unwrap_or(0);
        Ok(Box::new(NumberedWriter {
            inner: self.sink.open(worker as usize, control)?,
            worker,
            next,
            absent: lock(&self.next).clone(),
            frames: Frames::default(),
        }))
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl Transactional for Numbered {
    fn scope(&self) -> Scope {
        Scope::Workers
    }
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        let mut next = lock(&self.next);
        next.clear();
        for token in tokens {
            let entries = token.chunks_exact(ENTRY_BYTES);
            if !entries.remainder().is_empty() {
                return Err(format!(
                    "its saved state is not a list of message numbers; drop the state of the sink ({DROP_STATE})"
                )
                .into());
            }
            for entry in entries {
                let word = |at| u64::from_le_bytes(std::array::from_fn(|i| entry[at + i]));
                let known = next.entry(word(0)).or_default();
                *known = word(8).max(*known);
            }
        }
        Ok(Some(token(&next)))
    }
}

fn token(next: &BTreeMap<u64, u64>) -> Token {
    let words = next.iter().flat_map(|(worker, next)| [*worker, *next]);
    words.flat_map(u64::to_le_bytes).collect()
}

struct NumberedWriter {
    inner: Box<dyn Writer<Frames>>,
    worker: u64,
    next: u64,
    /// The numbers of workers that this run does not have, kept for a later run that has them.
    absent: BTreeMap<u64, u64>,
    frames: Frames,
}

impl Writer<Frames> for NumberedWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        self.frames.clear();
        for payload in batch.iter() {
            let number = self.worker << COUNT_BITS | self.next;
            self.next += 1;
            self.frames.append(|out| {
                out.extend(number.to_le_bytes());
                out.extend_from_slice(payload);
            })?;
        }
        self.inner.write_batch(&mut self.frames)
    }
    fn flush(&mut self) -> Result<(), Cause> {
        self.inner.flush()
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.inner.prepare(epoch)?;
        let mut next = self.absent.clone();
        next.insert(self.worker, self.next);
        Ok(Some(token(&next)))
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        // The token of this worker is complete.
        self.inner.close()?;
        Ok(None)
    }
}
