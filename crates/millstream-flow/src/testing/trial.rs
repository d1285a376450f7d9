//! Trials: a flow run with given inputs and nothing outside, once or with a crash at every point.

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
use crate::run::Options;
use crate::run::control::lock;
use crate::source::Source;
use crate::state::codec;
use crate::testing::rehearsal::Rehearsal;
use crate::testing::replay::Replay;

/// A flow under trial: sources are given, sinks are replaced by lists.
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

/// What came out, by the name of the sink.
type Seen = Arc<Mutex<BTreeMap<String, Box<dyn Shown>>>>;

/// A list that can be shown without its type.
trait Shown: Send {
    fn show(&self) -> Vec<String>;
    fn clear(&self);
    fn list(&self) -> Box<dyn Any + Send>;
}

impl<T: Data + Debug> Shown for Collected<T> {
    fn show(&self) -> Vec<String> {
        self.look(|item| format!("{item:?}"))
    }
    fn clear(&self) {
        drop(self.take());
    }
    fn list(&self) -> Box<dyn Any + Send> {
        Box::new(self.take())
    }
}

/// Frames, which are shown as text where they are.
struct Bytes(Collected<Vec<u8>>);

impl Shown for Bytes {
    fn show(&self) -> Vec<String> {
        self.0.look(|frame| format!("\"{}\"", frame.escape_ascii()))
    }
    fn clear(&self) {
        self.0.clear();
    }
    fn list(&self) -> Box<dyn Any + Send> {
        self.0.list()
    }
}

/// What a trial brought.
pub struct Outputs(BTreeMap<String, Box<dyn Any + Send>>);

impl Outputs {
    /// The items of a sink whose type was [said](Trial::output).
    #[must_use]
    pub fn items<T: Data>(&mut self, sink: &str) -> Vec<T> {
        let list = self.0.get_mut(sink);
        let list = list.and_then(|list| list.downcast_mut::<Vec<T>>());
        list.map(std::mem::take).unwrap_or_default()
    }

    /// What a sink of bytes was given, message by message.
    #[must_use]
    pub fn bytes(&mut self, sink: &str) -> Vec<Vec<u8>> {
        self.items(sink)
    }
}

impl<'a> Trial<'a> {
    /// A trial of `flow`, with one worker. Sources are the flow's own unless they are [given](Self::input).
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

    /// What the source of this name gives: its items, or the frames that it makes them of.
    #[must_use]
    pub fn input<B: 'static>(mut self, source: &str, items: impl Source<B>) -> Self {
        self.rehearsal = self.rehearsal.source(source, items);
        self
    }

    /// Feeds all sources with recorded input; the trial is run once.
    ///
    /// # Errors
    /// Input that is not there or is damaged.
    pub fn replay(mut self, replay: &Replay) -> Result<Self, FlowError> {
        self.rehearsal = self.rehearsal.replay(replay)?;
        Ok(self)
    }

    /// Says which type the items of a sink have. Sinks that write bytes need not be announced: of those,
    /// frames are what comes out.
    #[must_use]
    pub fn output<T: Data + Debug>(mut self, sink: &str) -> Self {
        let list = Collected::<T>::new();
        self.rehearsal = self.rehearsal.sink::<Vec<T>>(sink, list.sink());
        lock(&self.seen).insert(sink.to_owned(), Box::new(list));
        self
    }

    /// So many workers. The order of what comes out is then left out of account.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self.in_order &= workers == 1;
        self
    }

    /// Processing time is what this clock shows; scripts move it.
    #[must_use]
    pub fn clock(mut self, clock: &VirtualClock) -> Self {
        self.clock = Some(clock.clone());
        self
    }

    /// Runs the flow to its end, and gives what its sinks were given.
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

    /// Runs the flow again and again with a state directory, with one batch in an epoch: each time it ends
    /// as if the process had died at another of the [moments](Crash) of a commit, and is started again; and
    /// once it ends behind each of its commits. What comes out and what is saved must be what it is without
    /// a crash; the order of what comes out counts where there is one, with one worker and no streams that
    /// come together. Gives how many crashes there were.
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
        let (found, crashed) = bench.trial(&seen, &mut |_| Some(Crash::Behind(1)))?;
        compare("behind each commit", &found)?;
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

/// Where a trial's runs are made.
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

    /// Runs the flow until it ends, where the n-th run crashes as `crash` says. Gives what it brought, and
    /// how many runs crashed.
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
                Ok(()) => return Ok((Found::look(seen, &scratch.0)?, crashes)),
                Err(FlowError::Crashed(_)) => crashes += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

/// What a trial brought: outputs by sink, and states by step and key.
struct Found {
    outputs: BTreeMap<String, Vec<String>>,
    states: BTreeMap<(String, Vec<u8>), (u8, Vec<u8>)>,
}

impl Found {
    fn look(seen: &Seen, dir: &Path) -> Result<Self, FlowError> {
        let seen = lock(seen);
        let outputs = seen.iter().map(|(name, list)| (name.clone(), list.show()));
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

    /// The first thing that is not so in `other`.
    fn difference(&self, other: &Found, in_order: bool) -> Option<String> {
        for (sink, whole) in &self.outputs {
            let found = other.outputs.get(sink).map_or(&[][..], |found| found);
            let (mut whole, mut found) = (whole.clone(), found.to_vec());
            if !in_order {
                whole.sort();
                found.sort();
            }
            let length = whole.len().max(found.len());
            let at = (0..length).find(|at| whole.get(*at) != found.get(*at));
            if let Some(at) = at {
                let show =
                    |item: Option<&String>| item.map_or("nothing".to_owned(), |i| shorten(i));
                let (expected, found) = (show(whole.get(at)), show(found.get(at)));
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
            let (step, key) = (&key.0, key::show(&key.1));
            let (expected, found) = (show(self), show(other));
            format!("state of step \"{step}\", key {key}: it is {found} and was {expected}")
        })
    }
}

/// A folder that disappears.
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
        // A folder that cannot be removed is left to whoever empties the system's folder for such things.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
