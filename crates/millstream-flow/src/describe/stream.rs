//! Flows and streams, for items of any type.

use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::batch::Batch;
use crate::checkpoint::{Codec, WriterId};
use crate::dataflow::build::{Outlet, Route};
use crate::dataflow::chain::{Halves, Joined, Unread};
use crate::dataflow::push::Push;
use crate::dataflow::segment::arrival_root;
use crate::dataflow::source::source_root;
use crate::describe::gathered::{self, Gathered};
use crate::describe::graph::{Description, Graph, Mistake, Shared};
use crate::error::{Failure, FlowError};
use crate::key::Shards;
use crate::mutex::lock;
use crate::node::meeting::Order;
use crate::node::{DescribedEdge, NodeId, reads};
use crate::panics::{Owned, in_step};
use crate::policy::OnError;
use crate::sink::Sink;
use crate::source::Source;
use crate::step::{Context, Each, Step};

pub use crate::dataflow::making::Making;
pub use crate::describe::letters::RefusedLetters;

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
    /// Makes an empty flow. Reports and errors show `name`.
    ///
    /// ```
    /// let flow = millstream_flow::Flow::new("orders");
    /// assert_eq!(flow.name(), "orders");
    /// ```
    #[must_use]
    pub fn new(name: &str) -> Self {
        Flow {
            graph: Graph::new(name),
        }
    }

    /// Adds a source, and returns the stream of its batches. `name` names the source in errors, metrics and
    /// saved positions.
    ///
    /// Sources are in [`tcp`](crate::tcp), [`files`](crate::files), [`generator`](crate::generator),
    /// [`testing`](crate::testing) and other modules of this crate.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("numbers"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2])).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1, 2]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
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

    /// Names the version of the program, which the processes of a [cluster](crate::cluster) compare at their start:
    /// those of another version wait until all have the same. By default it is the digest of the executable.
    ///
    /// ```
    /// let flow = millstream_flow::Flow::new("orders");
    /// flow.version("1.4");
    /// ```
    pub fn version(&self, version: &str) {
        self.version_parts([("version".to_owned(), version.to_owned())]);
    }

    /// States the version of the program by its parts, for instance modules with the digests of their sources: a
    /// process with another one is refused with the name of the first part that differs.
    ///
    /// ```
    /// let flow = millstream_flow::Flow::new("orders");
    /// flow.version_parts([("plug-in \"prices\"".to_owned(), "7f3a".to_owned())]);
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn version_parts(&self, parts: impl IntoIterator<Item = (String, String)>) {
        lock(&self.graph).version = Some(parts.into_iter().collect());
    }

    /// Announces a type whose values are encoded: states that are saved with [recovery](crate::checkpoint), and items
    /// that leave their process (`Packets::Bytes`).
    ///
    /// States are those of [`stateful`](crate::KeyedStream::stateful), logic, accumulators of folds, values
    /// that are reduced, collected or joined. Items are those of streams that are merged, redistributed or
    /// exchanged by key. Numbers, text, optional values and lists of them need not be announced, nor types that
    /// the engine composes of announced ones: a key with a value, a value with its time, the pairs of a join.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, Recovery, testing};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Total {
    ///     amount: i64,
    /// }
    ///
    /// let (flow, out) = (Flow::new("totals"), testing::Collected::new());
    /// flow.saves::<Total>();
    /// flow.source("in", testing::items([2, 3]))
    ///     .key_by(|_| "all")
    ///     .stateful("total", |_| Total { amount: 0 }, |total, _, n: i64| {
    ///         total.amount += n;
    ///         Some(total.amount)
    ///     })
    ///     .values()
    ///     .sink("out", out.sink());
    /// let state = tempfile::tempdir().expect("a directory is made");
    /// flow.run(Options { recovery: Some(Recovery::new(state.path())), ..Options::default() })?;
    /// assert_eq!(out.take(), [2, 5]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn saves<T: Serialize + DeserializeOwned + 'static>(&self) {
        lock(&self.graph).codecs.add::<T>();
    }

    /// Announces a type whose values are encoded by `codec`, each as one value of MessagePack.
    ///
    /// For types that do not implement serde's traits; otherwise as [`saves`](Self::saves).
    ///
    /// ```
    /// use millstream_flow::checkpoint::Codec;
    /// use millstream_flow::{Flow, Options, Recovery, testing};
    ///
    /// struct Total(i64);
    ///
    /// let (flow, out) = (Flow::new("totals"), testing::Collected::new());
    /// flow.saves_by(Codec::<Total> {
    ///     save: |total, out| Ok(rmp_serde::encode::write(out, &total.0)?),
    ///     load: |from| Ok(Total(rmp_serde::decode::from_read(from)?)),
    /// });
    /// flow.source("in", testing::items([2, 3]))
    ///     .key_by(|_| "all")
    ///     .stateful("total", |_| Total(0), |total, _, n: i64| {
    ///         total.0 += n;
    ///         Some(total.0)
    ///     })
    ///     .values()
    ///     .sink("out", out.sink());
    /// let state = tempfile::tempdir().expect("a directory is made");
    /// flow.run(Options { recovery: Some(Recovery::new(state.path())), ..Options::default() })?;
    /// assert_eq!(out.take(), [2, 5]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn saves_by<T: 'static>(&self, codec: Codec<T>) {
        lock(&self.graph).codecs.put(codec);
    }

    /// Checks the description so far.
    ///
    /// # Errors
    /// The first mistake: a name that is used twice, a step with state that has no name, and others.
    ///
    /// ```
    /// use millstream_flow::{Flow, testing};
    ///
    /// let flow = Flow::new("two");
    /// for _ in 0..2 {
    ///     flow.source("in", testing::items([1])).sink("out", testing::Collected::new().sink());
    /// }
    /// assert!(flow.check().unwrap_err().to_string().contains("in"));
    /// ```
    pub fn check(&self) -> Result<(), FlowError> {
        lock(&self.graph).check()
    }

    /// Returns the name of the flow.
    ///
    /// ```
    /// let flow = millstream_flow::Flow::new("orders");
    /// assert_eq!(flow.name(), "orders");
    /// ```
    #[must_use]
    pub fn name(&self) -> String {
        lock(&self.graph).name.clone()
    }

    /// Returns the graph: text by its `Display`, and JSON or Mermaid by its methods.
    ///
    /// ```
    /// use millstream_flow::{Flow, testing};
    ///
    /// let flow = Flow::new("numbers");
    /// flow.source("in", testing::items([1])).sink("out", testing::Collected::new().sink());
    /// assert!(flow.describe().to_string().contains("out"));
    /// ```
    #[must_use]
    pub fn describe(&self) -> Description {
        lock(&self.graph).describe()
    }
}

