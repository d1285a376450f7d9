//! Flows and streams: the fluent face, for items of any type.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::batch::Batch;
use crate::checkpoint::{Codec, WriterId};
use crate::describe::graph::{Description, Graph, Mistake, Shared};
use crate::describe::node::{DescribedEdge, NodeId};
use crate::error::{Failure, FlowError};
use crate::policy::OnError;
use crate::push::Push;
use crate::run::build::{Outlet, Route};
use crate::run::chain::{Halves, Joined, Unread};
use crate::run::control::lock;
use crate::run::metrics::Report;
use crate::run::plan::Plan;
use crate::run::segment::arrival_root;
use crate::run::sink::Drain;
use crate::run::source::source_root;
use crate::run::{Options, Running, run_here, start};
use crate::sink::Sink;
use crate::source::Source;
use crate::step::{Context, Each, Step};

pub use crate::run::making::Making;

/// A flow: sources, steps and sinks. Described once, run any number of times.
///
/// ```
/// use millstream_flow::{Flow, Options, testing};
///
/// let flow = Flow::new("squares");
/// let seen = testing::Collected::new();
/// flow.source("numbers", testing::items(0..5))
///     .map(|n: i64| n * n)
///     .sink("out", seen.sink());
/// flow.run(Options::default())?;
/// assert_eq!(seen.take(), [0, 1, 4, 9, 16]);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
#[derive(Clone)]
pub struct Flow {
    pub(crate) graph: Shared,
}

impl Flow {
    /// An empty flow. The name stands in reports and errors.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Flow {
            graph: Graph::new(name),
        }
    }

    /// Adds a source; see [`tcp`](crate::connectors::tcp), [`files`](crate::connectors::files),
    /// [`testing`](crate::testing) and [`generator`](crate::connectors::generator).
    pub fn source<B: Batch>(&self, name: &str, source: impl Source<B>) -> Pipe<B> {
        let source: Arc<dyn Source<B>> = Arc::new(source);
        let outlet = Outlet::new();
        let mut graph = lock(&self.graph);
        let node = graph.add_source(name, &source);
        graph.roots.push(source_root(node, source, outlet.clone()));
        drop(graph);
        Pipe {
            graph: Arc::clone(&self.graph),
            node,
            outlet,
        }
    }

    /// Announces a type whose values become bytes: states that are saved with [recovery](crate::checkpoint), and items
    /// that leave their process ([`Packets::Bytes`](crate::run::Packets::Bytes)).
    ///
    /// States are those of [`stateful`](crate::KeyedStream::stateful), logic, accumulators of folds, values that are
    /// reduced, collected or joined. Items are those of streams that are merged, redistributed or exchanged by key.
    /// Numbers, text, optional values and lists of them need not be announced, nor what the engine makes of known types:
    /// a key beside a value, a value with its time, the pairs of a join.
    pub fn saves<T: Serialize + DeserializeOwned + 'static>(&self) {
        lock(&self.graph).codecs.add::<T>();
    }

    /// Announces a type whose values are written in a way of their own: each as one value of MessagePack.
    pub fn saves_by<T: 'static>(&self, codec: Codec<T>) {
        lock(&self.graph).codecs.put(codec);
    }

    /// The first mistake in the description so far, if there is one.
    ///
    /// # Errors
    /// A name used twice, a stateful step without a name, and their like.
    pub fn check(&self) -> Result<(), FlowError> {
        lock(&self.graph).check()
    }

    /// The flow's name.
    #[must_use]
    pub fn name(&self) -> String {
        lock(&self.graph).name.clone()
    }

    /// The graph: text with `{}`, and JSON or Mermaid.
    #[must_use]
    pub fn describe(&self) -> Description {
        lock(&self.graph).describe()
    }

    /// Starts the flow on its own threads.
    ///
    /// # Errors
    /// A mistake in the description. What goes wrong later is told by [`Running::wait`].
    pub fn start(&self, options: Options) -> Result<Running, FlowError> {
        start(options, |options| self.plan(options))
    }

    /// Runs the flow to its end: all sources ended, or a stop.
    ///
    /// # Errors
    /// A mistake in the description, a connector that cannot be opened, a step that fails.
    pub fn run(&self, options: Options) -> Result<Report, FlowError> {
        self.start(options)?.wait()
    }

    /// Runs the flow to its end on the thread that calls, where a debugger sees its steps; with one worker.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub fn run_here(&self, options: Options) -> Result<Report, FlowError> {
        run_here(options, |options| self.plan(options))
    }

    fn plan(&self, options: &Options) -> Result<Plan, FlowError> {
        let rehearsal = options.rehearsal.as_deref();
        lock(&self.graph).plan(rehearsal, options.recovery.is_some())
    }
}

