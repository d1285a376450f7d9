//! Trials: run a flow with given inputs and without external systems, once or with a crash at every point.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Collected, VirtualClock};
use crate::batch::Data;
use crate::checkpoint::{Crash, Recovery, Saved, json};
use crate::clock::Clock;
use crate::describe::stream::Flow;
use crate::error::{FlowError, shorten};
use crate::framing::Frames;
use crate::key;
use crate::mutex::lock;
use crate::rehearsal::Rehearsal;
use crate::replay::Replay;
use crate::run::Options;
use crate::saved::codec;
use crate::source::Source;

/// A trial of a flow: its sources are replaced by given inputs, its sinks by lists.
///
/// ```
/// use millstream_flow::testing::{self, Trial};
/// use millstream_flow::{Emit, Flow, codec, files, tcp};
///
/// let flow = Flow::new("word-count");
/// flow.source("words", codec::decode(tcp::listen("127.0.0.1:7001"), codec::text))
///     .key_by(|word: &String| word.clone())
///     .count(Emit::Each)
///     .items()
///     .map(|(word, count)| format!("{word} {count}"))
///     .sink("out", codec::encode(files::write("counts"), codec::display));
///
/// let words = ["to", "be", "to"].map(str::to_owned);
/// let words = testing::items(words).batch_size(1);
/// let trial = || Trial::new(&flow).input("words", words.clone());
/// assert_eq!(trial().run_all()?.bytes("out"), [&b"to 1"[..], b"be 1", b"to 2"]);
/// assert!(trial().crash_everywhere()? > 6);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
pub struct Trial<'a> {
    flow: &'a Flow,
    rehearsal: Rehearsal,
    seen: Seen,
    workers: usize,
    clock: Option<VirtualClock>,
    in_order: bool,
}

/// The outputs, by the name of the sink.
type Seen = Arc<Mutex<BTreeMap<String, Box<dyn OutputList>>>>;

/// A list whose items can be formatted without their type.
trait OutputList: Send {
    fn format(&self) -> Vec<String>;
    fn clear(&self);
    fn list(&self) -> Box<dyn Any + Send>;
}

impl<T: Data + Debug> OutputList for Collected<T> {
    fn format(&self) -> Vec<String> {
        self.map_committed(|item| format!("{item:?}"))
    }
    fn clear(&self) {
        drop(self.take());
    }
    fn list(&self) -> Box<dyn Any + Send> {
        Box::new(self.take())
    }
}

/// Frames, which are formatted as text if they are text.
struct Bytes(Collected<Vec<u8>>);

impl OutputList for Bytes {
    fn format(&self) -> Vec<String> {
        self.0
            .map_committed(|frame| format!("\"{}\"", frame.escape_ascii()))
    }
    fn clear(&self) {
        self.0.clear();
    }
    fn list(&self) -> Box<dyn Any + Send> {
        self.0.list()
    }
}

/// The outputs of a trial.
pub struct Outputs(BTreeMap<String, Box<dyn Any + Send>>);

impl Outputs {
    /// Returns the items of a sink whose type was [declared](Trial::output).
    #[must_use]
    pub fn items<T: Data>(&mut self, sink: &str) -> Vec<T> {
        let list = self.0.get_mut(sink);
        let list = list.and_then(|list| list.downcast_mut::<Vec<T>>());
        list.map(std::mem::take).unwrap_or_default()
    }

    /// Returns the messages of a sink of bytes.
    #[must_use]
    pub fn bytes(&mut self, sink: &str) -> Vec<Vec<u8>> {
        self.items(sink)
    }
}

impl<'a> Trial<'a> {
    /// Creates a trial of `flow`, with one worker. Sources are the flow's own unless they are
    /// [replaced](Self::input).
    #[must_use]
    pub fn new(flow: &'a Flow) -> Self {
        let seen = Seen::default();
        let others = Arc::clone(&seen);
        let rehearsal = Rehearsal::new().other_sinks::<Frames, _>(move |name| {
            let list = Collected::<Vec<u8>>::new();
            lock(&others).insert(name.to_owned(), Box::new(Bytes(list.clone())));
            Ok(list.sink())
        });
        let nodes = flow.describe().nodes;
        let sources = nodes.iter().filter(|node| node.kind == "source").count();
        Trial {
            flow,
            rehearsal,
            seen,
            workers: 1,
            clock: None,
            in_order: sources == 1 && nodes.iter().all(|node| node.inputs.len() <= 1),
        }
    }

