//! What a sink is: a description that every worker shares, and a writer on each worker.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::cluster::Membership;
use crate::control::Control;
use crate::error::Cause;
use crate::framing::Frames;
use crate::mutex::lock;

/// A file, directory or journal that only this sink may write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Output {
    /// Where it is.
    pub path: PathBuf,
    /// The address of the sink: one that several steps end in writes its file once.
    pub sink: usize,
}

/// The path of a file or directory that all workers of a process write. In a cluster each process has its own:
/// [`of_process`](Self::of_process) is the one rule for its name.
///
/// ```
/// use std::path::Path;
/// use millstream_flow::cluster::Membership;
/// use millstream_flow::sink::OwnPath;
///
/// let path = OwnPath::new("out.csv");
/// assert_eq!(path.get(), Path::new("out.csv"));
/// path.join(Some(Membership { process: 1, processes: 4 }));
/// assert_eq!(path.get(), Path::new("out.p1.csv"));
/// ```
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct OwnPath {
    path: PathBuf,
    process: Mutex<Option<usize>>,
}

impl OwnPath {
    /// The path `path`, until a process of a cluster [joins](Self::join).
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        OwnPath {
            path: path.as_ref().to_owned(),
            process: Mutex::new(None),
        }
    }

    /// Sets the process; returns the path if it is one of this process.
    pub fn join(&self, membership: Option<Membership>) -> Option<PathBuf> {
        let process = membership.map(|membership| membership.process);
        *lock(&self.process) = process;
        process.map(|_| self.get())
    }

    /// The path that was given, which is the same in all processes.
    #[must_use]
    pub fn given(&self) -> &Path {
        &self.path
    }

    /// The path in this process.
    #[must_use]
    pub fn get(&self) -> PathBuf {
        match *lock(&self.process) {
            Some(process) => Self::of_process(&self.path, process),
            None => self.path.clone(),
        }
    }

    /// The path for process `process`: `.p` and its number are added before the ending of the name, `.gz` and `.zst`
    /// being part of the ending.
    ///
    /// ```
    /// use std::path::Path;
    /// use millstream_flow::sink::OwnPath;
    ///
    /// for (path, own) in [
    ///     ("out/a.b.csv", "out/a.b.p2.csv"),
    ///     ("lines.txt.gz", "lines.p2.txt.gz"),
    ///     ("by-country", "by-country.p2"),
    /// ] {
    ///     assert_eq!(OwnPath::of_process(Path::new(path), 2), Path::new(own));
    /// }
    /// ```
    #[must_use]
    pub fn of_process(path: &Path, process: usize) -> PathBuf {
        let mut stem = path.to_owned();
        let mut endings = Vec::new();
        while let Some(ending) = stem.extension().map(std::ffi::OsStr::to_owned) {
            stem.set_extension("");
            let is_compression = ending == "gz" || ending == "zst";
            endings.push(ending);
            if !is_compression {
                break;
            }
        }
        let mut name = stem.file_name().unwrap_or_default().to_owned();
        name.push(format!(".p{process}"));
        for ending in endings.iter().rev() {
            name.push(".");
            name.push(ending);
        }
        stem.with_file_name(name)
    }
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
    /// The process in which the flow runs next, `None` if there is one only; called before anything else of a run. A
    /// sink that has a file or directory for all workers writes to one of this process then ([`OwnPath`]), and returns
    /// its path.
    #[doc(hidden)] // For the other crates of Millstream.
    fn join(&self, _membership: Option<Membership>) -> Option<PathBuf> {
        None
    }
    /// Whether one process only can write it. In a run of several processes it is gathered then: all items go to the
    /// first worker of process 0, and only there it is opened.
    #[doc(hidden)] // For the other crates of Millstream.
    fn in_one_process(&self) -> bool {
        false
    }
    /// What it writes and no other sink of the flow may write, in a run with recovery or without.
    #[doc(hidden)] // For the other crates of Millstream.
    fn output(&self, _recovery: bool) -> Option<Output> {
        None
    }
    /// Its part in commits, if it has one.
    fn transactional(&self) -> Option<&dyn Transactional> {
        None
    }
    /// Its part in the begin and the end of a run, if it delivers in the background.
    #[doc(hidden)] // For the other crates of Millstream.
    fn forwarding(&self) -> Option<&dyn Forwarding> {
        None
    }
    /// Skips records that its destination refuses, in place of failing the flow, as
    /// [`Outbox::skip_refused`](crate::outbox::Outbox::skip_refused) does; with `keeps` they become dead letters:
    /// [`Writer::take_refused`] returns them. False, and nothing more, if the destination refuses none.
    #[doc(hidden)] // For the other crates of Millstream.
    fn skip_refused(&self, _keeps: bool) -> bool {
        false
    }
    /// The size of the largest frame that it takes, in bytes, if there is a limit.
    #[doc(hidden)] // For the other crates of Millstream.
    fn record_bytes_max(&self) -> Option<usize> {
        None
    }
    /// The same sink with `frames` in the place of what it writes bytes to, for a
    /// [rehearsal](crate::Rehearsal). A sink that makes no bytes of its items returns nothing.
    #[doc(hidden)] // For the other crates of Millstream.
    fn over(&self, _frames: Arc<dyn Sink<Frames>>) -> Option<Arc<dyn Sink<B>>> {
        None
    }
}

