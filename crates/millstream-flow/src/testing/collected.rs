//! A sink that is a list in memory. With recovery it is truncated to the last commit, as a file is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::batch::Data;
use crate::connectors::files::{length_of, token_of};
use crate::control::Control;
use crate::error::Cause;
use crate::framing::Frames;
use crate::mutex::lock;
use crate::shared_log::{CurrentLog, Log, SharedLog};
use crate::sink::{Sink, Token, Transactional, Writer};

/// The items that a flow wrote, for a test.
pub struct Collected<T> {
    list: Arc<Mutex<Vec<T>>>,
    /// The number of items of which the sink was notified that they are committed.
    committed: Arc<AtomicU64>,
}

impl<T> Clone for Collected<T> {
    fn clone(&self) -> Self {
        Collected {
            list: Arc::clone(&self.list),
            committed: Arc::clone(&self.committed),
        }
    }
}

impl<T> Default for Collected<T> {
    fn default() -> Self {
        Collected {
            list: Arc::default(),
            committed: Arc::default(),
        }
    }
}

impl<T: Data> Collected<T> {
    /// Creates an empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Returns a sink that appends its items here. For items that are bytes it is also a sink of frames.
    #[must_use]
    pub fn sink(&self) -> CollectSink<T> {
        CollectSink {
            list: self.clone(),
            shared: Arc::default(),
        }
    }
    /// Removes and returns the items.
    #[must_use]
    pub fn take(&self) -> Vec<T> {
        self.committed.store(0, Ordering::Relaxed);
        std::mem::take(&mut *lock(&self.list))
    }
    /// Maps the items that would be visible if the sink hid its items until they are committed.
    pub(super) fn map_committed<R>(&self, map: impl Fn(&T) -> R) -> Vec<R> {
        let committed = self.committed.load(Ordering::Relaxed) as usize;
        lock(&self.list).iter().take(committed).map(map).collect()
    }
}

type Shared<T> = Mutex<SharedLog<Collected<T>>>;

/// The sink of a [`Collected`].
#[derive(Clone)]
pub struct CollectSink<T: Data> {
    list: Collected<T>,
    /// The list, which the workers of the current run share.
    shared: Arc<CurrentLog<Collected<T>>>,
}

impl<T: Data> CollectSink<T> {
    fn writer(&self, control: &Arc<Control>) -> Result<CollectWriter<T>, Cause> {
        let (list, writer) = self.shared.join(control, || Ok(self.list.clone()))?;
        Ok(CollectWriter { list, writer })
    }

    fn cut(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        let mut list = lock(&self.list.list);
        // Items from before the first run do not belong to the flow.
        let length = match tokens {
            [] => list.len(),
            tokens => length_of(tokens)? as usize,
        };
        if list.len() < length {
            let found = list.len();
            return Err(
                format!("{found} items are present, fewer than the {length} committed").into(),
            );
        }
        list.truncate(length);
        self.list.committed.store(length as u64, Ordering::Relaxed);
        Ok(Some(token_of(length as u64)))
    }

    fn set_committed(&self, tokens: &[Token]) -> Result<(), Cause> {
        self.list
            .committed
            .store(length_of(tokens)?, Ordering::Relaxed);
        Ok(())
    }
}

impl<T: Data> Sink<Vec<T>> for CollectSink<T> {
    fn describe(&self) -> String {
        "collected in memory".to_owned()
    }
    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Vec<T>>>, Cause> {
        Ok(Box::new(self.writer(control)?))
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl<T: Data> Transactional for CollectSink<T> {
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        self.cut(tokens)
    }
    fn commit(&self, _: u64, tokens: &[Token]) -> Result<(), Cause> {
        self.set_committed(tokens)
    }
}

impl Sink<Frames> for CollectSink<Vec<u8>> {
    fn describe(&self) -> String {
        "collected in memory".to_owned()
    }
    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        Ok(Box::new(self.writer(control)?))
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl<T: Data> Log for Collected<T> {
    type Batch = Vec<T>;

    fn append(&mut self, batch: &mut Vec<T>) -> Result<(), Cause> {
        lock(&self.list).append(batch);
        Ok(())
    }
    fn flush(&mut self) -> Result<u64, Cause> {
        Ok(lock(&self.list).len() as u64)
    }
}

struct CollectWriter<T: Data> {
    list: Arc<Shared<T>>,
    writer: usize,
}

impl<T: Data> CollectWriter<T> {
    fn prepared(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        let length = lock(&self.list).prepare(self.writer, epoch)?;
        Ok(length.map(token_of))
    }
}

impl<T: Data> Writer<Vec<T>> for CollectWriter<T> {
    fn write_batch(&mut self, batch: &mut Vec<T>) -> Result<(), Cause> {
        lock(&self.list).write(self.writer, batch)
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.prepared(epoch)
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        let end = lock(&self.list).leave(self.writer)?;
        Ok(end.map(token_of))
    }
}

impl Writer<Frames> for CollectWriter<Vec<u8>> {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        let mut frames: Vec<Vec<u8>> = batch.iter().map(<[u8]>::to_vec).collect();
        lock(&self.list).write(self.writer, &mut frames)
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.prepared(epoch)
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        let end = lock(&self.list).leave(self.writer)?;
        Ok(end.map(token_of))
    }
}