    /// Sets the input of a source: its items, or the frames from which it makes them.
    #[must_use]
    pub fn input<B: 'static>(mut self, source: &str, items: impl Source<B>) -> Self {
        self.rehearsal = self.rehearsal.source(source, items);
        self
    }

    /// Feeds all sources with recorded input; the trial runs once.
    ///
    /// # Errors
    /// The input does not exist or is damaged.
    pub fn replay(mut self, replay: &Replay) -> Result<Self, FlowError> {
        self.rehearsal = self.rehearsal.replay(replay)?;
        Ok(self)
    }

    /// Declares the type of the items of a sink. A sink that writes bytes needs no declaration: its outputs are
    /// frames.
    #[must_use]
    pub fn output<T: Data + Debug>(mut self, sink: &str) -> Self {
        let list = Collected::<T>::new();
        self.rehearsal = self.rehearsal.sink::<Vec<T>>(sink, list.sink());
        lock(&self.seen).insert(sink.to_owned(), Box::new(list));
        self
    }

    /// Sets the number of workers. With more than one the order of the outputs is ignored.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self.in_order &= workers == 1;
        self
    }

    /// Sets the clock of processing time; scripts advance it.
    #[must_use]
    pub fn clock(mut self, clock: &VirtualClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Runs the flow to its end, and returns the outputs of its sinks.
    ///
    /// # Errors
    /// As for [`Flow::run`].
    pub fn run_all(self) -> Result<Outputs, FlowError> {
        let (bench, seen) = self.ready();
        bench.run(None)?;
        let seen = lock(&seen);
        let lists = seen.iter().map(|(name, list)| (name.clone(), list.list()));
        Ok(Outputs(lists.collect()))
    }

    /// Runs the flow repeatedly with a state directory, with one batch in an epoch. Each run ends at another of
    /// the [points](Crash) of a commit, as if the process had died, and is started again; another series of
    /// runs ends after each of its commits. The outputs and the saved state must be those of a run without a
    /// crash; the order of the outputs counts with one worker if no streams are merged. Returns the number of
    /// crashes.
    ///
    /// # Errors
    /// [`FlowError::Differs`] names the crash and the first difference; else as for [`Flow::run`].
    pub fn crash_everywhere(self) -> Result<u64, FlowError> {
        let in_order = self.in_order;
        let (bench, seen) = self.ready();
        let whole = bench.trial(&seen, &mut |_| None)?.0;
        let mut crashes = 0;
        let compare = |at: &str, found: &Found| match whole.difference(found, in_order) {
            Some(what) => Err(FlowError::Differs {
                at: at.to_owned(),
                what,
            }),
            None => Ok(()),
        };
        for moment in Crash::MOMENTS {
            for commit in 1.. {
                let at = moment(commit);
                let (found, crashed) = bench.trial(&seen, &mut |run| (run == 0).then_some(at))?;
                if crashed == 0 {
                    break;
                }
                crashes += crashed;
                compare(&at.to_string(), &found)?;
            }
        }
        let (found, crashed) = bench.trial(&seen, &mut |_| Some(Crash::After(1)))?;
        compare("after each commit", &found)?;
        Ok(crashes + crashed)
    }

    fn ready(self) -> (Bench<'a>, Seen) {
        let bench = Bench {
            flow: self.flow,
            rehearsal: Arc::new(self.rehearsal),
            workers: self.workers,
            clock: self.clock,
        };
        (bench, self.seen)
    }
}

/// The context of the runs of a trial.
struct Bench<'a> {
    flow: &'a Flow,
    rehearsal: Arc<Rehearsal>,
    workers: usize,
    clock: Option<VirtualClock>,
}