/// A stream of batches: what the verbs of [`Stream`] and
/// [`KeyedStream`](crate::operators::keyed::KeyedStream) stand on.
pub struct Pipe<B> {
    pub(crate) graph: Shared,
    pub(crate) node: NodeId,
    pub(crate) outlet: Outlet<B>,
}

impl<B> Clone for Pipe<B> {
    fn clone(&self) -> Self {
        Pipe {
            graph: Arc::clone(&self.graph),
            node: self.node,
            outlet: self.outlet.clone(),
        }
    }
}

/// Makes the [`Route`] of each worker.
pub type MakeRoute<B> = Arc<dyn Fn() -> Box<dyn Route<B>> + Send + Sync>;

/// A stream of items of type `T`.
pub type Stream<T> = Pipe<Vec<T>>;

impl<B: Batch> Pipe<B> {
    /// Adds a step of the caller's own making; `make` is called once on each worker.
    pub fn step<O: Batch, S: Step<B, O>>(
        &self,
        kind: &'static str,
        name: &str,
        make: impl Fn(&Making<'_>) -> Result<S, FlowError> + Send + Sync + 'static,
    ) -> Pipe<O> {
        let node = lock(&self.graph).add(kind, name, vec![self.node]);
        let outlet = Outlet::<O>::new();
        let after = outlet.clone();
        self.outlet.read_by(Arc::new(move |segment| {
            let making = Making::new(node, segment);
            let mut step: Box<dyn Step<B, O>> = Box::new(make(&making)?);
            let dead_letters = making.into_dead_letters();
            segment.restore(node, &mut *step)?;
            segment.keeps_time |= step.keeps_time();
            let next = after.build(segment)?;
            let joined: Box<dyn Push<B>> = Box::new(Joined {
                node,
                step,
                output: O::default(),
                dead_letters,
                next,
            });
            Ok(joined)
        }));
        Pipe {
            graph: Arc::clone(&self.graph),
            node,
            outlet,
        }
    }

    /// Announces the sink of the dead letters of the step that this stream comes out of, so that it takes part in recovery: each
    /// letter is there once, as output is. [`Making::dead_letters`] opens it on the workers.
    pub fn dead_letters_to<D: 'static>(&self, sink: &Arc<dyn Sink<D>>) {
        lock(&self.graph).add_sink(WriterId::dead_letters(self.node), sink);
    }

    /// The same for what becomes of bad items.
    pub(crate) fn settles_by(self, on_error: &OnError) -> Self {
        if let OnError::DeadLetter(sink) = on_error {
            self.dead_letters_to(sink);
        }
        self
    }