/// A sink that takes part in commits. Its writers [prepare](Writer::prepare) an epoch; once the epoch is committed, it
/// is made final here, or rolled back to when the flow resumes.
pub trait Transactional: Send + Sync {
    /// A run with recovery begins, and nothing is open. `tokens` is what the writers had prepared for the last
    /// committed epoch: makes that final if it is not yet, and rolls back all that came after it. At the very first run
    /// there are none. Returns a token for the state that the sink is in now, if it has one. May be called again for
    /// the same epoch. Where a flow was killed after its last commit, nothing is opened after it.
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
    /// Nothing more is committed in this run: closes what only commits needed, and lets a sink that delivers committed
    /// output in the background end once all of it is delivered. Called after [`resume`](Self::resume), however the run
    /// ends, and once for each writer: a second call has no effect.
    fn finish(&self) {}
    /// What distinguishes this sink from others, if several steps may write to it: they are one sink then, which is
    /// notified of each epoch once.
    fn identity(&self) -> Option<usize> {
        None
    }
    /// What its tokens belong to, when the state of the flow is divided among other processes than before.
    fn scope(&self) -> Scope {
        Scope::Path
    }
}

/// What the tokens of a sink belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The output of the process with this number, as of a file. Where that process is no longer, its output stays as
    /// it is; if it comes again, it resumes there.
    Path,
    /// The state directory, as of an outbox: that of a run of one process becomes that of process 0.
    State,
    /// The workers, wherever they run: each process gets the tokens of all.
    Workers,
}

/// Passes methods of a [`Sink`](crate::sink::Sink) on to a sink inside, as [`forward_source`](crate::forward_source)
/// does for a source.
#[doc(hidden)] // For the other crates of Millstream.
#[macro_export]
macro_rules! forward_sink {
    ($this:ident => $inner:expr) => {
        fn describe(&self) -> String {
            let $this = self;
            $inner.describe()
        }
        fn join(
            &self,
            membership: Option<$crate::cluster::Membership>,
        ) -> Option<std::path::PathBuf> {
            let $this = self;
            $inner.join(membership)
        }
        fn in_one_process(&self) -> bool {
            let $this = self;
            $inner.in_one_process()
        }
        fn output(&self, recovery: bool) -> Option<$crate::sink::Output> {
            let $this = self;
            $inner.output(recovery)
        }
        fn transactional(&self) -> Option<&dyn $crate::sink::Transactional> {
            let $this = self;
            $inner.transactional()
        }
        fn forwarding(&self) -> Option<&dyn $crate::sink::Forwarding> {
            let $this = self;
            $inner.forwarding()
        }
        fn skip_refused(&self, keeps: bool) -> bool {
            let $this = self;
            $inner.skip_refused(keeps)
        }
        fn record_bytes_max(&self) -> Option<usize> {
            let $this = self;
            $inner.record_bytes_max()
        }
    };
}