/// A stream of batches, of any type. The verbs of [`Stream`] and
/// [`KeyedStream`](crate::operators::keyed::KeyedStream) are made of its methods.
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
#[doc(hidden)] // For the other crates of Millstream.
pub type MakeRoute<B> = Arc<dyn Fn() -> Box<dyn Route<B>> + Send + Sync>;

/// A stream of items of type `T`.
pub type Stream<T> = Pipe<Vec<T>>;

impl<B: Batch> Pipe<B> {
    /// Adds a [`Step`] of the caller's own. `make` is called once on each worker.
    ///
    /// `kind` and `name` are shown in errors and metrics. A step without state may have the name `""`.
    ///
    /// # Errors
    /// At the start of a run, the error of `make`.
    ///
    /// ```
    /// use millstream_flow::step::{Context, Step};
    /// use millstream_flow::{Failure, Flow, Options, testing};
    ///
    /// struct AddOne;
    /// impl Step<Vec<i64>, Vec<i64>> for AddOne {
    ///     fn apply(&mut self, input: &mut Vec<i64>, output: &mut Vec<i64>, _: &mut Context) -> Result<(), Failure> {
    ///         output.extend(input.drain(..).map(|n| n + 1));
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let (flow, out) = (Flow::new("sums"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2]))
    ///     .step("add_one", "", |_making| Ok(AddOne))
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [2, 3]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
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
            let name = &segment.nodes[node].name;
            let called = in_step(name);
            let making = Making::new(node, segment);
            let step: Box<dyn Step<B, O>> = Box::new(make(&making)?);
            let mut step = Owned::new(step, name, &making.control.life);
            let dead_letters = making.into_dead_letters();
            segment.restore(node, &mut **step)?;
            drop(called);
            segment.keeps_time |= step.keeps_time();
            let next = after.build(segment)?;
            let joined: Box<dyn Push<B>> = Box::new(Joined {
                published: 0,
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

    /// The output of the step that makes this stream depends on the order in which the items of a key arrive: the step
    /// is warned of where it is lost.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn in_order(self) -> Self {
        lock(&self.graph).orders.insert(self.node, Order::Arrival);
        self
    }

    /// The step that makes this stream processes its items in the order of their times: it is not warned of where their
    /// order of arrival is lost.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn by_time(self) -> Self {
        lock(&self.graph).orders.insert(self.node, Order::Times);
        self
    }

    /// Adds to the description of the step that makes this stream what its saved state depends on besides its kind.
    /// State that was saved with another detail is refused.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn detailed(self, detail: &str) -> Self {
        let mut graph = lock(&self.graph);
        let clock = if graph.nodes[self.node].reads.times {
            reads::clock(&graph.nodes, self.node)
        } else {
            String::new()
        };
        let parts = [detail, &clock];
        let known: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        graph.nodes[self.node].detail = known.join(", ");
        drop(graph);
        self
    }

    /// The saved state of the step that makes this stream depends on the kind of time of its items.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn timed(self) -> Self {
        let mut graph = lock(&self.graph);
        let node = &mut graph.nodes[self.node];
        node.reads.times = true;
        let detail = std::mem::take(&mut node.detail);
        drop(graph);
        self.detailed(&detail)
    }

    /// The step that makes this stream reads the field of this name: of a step with state its value, of others a key or
    /// a time. State that was saved of another field is refused.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn reads(&self, field: &str) {
        lock(&self.graph).nodes[self.node].reads.field = Some(field.to_owned());
    }

    /// The step that makes this stream joins these streams, each of them in parts. State that was saved where they had
    /// other sides is refused.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn joins(&self, sides: Vec<Vec<usize>>) {
        lock(&self.graph).nodes[self.node].reads.sides = sides;
    }

    /// Returns the node that makes this stream, for [`joins`](Self::joins).
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Announces the sink of the dead letters of the step that this stream comes out of, so that recovery
    /// includes it: each letter is written once, as output is. [`Making::dead_letters`] opens the sink on the
    /// workers.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use millstream_flow::sink::Sink;
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("letters"), testing::Collected::new());
    /// let letters: Arc<dyn Sink<Vec<i64>>> = Arc::new(testing::Collected::new().sink());
    /// let stream = flow.source("in", testing::items([1])).map(|n: i64| n);
    /// stream.dead_letters_to(&letters);
    /// stream.sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn dead_letters_to<D: 'static>(&self, sink: &Arc<dyn Sink<D>>) {
        lock(&self.graph).add_sink(WriterId::dead_letters(self.node), sink);
    }

    /// Announces the sink of dead letters of `on_error`, if it has one.
    pub(crate) fn settles_by(self, on_error: &OnError) -> Self {
        if let OnError::DeadLetter(sink) = on_error {
            self.dead_letters_to(sink);
        }
        self
    }

    /// Names the step that this stream comes out of. Errors and metrics show the name.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("named"), testing::Collected::new());
    /// flow.source("in", testing::items([1])).map(|n: i64| n * 10).named("tens").sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert!(flow.describe().to_string().contains("tens"));
    /// assert_eq!(out.take(), [10]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        lock(&self.graph).rename(self.node, name);
        self
    }

    /// Divides the stream in two by a function on batches, which `make` makes on each worker.
    ///
    /// The function moves the items that it chooses from its first argument to the second, and the rest to
    /// the third. `name` is shown in errors and metrics.
    ///
    /// # Errors
    /// At the start of a run, the error of `make`. A failure that the function returns ends the run.
    ///
    /// ```
    /// use millstream_flow::step::Context;
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("ends"), testing::Collected::new());
    /// let (first, _rest) = flow.source("in", testing::items([1, 2, 3])).divide("first", |_making| {
    ///     Ok(|batch: &mut Vec<i64>, yes: &mut Vec<i64>, no: &mut Vec<i64>, _: &mut Context| {
    ///         for n in batch.drain(..) {
    ///             if n == 1 { yes.push(n) } else { no.push(n) }
    ///         }
    ///         Ok(())
    ///     })
    /// });
    /// first.sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
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

    /// Joins streams to one in a new operator. `route` chooses the worker of each item; without it, items
    /// stay on their worker.
    ///
    /// `streams` has at least one stream. `kind` and `name` are shown in errors and metrics.
    ///
    /// # Panics
    /// When `streams` is empty.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::ForeignStream`] when one of them belongs to another flow.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, Pipe, testing};
    ///
    /// let (flow, out) = (Flow::new("both"), testing::Collected::new());
    /// let both = ["left", "right"].map(|name| flow.source(name, testing::items([7])));
    /// Pipe::gather("gather", "", &both, None).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [7, 7]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[doc(hidden)] // For the other crates of Millstream.
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

    /// Joins this stream and others of the same type to one. The order within each of them is kept.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::ForeignStream`] when one of them belongs to another flow.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("both"), testing::Collected::new());
    /// let [left, right] = ["left", "right"].map(|name| flow.source(name, testing::items([7])));
    /// left.merge(&[right]).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [7, 7]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn merge(&self, others: &[Pipe<B>]) -> Pipe<B> {
        let mut streams = vec![self.clone()];
        streams.extend_from_slice(others);
        Pipe::gather("merge", "", &streams, None)
    }

    /// Ends the stream in a sink. `name` names the sink in errors, metrics and saved positions. A stream may
    /// have several sinks.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("numbers"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2])).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1, 2]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn sink(&self, name: &str, sink: impl Sink<B>) {
        self.end(name, Arc::new(sink), false, None);
    }

    /// Ends the stream in a sink as [`sink`](Self::sink) does, with one writer: all workers of all processes send
    /// their items to the first worker of process 0, and the sink is opened there only. So several processes write
    /// one file. The order of the items of each worker is kept.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("numbers"), testing::Collected::new());
    /// flow.source("in", testing::items(0..10)).redistribute().sink_gathered("out", out.sink());
    /// flow.run(Options { workers: 2, ..Options::default() })?;
    /// assert_eq!(out.take().len(), 10);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn sink_gathered(&self, name: &str, sink: impl Sink<B>) {
        self.end(name, Arc::new(sink), true, None);
    }

    /// Ends the stream in a sink as [`sink`](Self::sink) does, or as [`sink_gathered`](Self::sink_gathered) if it is
    /// `gathered`. Records that its destination refuses are skipped, and become dead letters: each is written to the
    /// sink of `letters` once, in the epoch in which it is refused; at the end of a run those that are refused after
    /// its last epoch.
    ///
    /// [`try_sink`](crate::Stream::try_sink) is made of it.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn sink_with_letters(
        &self,
        name: &str,
        sink: impl Sink<B>,
        gathered: bool,
        letters: &RefusedLetters,
    ) {
        sink.skip_refused(true);
        self.end(name, Arc::new(sink), gathered, Some(letters));
    }

    fn end(
        &self,
        name: &str,
        sink: Arc<dyn Sink<B>>,
        gathered: bool,
        letters: Option<&RefusedLetters>,
    ) {
        let mut graph = lock(&self.graph);
        let node = graph.add("sink", name, vec![self.node]);
        graph.nodes[node].detail = sink.describe();
        graph.nodes[node].exchanged = gathered;
        graph.add_sink(WriterId::sink(node), &sink);
        if let Some(letters) = letters {
            letters.announce(&mut graph, node);
            graph.letters.push((node, Arc::clone(&letters.letters)));
        }
        let letters = letters.map(|letters| Arc::clone(&letters.letters));
        if gathered || sink.in_one_process() {
            let at = (self.node, node);
            let gathered = Gathered::new(at, gathered, &sink, letters.as_ref());
            graph.gathered.push(gathered);
        }
        drop(graph);
        self.outlet.read_by(gathered::end(node, sink, letters));
    }

    /// Returns the flow of this stream.
    ///
    /// ```
    /// use millstream_flow::{Flow, testing};
    ///
    /// let flow = Flow::new("numbers");
    /// let stream = flow.source("in", testing::items([1]));
    /// assert_eq!(stream.flow().name(), "numbers");
    /// ```
    #[must_use]
    pub fn flow(&self) -> Flow {
        Flow {
            graph: Arc::clone(&self.graph),
        }
    }
}

