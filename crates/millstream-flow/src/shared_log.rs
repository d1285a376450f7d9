//! A log that all workers write to: a file, a journal.
//!
//! Invariant: the log contains complete epochs in order, so that it can be truncated to an epoch by its length. Workers
//! end an epoch one after the other. Output of a later epoch is buffered until the last worker has ended the earlier
//! one. Buffered batches count as in flight, so that sources slow down when there are many.

use std::sync::{Arc, Mutex, Weak};

use millstream_journal::Writer as Appender;

use crate::control::{Control, Load};
use crate::error::Cause;
use crate::framing::Frames;
use crate::mutex::lock;

/// A log that only grows.
pub trait Log: Send {
    /// A batch as it is appended.
    type Batch: Default;
    /// Appends a batch, and leaves it empty with its memory.
    ///
    /// # Errors
    /// The error of the system.
    fn append(&mut self, batch: &mut Self::Batch) -> Result<(), Cause>;
    /// Writes buffered output to the system. Returns the length of the log.
    ///
    /// # Errors
    /// The error of the system.
    fn flush(&mut self) -> Result<u64, Cause>;
    /// Ends an epoch: writes buffered output to the system. Returns the length of the log, to which it can be
    /// truncated.
    ///
    /// # Errors
    /// The error of the system.
    fn prepare(&mut self) -> Result<u64, Cause> {
        self.flush()
    }
}

/// A journal as a shared log.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Appending(pub Appender);

impl Log for Appending {
    type Batch = Frames;

    fn append(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        self.0.append_many(batch.iter())?;
        batch.spans.clear();
        batch.data.clear();
        Ok(())
    }
    fn flush(&mut self) -> Result<u64, Cause> {
        Ok(self.0.journal().next()?)
    }
}

/// One writer of a shared log.
struct LogWriter<B> {
    /// The epoch that it writes.
    epoch: u64,
    /// Batches of later epochs, each with its epoch.
    buffered: Vec<(u64, B)>,
}

/// A log and its writers.
pub struct SharedLog<L: Log> {
    log: L,
    /// The earliest epoch of the writers.
    epoch: u64,
    writers: Vec<LogWriter<L::Batch>>,
    load: Arc<Load>,
}

impl<L: Log> SharedLog<L> {
    /// Creates a shared log without writers.
    pub fn new(log: L, control: &Arc<Control>) -> Self {
        SharedLog {
            log,
            epoch: 0,
            writers: Vec::new(),
            load: Arc::clone(&control.load),
        }
    }

    /// The log.
    #[must_use]
    pub fn log(&self) -> &L {
        &self.log
    }

    /// The log, for changes.
    pub fn log_mut(&mut self) -> &mut L {
        &mut self.log
    }

    /// Adds a writer. Returns its number.
    pub fn join(&mut self) -> usize {
        self.writers.push(LogWriter {
            epoch: 0,
            buffered: Vec::new(),
        });
        self.writers.len() - 1
    }

    /// Appends a batch, or buffers it if it belongs to a later epoch.
    ///
    /// # Errors
    /// The error of the log, as for all methods here.
    pub fn write(&mut self, writer: usize, batch: &mut L::Batch) -> Result<(), Cause> {
        let this = &mut self.writers[writer];
        if this.epoch > self.epoch {
            self.load.sent(0, 0);
            this.buffered.push((this.epoch, std::mem::take(batch)));
            return Ok(());
        }
        self.log.append(batch)
    }

    /// Writes buffered output to the system. Returns the length of the log.
    ///
    /// # Errors
    /// The error of the log.
    pub fn flush(&mut self) -> Result<u64, Cause> {
        self.log.flush()
    }

    /// Ends `epoch` for a writer. Returns the length of the log if this was the last writer to end it.
    ///
    /// # Errors
    /// The error of the log.
    pub fn prepare(&mut self, writer: usize, epoch: u64) -> Result<Option<u64>, Cause> {
        self.begin_epoch(writer, epoch + 1)
    }

    /// Removes a writer. Returns the length of the log if it was the last one.
    ///
    /// The last writer completes all epochs, including later ones that other writers have ended before. So this length
    /// may be greater than the one that [`prepare`](Self::prepare) returned for its last epoch.
    ///
    /// # Errors
    /// The error of the log.
    pub fn leave(&mut self, writer: usize) -> Result<Option<u64>, Cause> {
        self.begin_epoch(writer, u64::MAX)?;
        if self.epoch == u64::MAX {
            return Ok(Some(self.log.prepare()?));
        }
        self.log.flush()?;
        Ok(None)
    }

    /// Begins `epoch` for a writer, and appends the batches that are complete by that.
    fn begin_epoch(&mut self, writer: usize, epoch: u64) -> Result<Option<u64>, Cause> {
        self.writers[writer].epoch = epoch;
        let earliest = self.writers.iter().map(|writer| writer.epoch).min();
        let earliest = earliest.unwrap_or(epoch);
        if earliest == self.epoch {
            return Ok(None);
        }
        let end = self.log.prepare()?;
        self.epoch = earliest;
        for writer in &mut self.writers {
            for (epoch, mut batch) in std::mem::take(&mut writer.buffered) {
                if epoch > earliest {
                    writer.buffered.push((epoch, batch));
                } else {
                    self.load.handled(0, 0);
                    self.log.append(&mut batch)?;
                }
            }
        }
        Ok(Some(end))
    }
}

