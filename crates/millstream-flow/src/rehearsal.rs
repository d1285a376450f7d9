//! Rehearsals: runs of a flow in which replacements are used for its sources and sinks, so that no external
//! system is used.
//!
//! A replacement is found by the name of the source or sink and the type of its batches. If the replacement has
//! bytes only, the flow's own decoder or encoder is used with it: a source that can be read
//! [over](Source::over) other frames, a sink that can be written [over](Sink::over) another sink of frames.
//!
//! Invariant: a rehearsal opens no sink of the flow, including dead letters, and no source that has a
//! replacement. A sink without a replacement is an error before anything runs.
//!
//! ```
//! use millstream_flow::{Flow, Options, Rehearsal, codec, tcp, testing};
//!
//! let flow = Flow::new("shout");
//! flow.source("words", codec::decode(tcp::listen("127.0.0.1:7001"), codec::text))
//!     .map(|word| word.to_uppercase())
//!     .sink("out", codec::encode(tcp::send_to("127.0.0.1:7002"), codec::display));
//!
//! let out = testing::Collected::<String>::new();
//! let rehearsal = Rehearsal::new()
//!     .source("words", testing::items(["to".to_owned(), "be".to_owned()]))
//!     .sink("out", out.sink());
//! let mut options = Options::default();
//! options.rehearsal = Some(rehearsal.into());
//! flow.run(options)?;
//! assert_eq!(out.take(), ["TO".to_owned(), "BE".to_owned()]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use crate::batch::Kind;
use crate::checkpoint::{CommitNotice, Sources, dead_letters_of};
use crate::clock::Clock;
use crate::error::{Cause, FlowError};
use crate::framing::Frames;
use crate::mutex::lock;
use crate::node::{Node, open_error};
use crate::replay::{Conductor, Replay, Stage};
use crate::sink::Sink;
use crate::source::Source;

type AnyBox = Box<dyn Any + Send + Sync>;
/// Makes the replacement of a sink from its name.
type MakeSink<B> = Arc<dyn Fn(&str) -> Result<Arc<dyn Sink<B>>, Cause> + Send + Sync>;

/// The clock of a replay, and the channel for the parts of epochs.
pub(crate) type ReplayRun = (Arc<dyn Clock>, Sender<CommitNotice>);

/// The replacements of a flow's sources and sinks in one run.
#[derive(Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Rehearsal {
    /// Each an `Arc<dyn Source<B>>`, by name and by `B`.
    sources: HashMap<(String, TypeId), AnyBox>,
    /// Each an `Arc<dyn Sink<B>>`, including those that `others` made.
    sinks: Mutex<HashMap<(String, TypeId), AnyBox>>,
    /// Each a `MakeSink<B>`.
    others: HashMap<TypeId, AnyBox>,
    /// The recorded input, if it is a replay.
    stage: Option<Arc<Stage>>,
    conductor: Mutex<Option<Conductor>>,
    copies: bool,
}