    /// Names the step that this stream comes out of; errors and metrics show the name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        lock(&self.graph).rename(self.node, name);
        self
    }

    /// Divides the stream in two: `divide` moves what it picks from the batch to the second
    /// argument, the rest to the third.
    pub fn divide<F>(
        &self,
        name: &str,
        make: impl Fn(&Making<'_>) -> Result<F, FlowError> + Send + Sync + 'static,
    ) -> (Pipe<B>, Pipe<B>)
    where
        F: FnMut(&mut B, &mut B, &mut B, &mut Context) -> Result<(), Failure> + 'static,
    {
        self.step("branch", name, move |making| {
            let mut divide = make(making)?;
            Ok(Each(
                move |input: &mut B, (yes, no): &mut (B, B), cx: &mut Context| {
                    divide(input, yes, no, cx)
                },
            ))
        })
        .halves()
    }

    /// Brings streams together in a new operator, their items routed by `route` if there is one.
    pub fn gather(
        kind: &'static str,
        name: &str,
        streams: &[Pipe<B>],
        route: Option<MakeRoute<B>>,
    ) -> Pipe<B> {
        let first = &streams[0];
        let (own, foreign): (Vec<_>, Vec<_>) = streams
            .iter()
            .partition(|stream| Arc::ptr_eq(&stream.graph, &first.graph));
        for stream in foreign {
            lock(&stream.graph).mistake(Mistake::Foreign);
            lock(&first.graph).mistake(Mistake::Foreign);
        }
        let mut graph = lock(&first.graph);
        let inputs = own.iter().map(|stream| stream.node).collect();
        let node = graph.add(kind, name, inputs);
        graph.nodes[node].exchanged = route.is_some();
        let routed = route.is_some();
        let mut edges = Vec::with_capacity(streams.len());
        for stream in streams {
            let edge = graph.edges.len();
            graph.edges.push(DescribedEdge::of::<B>(stream.node, node));
            edges.push(edge);
            let route = route.clone();
            stream.outlet.read_by(Arc::new(move |segment| {
                segment.leave(edge, route.as_ref().map(|make| make()))
            }));
        }
        let outlet = Outlet::new();
        graph
            .roots
            .push(arrival_root(node, edges, routed, outlet.clone()));
        drop(graph);
        Pipe {
            graph: Arc::clone(&first.graph),
            node,
            outlet,
        }
    }

    /// This stream and others of the same type as one. Order is kept within each of them.
    #[must_use]
    pub fn merge(&self, others: &[Pipe<B>]) -> Pipe<B> {
        let mut streams = vec![self.clone()];
        streams.extend_from_slice(others);
        Pipe::gather("merge", "", &streams, None)
    }

    /// Ends the stream in a sink. A stream may have several sinks.
    pub fn sink(&self, name: &str, sink: impl Sink<B>) {
        let sink: Arc<dyn Sink<B>> = Arc::new(sink);
        let node = {
            let mut graph = lock(&self.graph);
            let node = graph.add("sink", name, vec![self.node]);
            graph.nodes[node].detail = sink.describe();
            graph.add_sink(WriterId::sink(node), &sink);
            node
        };
        self.outlet.read_by(Arc::new(move |segment| {
            let drain: Box<dyn Push<B>> = Box::new(Drain::open(node, &*sink, segment)?);
            Ok(drain)
        }));
    }

    /// The flow of this stream.
    #[must_use]
    pub fn flow(&self) -> Flow {
        Flow {
            graph: Arc::clone(&self.graph),
        }
    }
}

impl<A: Batch, B: Batch> Pipe<(A, B)> {
    /// The two outputs of a step as streams of their own.
    #[must_use]
    pub fn halves(&self) -> (Pipe<A>, Pipe<B>) {
        let (first, second) = (Outlet::<A>::new(), Outlet::<B>::new());
        let (after_first, after_second) = (first.clone(), second.clone());
        let step = self.node;
        self.outlet.read_by(Arc::new(move |segment| {
            let unread = Unread {
                step,
                logged: after_second.is_read(),
            };
            let (first, second) = (after_first.build(segment)?, after_second.build(segment)?);
            let halves = Halves(first, second, unread);
            let halves: Box<dyn Push<(A, B)>> = Box::new(halves);
            Ok(halves)
        }));
        let (graph, node) = (Arc::clone(&self.graph), self.node);
        (
            Pipe {
                graph: Arc::clone(&self.graph),
                node,
                outlet: first,
            },
            Pipe {
                graph,
                node,
                outlet: second,
            },
        )
    }
}

/// Batches dealt to the workers in turn.
struct InTurn {
    next: usize,
}

impl<B: Batch> Route<B> for InTurn {
    fn route(&mut self, batch: &mut B, parts: &mut [B]) -> Result<(), Failure> {
        self.next = (self.next + 1) % parts.len();
        std::mem::swap(batch, &mut parts[self.next]);
        Ok(())
    }
}

impl<B: Batch> Pipe<B> {
    /// Deals the batches to the workers in turn, so that work on them is shared. Order is lost.
    #[must_use]
    pub fn redistribute(&self) -> Pipe<B> {
        let route: MakeRoute<B> = Arc::new(|| Box::new(InTurn { next: 0 }));
        Pipe::gather("redistribute", "", std::slice::from_ref(self), Some(route))
    }
}