/// The shared log of a sink in the current run.
///
/// The first writer opens it. It stays open until the last writer has closed and, in a run that commits, until the last
/// commit: the last epochs are synced and committed when their writers may have closed.
pub struct CurrentLog<L: Log>(Mutex<Current<L>>);

struct Current<L: Log> {
    log: Weak<Mutex<SharedLog<L>>>,
    commits: bool,
    /// The same log, in a run that commits.
    kept: Option<Arc<Mutex<SharedLog<L>>>>,
}

impl<L: Log> Default for CurrentLog<L> {
    fn default() -> Self {
        CurrentLog(Mutex::new(Current {
            log: Weak::new(),
            commits: false,
            kept: None,
        }))
    }
}

impl<L: Log> CurrentLog<L> {
    /// Begins a run that commits, before a writer is open.
    pub fn begin_commits(&self) {
        lock(&self.0).commits = true;
    }

    /// Adds a writer; `open` opens the log if this is the first one. Returns the log and the number of the writer.
    ///
    /// # Errors
    /// The error of `open`.
    #[expect(clippy::type_complexity, reason = "the log as its writers share it")]
    pub fn join(
        &self,
        control: &Arc<Control>,
        open: impl FnOnce() -> Result<L, Cause>,
    ) -> Result<(Arc<Mutex<SharedLog<L>>>, usize), Cause> {
        let mut current = lock(&self.0);
        let log = match current.log.upgrade() {
            Some(log) => log,
            None => {
                let log = Arc::new(Mutex::new(SharedLog::new(open()?, control)));
                current.log = Arc::downgrade(&log);
                current.kept = current.commits.then(|| Arc::clone(&log));
                log
            }
        };
        drop(current);
        let writer = lock(&log).join();
        Ok((log, writer))
    }

    /// Returns the log, if it is open.
    #[must_use]
    pub fn get(&self) -> Option<Arc<Mutex<SharedLog<L>>>> {
        lock(&self.0).log.upgrade()
    }

    /// Ends the commits of the run.
    pub fn end_commits(&self) {
        let kept = {
            let mut current = lock(&self.0);
            current.commits = false;
            current.kept.take()
        };
        // Outside of the lock, as the log may close here.
        drop(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Text(String);

    impl Log for Text {
        type Batch = String;
        fn append(&mut self, batch: &mut String) -> Result<(), Cause> {
            self.0 += batch;
            Ok(())
        }
        fn flush(&mut self) -> Result<u64, Cause> {
            Ok(self.0.len() as u64)
        }
    }

    fn of_two_writers() -> (SharedLog<Text>, usize, usize) {
        let control = Arc::new(Control::new(2, None));
        let mut log = SharedLog::new(Text(String::new()), &control);
        let a = log.join();
        let b = log.join();
        (log, a, b)
    }

    fn write(log: &mut SharedLog<Text>, writer: usize, text: &str) {
        let written = log.write(writer, &mut text.to_owned());
        written.expect("it is memory");
    }

    #[test]
    fn output_of_a_later_epoch_waits_for_writers_of_the_earlier_one() {
        let (mut log, a, b) = of_two_writers();
        write(&mut log, a, "a1 ");
        assert_eq!(log.prepare(a, 1).expect("memory"), None);
        write(&mut log, a, "a2 ");
        write(&mut log, b, "b1 ");
        assert_eq!(log.log().0, "a1 b1 ");
        assert_eq!(log.prepare(b, 1).expect("memory"), Some(6));
        assert_eq!(log.log().0, "a1 b1 a2 ");
        write(&mut log, b, "b2 ");
        assert_eq!(log.prepare(b, 2).expect("memory"), None);
        assert_eq!(log.leave(b).expect("memory"), None);
        write(&mut log, a, "a2 ");
        assert_eq!(log.prepare(a, 2).expect("memory"), Some(15));
    }

    #[test]
    fn the_last_writer_returns_the_length_with_the_epochs_of_the_others() {
        let (mut log, a, b) = of_two_writers();
        for epoch in 1..=3 {
            write(&mut log, b, &format!("b{epoch} "));
            assert_eq!(log.prepare(b, epoch).expect("memory"), None);
        }
        write(&mut log, b, "b4 ");
        assert_eq!(log.leave(b).expect("memory"), None);
        write(&mut log, a, "a1 ");
        // The end of the first epoch: the buffered output of b comes after it.
        assert_eq!(log.prepare(a, 1).expect("memory"), Some(6));
        assert_eq!(log.leave(a).expect("memory"), Some(15));
        assert_eq!(log.log().0, "b1 a1 b2 b3 b4 ");
    }

    #[test]
    fn a_log_is_open_until_its_last_writer_and_the_last_commit() {
        let control = Arc::new(Control::new(2, None));
        let current = CurrentLog::default();
        for commits in [false, true, false] {
            if commits {
                current.begin_commits();
            }
            let open = || Ok(Text(String::new()));
            let (first, _) = current.join(&control, open).expect("memory");
            let (second, number) = current.join(&control, open).expect("memory");
            assert!(Arc::ptr_eq(&first, &second) && number == 1);
            drop((first, second));
            assert_eq!(current.get().is_some(), commits);
            current.end_commits();
            assert!(current.get().is_none());
        }
    }
}