impl Rehearsal {
    /// Creates a rehearsal without replacements: sources are those of the flow, and it must have no sink.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces the source of this name by `source`.
    #[must_use]
    pub fn source<B: 'static>(mut self, name: &str, source: impl Source<B>) -> Self {
        let source: Arc<dyn Source<B>> = Arc::new(source);
        let key = (name.to_owned(), TypeId::of::<B>());
        self.sources.insert(key, Box::new(source));
        self
    }

    /// Replaces the sink of this name by `sink`. Dead letters of a step go to `STEP.dead_letters`.
    #[must_use]
    pub fn sink<B: 'static>(self, name: &str, sink: impl Sink<B>) -> Self {
        let sink: Arc<dyn Sink<B>> = Arc::new(sink);
        let key = (name.to_owned(), TypeId::of::<B>());
        lock(&self.sinks).insert(key, Box::new(sink));
        self
    }

    /// Replaces each sink that has no replacement of its own by the result of `make` for its name. Sinks of
    /// frames replace all sinks whose output is bytes.
    #[must_use]
    pub fn other_sinks<B: 'static, S: Sink<B>>(
        mut self,
        make: impl Fn(&str) -> Result<S, Cause> + Send + Sync + 'static,
    ) -> Self {
        let make: MakeSink<B> = Arc::new(move |name| Ok(Arc::new(make(name)?)));
        self.others.insert(TypeId::of::<B>(), Box::new(make));
        self
    }

    /// Passes copies of all items from step to step, made by the codecs of their batches: a step that changes an item
    /// which another one has too gives other results then.
    #[must_use]
    pub fn copies(mut self) -> Self {
        self.copies = true;
        self
    }

    /// Whether steps receive copies.
    pub(crate) fn makes_copies(&self) -> bool {
        self.copies
    }

    /// Feeds all sources with recorded input, at the times at which it was recorded. A rehearsal with a replay
    /// runs once.
    ///
    /// # Errors
    /// The input does not exist or is damaged.
    pub fn replay(mut self, replay: &Replay) -> Result<Self, FlowError> {
        let (stage, conductor) = replay.open()?;
        self.stage = Some(stage);
        *lock(&self.conductor) = Some(conductor);
        Ok(self)
    }

    /// Begins a run with `operators` operators on all workers. Returns the clock of a replay, and the channel
    /// for the parts of epochs.
    pub(crate) fn begin(
        &self,
        flow: &str,
        nodes: &[Node],
        operators: usize,
    ) -> Result<Option<ReplayRun>, FlowError> {
        let Some(stage) = &self.stage else {
            return Ok(None);
        };
        let is_there = |name: &str| nodes.iter().any(|n| n.kind == "source" && n.name == name);
        if let Some(name) = stage.sources().find(|name| !is_there(name)) {
            return Err(FlowError::Usage(format!(
                "flow \"{flow}\" has no source \"{name}\", whose input the replay has"
            )));
        }
        match &mut *lock(&self.conductor) {
            Some(conductor) => Ok(Some(conductor.begin(operators))),
            None => Err(FlowError::Usage("a replay runs once".to_owned())),
        }
    }

    /// Takes the conductor, for the first worker.
    pub(crate) fn conductor(&self) -> Option<Conductor> {
        lock(&self.conductor).take()
    }

    /// Returns the recorded input of a source.
    fn recorded<B: 'static>(
        &self,
        stage: &Arc<Stage>,
        node: &Node,
        own: &Arc<dyn Source<B>>,
    ) -> Result<Arc<dyn Source<B>>, Cause> {
        let Some((frames, kind)) = stage.source(&node.name) else {
            let others: Vec<&str> = stage.sources().collect();
            let others = others.join(", ");
            return Err(format!(
                "the replay has no input of it, only of {others}; make it durable, or name a journal for it"
            )
            .into());
        };
        let same = (kind == Kind::Bytes).then(|| (&frames as &dyn Any).downcast_ref());
        if let Some(frames) = same.flatten() {
            return Ok(Arc::clone(frames));
        }
        let over = own.over(frames, kind);
        over.ok_or_else(|| {
            format!("its items cannot be made of {kind:?}, as they were recorded").into()
        })
    }

    /// Returns the replacement of a source, if it has one.
    pub(crate) fn source_for<B: 'static>(
        &self,
        node: &Node,
        own: &Arc<dyn Source<B>>,
    ) -> Result<Option<Arc<dyn Source<B>>>, FlowError> {
        let key = |id| (node.name.clone(), id);
        if let Some(held) = self.sources.get(&key(TypeId::of::<B>())) {
            return Ok(held.downcast_ref::<Arc<dyn Source<B>>>().cloned());
        }
        if let Some(stage) = &self.stage {
            let recorded = self.recorded(stage, node, own);
            return recorded.map(Some).map_err(|cause| open_error(node, cause));
        }
        let frames = self.sources.get(&key(TypeId::of::<Frames>()));
        let frames = frames.and_then(|held| held.downcast_ref::<Arc<dyn Source<Frames>>>());
        if let Some(fed) = frames.and_then(|frames| own.over(Arc::clone(frames), Kind::Bytes)) {
            return Ok(Some(fed));
        }
        if self.sources.keys().any(|(name, _)| *name == node.name) {
            Err(open_error(node, other_type::<B>("source")))
        } else {
            Ok(None)
        }
    }

    /// Returns the replacement of a sink.
    pub(crate) fn sink_for<B: 'static>(
        &self,
        name: &str,
        own: &dyn Sink<B>,
    ) -> Result<Arc<dyn Sink<B>>, Cause> {
        if let Some(sink) = self.made(name)? {
            return Ok(sink);
        }
        let frames = self.made::<Frames>(name)?;
        let over = frames.and_then(|frames| own.over(frames));
        over.ok_or_else(|| other_type::<B>("sink"))
    }

    /// Returns the replacement of the sink of the dead letters of a step.
    ///
    /// # Errors
    /// There is none for batches of this type.
    pub fn dead_letters<B: 'static>(
        &self,
        step: &str,
        own: &dyn Sink<B>,
    ) -> Result<Arc<dyn Sink<B>>, Cause> {
        self.sink_for(&dead_letters_of(step), own)
    }

    /// Returns a replacement of exactly this type.
    fn made<B: 'static>(&self, name: &str) -> Result<Option<Arc<dyn Sink<B>>>, Cause> {
        let mut sinks = lock(&self.sinks);
        let key = (name.to_owned(), TypeId::of::<B>());
        if let Some(held) = sinks.get(&key) {
            return Ok(held.downcast_ref::<Arc<dyn Sink<B>>>().cloned());
        }
        let make = self.others.get(&key.1);
        let Some(make) = make.and_then(|held| held.downcast_ref::<MakeSink<B>>()) else {
            return Ok(None);
        };
        let sink = make(name)?;
        sinks.insert(key, Box::new(Arc::clone(&sink)));
        Ok(Some(sink))
    }

    /// Returns the sources without replacements.
    pub(crate) fn left(&self, nodes: &[Node], sources: &Sources) -> Sources {
        let replaced = |name: &str| {
            self.stage.is_some() || self.sources.keys().any(|(replaced, _)| replaced == name)
        };
        let left = sources
            .iter()
            .filter(|(node, _)| !replaced(&nodes[*node].name));
        left.cloned().collect()
    }
}

fn other_type<B>(what: &str) -> Cause {
    let batch = type_name::<B>();
    format!("it has no {what} of {batch} as a replacement in this rehearsal").into()
}
