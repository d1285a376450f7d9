//! What a sink is: a description that every worker shares, and a writer on each worker.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::Cause;
use crate::framing::Frames;
use crate::run::control::Control;

/// A file, directory or journal that only this sink may write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where it is.
    pub path: PathBuf,
    /// The address of the sink: one that several steps end in writes its file once.
    pub sink: usize,
}

/// A sink of a flow.
///
/// A sink that can roll its output back to the last commit also implements [`Transactional`].
pub trait Sink<B>: Send + Sync + 'static {
    /// The kind and the address, for people: `tcp connect 127.0.0.1:7002`.
    fn describe(&self) -> String;
    /// Opens the sink for one worker. `control` says when the run stops.
    ///
    /// # Errors
    /// A refused connection, a file that cannot be made.
    fn open(&self, worker: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<B>>, Cause>;
    /// What it writes and no other sink of the flow may write, in a run with recovery or without.
    fn output(&self, _recovery: bool) -> Option<Output> {
        None
    }
    /// Its part in commits, if it has one.
    fn transactional(&self) -> Option<&dyn Transactional> {
        None
    }
    /// Its part in the begin and the end of a run, if it delivers in the background.
    fn forwarding(&self) -> Option<&dyn Forwarding> {
        None
    }
    /// The same sink with `frames` in the place of what it writes bytes to, for a
    /// [rehearsal](crate::Rehearsal). A sink that makes no bytes of its items returns nothing.
    fn over(&self, _frames: Arc<dyn Sink<Frames>>) -> Option<Arc<dyn Sink<B>>> {
        None
    }
}

/// A sink that takes part in commits. Its writers [prepare](Writer::prepare) an epoch; once the epoch is committed, it is made
/// final here, or rolled back to when the flow resumes.
pub trait Transactional: Send + Sync {
    /// A run with recovery begins, and nothing is open. `tokens` is what the writers had prepared for the
    /// last committed epoch: makes that final if it is not yet, and rolls back all that came after it. At
    /// the very first run there are none. Returns a token for the state that the sink is in now, if it has
    /// one. May be called again for the same epoch. Where a flow was killed after its last commit, nothing is opened after it.
    ///
    /// # Errors
    /// As for [`Sink::open`]; output that no longer exists.
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause>;
    /// All writers have prepared an epoch: makes what they wrote survive a loss of power. Called in the
    /// background.
    ///
    /// # Errors
    /// An error of the system.
    fn sync(&self) -> Result<(), Cause> {
        Ok(())
    }
    /// Epoch `epoch` is committed, with what the writers had prepared. Called in the background; after a crash
    /// [`resume`](Self::resume) takes its place.
    ///
    /// # Errors
    /// An error, which ends the flow.
    fn commit(&self, _epoch: u64, _tokens: &[Token]) -> Result<(), Cause> {
        Ok(())
    }
    /// Nothing more is committed in this run: closes what only commits needed, and lets a sink that delivers committed output in the
    /// background end once all of it is delivered. Called after [`resume`](Self::resume), however the run ends, and once for each
    /// writer: a second call has no effect.
    fn finish(&self) {}
    /// What distinguishes this sink from others, if several steps may write to it: they are one sink then, which is notified
    /// of each epoch once.
    fn identity(&self) -> Option<usize> {
        None
    }
}

/// A sink that a flow shares.
impl<B: 'static> Sink<B> for Arc<dyn Sink<B>> {
    fn describe(&self) -> String {
        (**self).describe()
    }
    fn open(&self, worker: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<B>>, Cause> {
        (**self).open(worker, control)
    }
    fn output(&self, recovery: bool) -> Option<Output> {
        (**self).output(recovery)
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        (**self).transactional()
    }
    fn forwarding(&self) -> Option<&dyn Forwarding> {
        (**self).forwarding()
    }
    fn over(&self, frames: Arc<dyn Sink<Frames>>) -> Option<Arc<dyn Sink<B>>> {
        (**self).over(frames)
    }
}

/// The run that begins, for a sink that delivers in the background.
pub struct OutputRun<'a> {
    /// The name of the flow.
    pub flow: &'a str,
    /// The names of the steps that write to the sink.
    pub names: &'a [String],
    /// The state directory, in a run with recovery.
    pub state_dir: Option<&'a Path>,
    /// The state that the workers of the run share.
    pub control: &'a Arc<Control>,
}

/// A sink that delivers committed output in the background: an [outbox](crate::outbox).
///
/// It is notified of commits, and of the last one, as a [`Transactional`] sink.
pub trait Forwarding: Send + Sync {
    /// A run begins, with a state directory or without, before anything is opened or rolled back.
    ///
    /// # Errors
    /// As for [`Sink::open`].
    fn begin(&self, run: &OutputRun<'_>) -> Result<(), Cause>;
    /// All sinks of a run with a state directory are rolled back to the last commit: starts the delivery of committed output.
    ///
    /// # Errors
    /// As for [`Sink::open`].
    fn start(&self) -> Result<(), Cause>;
}

/// What a writer has prepared, in the sink's own format: a length, the name of a transaction.
pub type Token = Vec<u8>;

/// A sink on one worker.
pub trait Writer<B> {
    /// Writes the items of `batch`, and leaves it empty. May wait: this is back-pressure.
    ///
    /// # Errors
    /// The receiver is gone, the disk is full.
    fn write_batch(&mut self, batch: &mut B) -> Result<(), Cause>;
    /// Writes buffered output to the system.
    ///
    /// # Errors
    /// As for `write_batch`.
    fn flush(&mut self) -> Result<(), Cause>;
    /// Ends an epoch: writes its output, so that it can be committed or rolled back as a whole. Returns a token for that, if the
    /// sink supports it. Later batches belong to later epochs.
    ///
    /// # Errors
    /// As for `write_batch`.
    fn prepare(&mut self, _epoch: u64) -> Result<Option<Token>, Cause> {
        self.flush()?;
        Ok(None)
    }
    /// Flushes and closes, at the end of the run, after the last epoch was prepared.
    ///
    /// Returns a token that replaces the last prepared one, if necessary: the writers of one file may end at different epochs, and
    /// the last one to close knows the final length.
    ///
    /// # Errors
    /// As for `write_batch`.
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        self.flush()?;
        Ok(None)
    }
}