impl Bench<'_> {
    fn run(&self, recovery: Option<Recovery>) -> Result<(), FlowError> {
        let clock = self.clock.clone();
        let options = Options {
            recovery,
            rehearsal: Some(Arc::clone(&self.rehearsal)),
            clock: clock.map(|clock| -> Arc<dyn Clock> { Arc::new(clock) }),
            ..Options::workers(self.workers)
        };
        match self.workers {
            1 => self.flow.run_here(options)?,
            _ => self.flow.run(options)?,
        };
        Ok(())
    }

    /// Runs the flow until it ends, where the n-th run crashes at the point that `crash` returns. Returns the
    /// outputs, and the number of runs that crashed.
    fn trial(
        &self,
        seen: &Seen,
        crash: &mut dyn FnMut(u64) -> Option<Crash>,
    ) -> Result<(Found, u64), FlowError> {
        let scratch = Scratch::new();
        lock(seen).values().for_each(|list| list.clear());
        let mut crashes = 0;
        loop {
            let recovery = Recovery::new(&scratch.0).epoch(Duration::ZERO).sync(false);
            let recovery = match crash(crashes) {
                Some(at) => recovery.crash(at),
                None => recovery,
            };
            match self.run(Some(recovery)) {
                Ok(()) => return Ok((Found::collect(seen, &scratch.0)?, crashes)),
                Err(FlowError::Crashed(_)) => crashes += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The result of a trial: outputs by sink, and states by step and key.
struct Found {
    outputs: BTreeMap<String, Vec<String>>,
    states: BTreeMap<(String, Vec<u8>), (u8, Vec<u8>)>,
}

impl Found {
    fn collect(seen: &Seen, dir: &Path) -> Result<Self, FlowError> {
        let seen = lock(seen);
        let outputs = seen
            .iter()
            .map(|(name, list)| (name.clone(), list.format()));
        let saved = Saved::open(dir)?;
        let mut states = BTreeMap::new();
        for step in saved.steps() {
            for found in saved.keys(step, |_| true)? {
                states.insert((step.to_owned(), found.key), (found.tag, found.state));
            }
        }
        let outputs = outputs.collect();
        Ok(Found { outputs, states })
    }

    /// Returns the first difference to `other`.
    fn difference(&self, other: &Found, in_order: bool) -> Option<String> {
        for (sink, whole) in &self.outputs {
            let found = other.outputs.get(sink).map_or(&[][..], |found| found);
            let mut whole = whole.clone();
            let mut found = found.to_vec();
            if !in_order {
                whole.sort();
                found.sort();
            }
            let length = whole.len().max(found.len());
            let at = (0..length).find(|at| whole.get(*at) != found.get(*at));
            if let Some(at) = at {
                let show =
                    |item: Option<&String>| item.map_or("nothing".to_owned(), |i| shorten(i));
                let expected = show(whole.get(at));
                let found = show(found.get(at));
                let which = if in_order {
                    "item"
                } else {
                    "in sorted order, item"
                };
                return Some(format!(
                    "output \"{sink}\": {which} {at} is {found} and was {expected}"
                ));
            }
        }
        let keys = self.states.keys().chain(other.states.keys());
        let mut keys: Vec<_> = keys.collect();
        keys.sort();
        let differs = |key: &&&(String, Vec<u8>)| self.states.get(**key) != other.states.get(**key);
        keys.iter().find(differs).map(|key| {
            let show = |found: &Found| match found.states.get(*key) {
                None => "nothing".to_owned(),
                Some((codec::MESSAGE_PACK, state)) => {
                    let value = json::state(state, &|_, _| None);
                    let value = value.unwrap_or_else(|| json::hex(state));
                    shorten(&value.to_string())
                }
                Some((_, state)) => shorten(&json::hex(state).to_string()),
            };
            let step = &key.0;
            let key = key::show(&key.1);
            let expected = show(self);
            let found = show(other);
            format!("state of step \"{step}\", key {key}: it is {found} and was {expected}")
        })
    }
}

/// A temporary directory, which is removed when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-trial-{}-{number}", std::process::id());
        Scratch(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A directory that cannot be removed is left to the cleanup of the system's temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