/// Passes methods of a [`Writer`](crate::sink::Writer) on, as [`forward_source`](crate::forward_source) does for a
/// source.
#[doc(hidden)] // For the other crates of Millstream.
#[macro_export]
macro_rules! forward_writer {
    ($this:ident => $inner:expr) => {
        fn flush(&mut self) -> Result<(), $crate::error::Cause> {
            let $this = self;
            $inner.flush()
        }
        fn prepare(
            &mut self,
            epoch: u64,
        ) -> Result<Option<$crate::sink::Token>, $crate::error::Cause> {
            let $this = self;
            $inner.prepare(epoch)
        }
        fn close(&mut self) -> Result<Option<$crate::sink::Token>, $crate::error::Cause> {
            let $this = self;
            $inner.close()
        }
        fn take_refused(&mut self) -> Result<Vec<$crate::sink::Refused>, $crate::error::Cause> {
            let $this = self;
            $inner.take_refused()
        }
    };
}

/// A sink that a flow shares.
#[warn(clippy::missing_trait_methods)]
impl<B: 'static> Sink<B> for Arc<dyn Sink<B>> {
    forward_sink!(this => (**this));
    fn open(&self, worker: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<B>>, Cause> {
        (**self).open(worker, control)
    }
    fn over(&self, frames: Arc<dyn Sink<Frames>>) -> Option<Arc<dyn Sink<B>>> {
        (**self).over(frames)
    }
}

/// The run that begins, for a sink that delivers in the background.
#[doc(hidden)] // For the other crates of Millstream.
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
#[doc(hidden)] // For the other crates of Millstream.
pub trait Forwarding: Send + Sync {
    /// A run begins, with a state directory or without, before anything is opened or rolled back.
    ///
    /// # Errors
    /// As for [`Sink::open`].
    fn begin(&self, run: &OutputRun<'_>) -> Result<(), Cause>;
    /// All sinks of a run with a state directory are rolled back to the last commit: starts the delivery of committed
    /// output.
    ///
    /// # Errors
    /// As for [`Sink::open`].
    fn start(&self) -> Result<(), Cause>;
    /// Whether the delivery has ended. Asked after [`Transactional::finish`].
    fn has_ended(&self) -> bool;
    /// Takes records that were refused after the last epoch, and returns them with a token: the last commit is amended
    /// by their dead letters and by this token. Called when the delivery has [ended](Self::has_ended), until there are
    /// none.
    ///
    /// # Errors
    /// An error of the system.
    fn take_refused(&self) -> Result<(Vec<Refused>, Token), Cause>;
}

/// A record that the destination of a sink has refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its number, if the sink numbers its records.
    pub number: Option<u64>,
    /// What the destination says.
    pub reason: String,
    /// The record, as the sink received it.
    pub record: Vec<u8>,
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
    /// Ends an epoch: writes its output, so that it can be committed or rolled back as a whole. Returns a token for
    /// that, if the sink supports it. Later batches belong to later epochs.
    ///
    /// # Errors
    /// As for `write_batch`.
    fn prepare(&mut self, _epoch: u64) -> Result<Option<Token>, Cause> {
        self.flush()?;
        Ok(None)
    }
    /// Flushes and closes, at the end of the run, after the last epoch was prepared.
    ///
    /// Returns a token that replaces the last prepared one, if necessary: the writers of one file may end at different
    /// epochs, and the last one to close knows the final length.
    ///
    /// # Errors
    /// As for `write_batch`.
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        self.flush()?;
        Ok(None)
    }
    /// Takes the refused records of a sink that [keeps](Sink::skip_refused) them. Called after `flush`, after
    /// `prepare`, whose token covers them, and after `close`.
    ///
    /// # Errors
    /// An error of the system.
    fn take_refused(&mut self) -> Result<Vec<Refused>, Cause> {
        Ok(Vec::new())
    }
}