impl<A: Batch, B: Batch> Pipe<(A, B)> {
    /// Divides the two outputs of a step into two streams. The items of one that no step reads are dropped.
    ///
    /// ```
    /// use millstream_flow::step::{Context, Step};
    /// use millstream_flow::{Failure, Flow, Options, testing};
    ///
    /// type Both = (Vec<i64>, Vec<String>);
    /// struct TensAndTexts;
    /// impl Step<Vec<i64>, Both> for TensAndTexts {
    ///     fn apply(&mut self, input: &mut Vec<i64>, output: &mut Both, _: &mut Context) -> Result<(), Failure> {
    ///         output.1.extend(input.iter().map(i64::to_string));
    ///         output.0.extend(input.drain(..).map(|n| n * 10));
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let flow = Flow::new("two");
    /// let both = flow.source("in", testing::items([1, 2])).step("both", "", |_making| Ok(TensAndTexts));
    /// let (tens, texts) = both.halves();
    /// let (numbers, words) = (testing::Collected::new(), testing::Collected::new());
    /// tens.sink("numbers", numbers.sink());
    /// texts.sink("words", words.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(numbers.take(), [10, 20]);
    /// assert_eq!(words.take(), ["1", "2"]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn halves(&self) -> (Pipe<A>, Pipe<B>) {
        let first = Outlet::<A>::new();
        let second = Outlet::<B>::new();
        let after_first = first.clone();
        let after_second = second.clone();
        let step = self.node;
        self.outlet.read_by(Arc::new(move |segment| {
            let unread = Unread {
                step,
                is_read: after_second.is_read(),
                logged: false,
            };
            let first = after_first.build(segment)?;
            let second = after_second.build(segment)?;
            let halves = Halves(first, second, unread);
            let halves: Box<dyn Push<(A, B)>> = Box::new(halves);
            Ok(halves)
        }));
        let graph = Arc::clone(&self.graph);
        let node = self.node;
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
    fn route(&mut self, batch: &mut B, parts: &mut [B], _: Shards) -> Result<(), Failure> {
        self.next = (self.next + 1) % parts.len();
        std::mem::swap(batch, &mut parts[self.next]);
        Ok(())
    }
}

impl<B: Batch> Pipe<B> {
    /// Sends the batches to the workers in turn, so that all workers share what follows. The order of the
    /// items is lost.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("shared"), testing::Collected::new());
    /// flow.source("in", testing::items(0..100)).redistribute().map(|n: i64| n + 1).sink("out", out.sink());
    /// flow.run(Options { workers: 2, ..Options::default() })?;
    /// assert_eq!(out.take().iter().sum::<i64>(), 5050);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn redistribute(&self) -> Pipe<B> {
        let route: MakeRoute<B> = Arc::new(|| Box::new(InTurn { next: 0 }));
        Pipe::gather("redistribute", "", std::slice::from_ref(self), Some(route))
    }
}
