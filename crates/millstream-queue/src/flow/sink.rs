//! A queue as a sink.

use std::sync::{Arc, Mutex};

use crate::QueueError;
use crate::embedded::Queue;
use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::shared_log::{Appending, SharedLog};
use millstream_flow::sink::{Scope, Sink, Token, Transactional, Writer};

use super::staging::{Staged, Staging};
use super::{Location, lock};

/// A sink that puts items into a queue. See [`write()`].
#[derive(Clone)]
pub struct WriteQueue {
    location: Location,
    name: String,
    run: Arc<Mutex<Run>>,
}

/// The state of the current run, if it has recovery.
#[derive(Default)]
struct Run {
    /// The state from which the run resumed, until a worker opens the sink. The queue has all of it.
    resumed: Option<(Queue, Staged)>,
    /// The output that is not in the queue, once a worker has opened the sink.
    staging: Option<Staging>,
    /// The staging journal that the workers share, once one has opened it.
    log: Option<Arc<Mutex<SharedLog<Appending>>>>,
    writers: usize,
}

/// Puts each frame into a queue, and a copy into its fan-out queues. The limits of the queues do not hold for a flow.
pub fn write(location: impl Into<Location>, queue: &str) -> WriteQueue {
    WriteQueue {
        location: location.into(),
        name: queue.to_owned(),
        run: Arc::default(),
    }
}

impl Run {
    /// Closes everything once there is no writer, and all committed output is in the queue.
    fn close_if_over(&mut self, aborted: bool) -> Result<(), Cause> {
        if self.writers > 0 {
            return Ok(());
        }
        self.log = None;
        let Some(staging) = &self.staging else {
            return Ok(());
        };
        if aborted || staging.is_moved()? {
            return self.staging.take().map_or(Ok(()), Staging::close);
        }
        Ok(())
    }
}

impl Sink<Frames> for WriteQueue {
    fn describe(&self) -> String {
        format!("queue {} in {}", self.name, self.location)
    }

    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        if !control.keeps_state() {
            let queue = self.location.queue(&self.name)?;
            return Ok(Box::new(DirectWriter { queue }));
        }
        let mut run = lock(&self.run);
        let run = &mut *run;
        let staging = match &run.staging {
            Some(staging) => staging,
            None => {
                let resumed = run.resumed.take();
                let (queue, staged) = resumed.ok_or("the sink has not resumed")?;
                run.staging.insert(Staging::resume(queue, staged)?)
            }
        };
        let log = match &run.log {
            Some(log) => Arc::clone(log),
            None => {
                let appending = Appending(staging.journal().writer()?);
                let log = Arc::new(Mutex::new(SharedLog::new(appending, control)));
                Arc::clone(run.log.insert(log))
            }
        };
        run.writers += 1;
        let writer = lock(&log).join();
        Ok(Box::new(StagingWriter {
            log: Some(log),
            writer,
            id: staging.id,
            queue: staging.queue().clone(),
            run: Arc::clone(&self.run),
            control: Arc::clone(control),
        }))
    }

    fn in_one_process(&self) -> bool {
        true
    }

    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl Transactional for WriteQueue {
    fn scope(&self) -> Scope {
        Scope::State
    }
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        let mut run = lock(&self.run);
        *run = Run::default();
        let queue = self.location.queue(&self.name)?;
        let staged = match Staged::of(tokens)? {
            Some(committed) => {
                Staging::resume(queue.clone(), committed)?.close()?;
                committed
            }
            None => Staged::first(&queue),
        };
        run.resumed = Some((queue, staged));
        Ok(Some(staged.token()))
    }
    fn sync(&self) -> Result<(), Cause> {
        let open = {
            let run = lock(&self.run);
            let staging = run.staging.as_ref();
            staging.map(|staging| (staging.journal().clone(), staging.queue().clone()))
        };
        // Writers are not blocked during the sync.
        if let Some((journal, queue)) = open {
            journal.sync()?;
            queue.sync()?;
        }
        Ok(())
    }
    fn commit(&self, _: u64, tokens: &[Token]) -> Result<(), Cause> {
        let mut run = lock(&self.run);
        if let (Some(staging), Some(staged)) = (&mut run.staging, Staged::of(tokens)?) {
            staging.prune()?;
            staging.move_until(staged.length)?;
        }
        run.close_if_over(false)
    }
}

/// Refuses an item that is too large for the queue.
fn check(queue: &Queue, frames: &Frames) -> Result<(), Cause> {
    let limit = queue.item_bytes_max();
    match frames.iter().map(<[u8]>::len).find(|bytes| *bytes > limit) {
        None => Ok(()),
        Some(bytes) => Err(Box::new(QueueError::TooLarge {
            queue: queue.name().to_owned(),
            bytes,
        })),
    }
}

/// Without recovery: puts items immediately.
struct DirectWriter {
    queue: Queue,
}

impl Writer<Frames> for DirectWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        check(&self.queue, batch)?;
        self.queue.put_always(batch.iter(), None)?;
        batch.clear();
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}

struct StagingWriter {
    /// `None` while the writer is being dropped.
    log: Option<Arc<Mutex<SharedLog<Appending>>>>,
    writer: usize,
    id: u64,
    queue: Queue,
    run: Arc<Mutex<Run>>,
    control: Arc<Control>,
}

impl StagingWriter {
    fn with<T: Default>(
        &self,
        write: impl FnOnce(&mut SharedLog<Appending>) -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        match &self.log {
            Some(log) => write(&mut lock(log)),
            None => Ok(T::default()),
        }
    }
}

impl Writer<Frames> for StagingWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        check(&self.queue, batch)?;
        self.with(|log| log.write(self.writer, batch))
    }

    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }

    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        let length = self.with(|log| log.prepare(self.writer, epoch))?;
        let id = self.id;
        Ok(length.map(|length| Staged { id, length }.token()))
    }

    fn close(&mut self) -> Result<Option<Token>, Cause> {
        let length = self.with(|log| log.leave(self.writer))?;
        let id = self.id;
        Ok(length.map(|length| Staged { id, length }.token()))
    }
}

impl Drop for StagingWriter {
    fn drop(&mut self) {
        // The journal must be closed before `close_if_over`.
        self.log = None;
        let mut run = lock(&self.run);
        run.writers -= 1;
        // The next run finds what cannot be closed now.
        let _ = run.close_if_over(self.control.aborted());
    }
}
