//! `collect`: lists of items, limited by number and by waiting time.
//!
//! Invariant: each item is in one list, in the order of arrival.
//!
//! ```
//! use millstream_flow::{Flow, Options, testing};
//!
//! let flow = Flow::new("lists");
//! let out = testing::Collected::new();
//! flow.source("numbers", testing::items(0..5)).collect("pairs", 2, None).sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [vec![0, 1], vec![2, 3], vec![4]]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::time::Duration;

use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codec, Codecs, StateCodec, pack};
use crate::describe::graph::Mistake;
use crate::describe::stream::Stream;
use crate::error::{Cause, Failure};
use crate::key::{Key, key_of_worker};
use crate::mutex::lock;
use crate::operators::keyed::KeyedStream;
use crate::saved::raw::{RAW, Raw, read};
use crate::state::{Growing, KeyLogic, KeyedStep, Moment, Outputs};
use crate::step::{Context, Stateful, Step};
use crate::time::{BEFORE_ALL, NEVER, Timed, nanos};

/// The list of a key that is not emitted yet.
pub struct List<V> {
    values: Growing<V>,
    /// When it is emitted even if it is not full; processing time.
    due: i64,
}

impl<V> List<V> {
    fn empty() -> Self {
        List {
            values: Growing::default(),
            due: NEVER,
        }
    }
}

/// Lists as the logic of a key; `make` makes the output from a list.
pub struct Collecting<V, F> {
    most: usize,
    wait: Option<i64>,
    make: F,
    types: std::marker::PhantomData<fn(V)>,
}

impl<V, F> Collecting<V, F> {
    /// Creates lists of at most `most` values; `wait` nanoseconds of processing time after its first value a
    /// list is emitted even if it is not full.
    pub fn new(most: usize, wait: Option<i64>, make: F) -> Self {
        Collecting {
            most,
            wait,
            make,
            types: std::marker::PhantomData,
        }
    }

    fn emit<K, O, E>(
        &self,
        key: &K,
        list: &mut List<V>,
        out: &mut impl Outputs<K, O, V>,
    ) -> Result<(), E>
    where
        F: Fn(Vec<V>) -> Result<O, E>,
    {
        list.due = NEVER;
        if list.values.is_empty() {
            return Ok(());
        }
        let value = (self.make)(std::mem::take(list.values.change()))?;
        let output = Timed {
            time: BEFORE_ALL,
            watermark: BEFORE_ALL,
            value,
        };
        out.result(key, output);
        Ok(())
    }
}

impl<K, V, O, E, F> KeyLogic<K> for Collecting<V, F>
where
    V: 'static,
    O: 'static,
    E: 'static,
    F: Fn(Vec<V>) -> Result<O, E> + 'static,
{
    type State = List<V>;
    type In = V;
    type Out = O;
    type Error = E;

    fn open(&mut self, _: &K) -> Result<List<V>, E> {
        Ok(List::empty())
    }

    fn on_item(
        &mut self,
        key: &K,
        list: &mut List<V>,
        item: Timed<V>,
        at: Moment,
        out: &mut impl Outputs<K, O, V>,
    ) -> Result<(), E> {
        if list.values.is_empty()
            && let Some(wait) = self.wait
        {
            list.due = at.processing.saturating_add(wait);
        }
        list.values.push(item.value);
        if list.values.len() >= self.most {
            self.emit(key, list, out)?;
        }
        Ok(())
    }

    fn on_due(
        &mut self,
        key: &K,
        list: &mut List<V>,
        until: Moment,
        out: &mut impl Outputs<K, O, V>,
    ) -> Result<(), E> {
        if list.due <= until.processing {
            self.emit(key, list, out)?;
        }
        Ok(())
    }

    fn on_end(
        &mut self,
        key: &K,
        list: &mut List<V>,
        _: Moment,
        out: &mut impl Outputs<K, O, V>,
    ) -> Result<(), E> {
        self.emit(key, list, out)
    }

    fn ends_once(&self) -> bool {
        true
    }

    fn next(&self, list: &List<V>) -> Moment {
        Moment {
            processing: list.due,
            ..Moment::NEVER
        }
    }

    fn is_empty(&self, list: &List<V>) -> bool {
        list.values.is_empty()
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<List<V>>, Cause> {
        Ok(Box::new(ListCodec(codecs.get::<V>()?)))
    }
}

/// The codec of a list: `[due, values...]`; values that are added are such a list too.
struct ListCodec<V>(Codec<V>);

impl<V> ListCodec<V> {
    fn save_values(&self, due: i64, values: &[V], out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(1 + values.len(), out);
        pack::integer(due, out);
        values.iter().try_for_each(|value| self.0.save(value, out))
    }
}

impl List<Raw> {
    /// Reads a list without its types: when it is emitted, and its values.
    pub(crate) fn read(bytes: &[u8]) -> Result<(i64, Growing<Raw>), Cause> {
        let list = read(&ListCodec(RAW), bytes)?;
        Ok((list.due, list.values))
    }
}

impl<V> StateCodec<List<V>> for ListCodec<V> {
    fn save(&self, list: &List<V>, out: &mut Vec<u8>) -> Result<(), Cause> {
        list.values.set_saved();
        self.save_values(list.due, &list.values, out)
    }
    fn load(&self, from: &mut &[u8]) -> Result<List<V>, Cause> {
        let mut list = List::empty();
        self.load_added(&mut list, from)?;
        Ok(list)
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("list");
    }
    fn save_added(&self, list: &List<V>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        let Some(added) = list.values.added() else {
            return Ok(false);
        };
        list.values.set_saved();
        self.save_values(list.due, added, out).map(|()| true)
    }
    fn load_added(&self, list: &mut List<V>, from: &mut &[u8]) -> Result<(), Cause> {
        let members = 1..pack::take_list(from)?;
        list.due = pack::take_integer(from)?;
        for _ in members {
            list.values.push(self.0.load(from)?);
        }
        list.values.set_saved();
        Ok(())
    }
}

/// Returns a list unchanged.
type Unchanged<V> = fn(Vec<V>) -> Result<Vec<V>, Cause>;

impl<K: Key, V: Data> KeyedStream<K, V> {
    /// Collects the values of each key in lists of at most `most`.
    ///
    /// `most` is at least 1. `wait` of processing time after its first value a list is passed on as it is;
    /// without `wait`, when it is full or the input has ended. `name` is the name of the step in errors,
    /// metrics and saved state. With recovery the type of the values is [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty, and
    /// [`FlowError::Usage`](crate::FlowError::Usage) when `most` is 0.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("pairs"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .collect("pairs", 2, None)
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", vec![1, 3]), ("b", vec![2])]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn collect(
        &self,
        name: &str,
        most: usize,
        wait: Option<Duration>,
    ) -> KeyedStream<K, Vec<V>> {
        if most == 0 {
            self.mistake(Mistake::Usage("a list holds 1 item or more"));
        }
        let called = name.to_owned();
        let lists = self.keep("collect", name, move || {
            KeyedStep::new(&called, true, collecting(most, wait))
        });
        lists.in_order()
    }
}

fn collecting<V>(most: usize, wait: Option<Duration>) -> Collecting<V, Unchanged<V>> {
    Collecting::new(most, wait.map(nanos), Ok)
}

impl<V: Data> Stream<V> {
    /// Collects items in lists of at most `most`. Each worker makes lists of its own.
    ///
    /// `most` is at least 1. `wait` of processing time after its first item a list is passed on as it is;
    /// without `wait`, when it is full or the input has ended. `name` is the name of the step in errors,
    /// metrics and saved state. With recovery the type of the items is [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty, and
    /// [`FlowError::Usage`](crate::FlowError::Usage) when `most` is 0.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("pairs"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2, 3]))
    ///     .collect("pairs", 2, None)
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [vec![1, 2], vec![3]]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn collect(&self, name: &str, most: usize, wait: Option<Duration>) -> Stream<Vec<V>> {
        let mut graph = lock(&self.graph);
        graph.demand_name("collect", name);
        if most == 0 {
            graph.mistake(Mistake::Usage("a list holds 1 item or more"));
        }
        drop(graph);
        let called = name.to_owned();
        let lists = self.step("collect", name, move |making| {
            Ok(ByWorker {
                key: key_of_worker(making.worker, making.shards),
                step: KeyedStep::new(&called, true, collecting(most, wait)),
                keyed: Vec::new(),
                lists: Vec::new(),
            })
        });
        lists.in_order()
    }
}

/// The lists of a stream without keys: all items of a worker have one key.
struct ByWorker<V, S> {
    key: u64,
    step: S,
    keyed: Vec<(u64, V)>,
    lists: Vec<(u64, Vec<V>)>,
}

impl<V, S> ByWorker<V, S> {
    fn emit(&mut self, output: &mut Vec<Vec<V>>) {
        output.extend(self.lists.drain(..).map(|(_, list)| list));
    }
}

impl<V: Data, S: Step<Vec<(u64, V)>, Vec<(u64, Vec<V>)>>> Step<Vec<V>, Vec<Vec<V>>>
    for ByWorker<V, S>
{
    fn apply(
        &mut self,
        input: &mut Vec<V>,
        output: &mut Vec<Vec<V>>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.keyed
            .extend(input.drain(..).map(|value| (self.key, value)));
        self.step.apply(&mut self.keyed, &mut self.lists, cx)?;
        self.emit(output);
        Ok(())
    }
    fn keeps_time(&self) -> bool {
        true
    }
    fn tick(&mut self, output: &mut Vec<Vec<V>>, cx: &mut Context) -> Result<(), Failure> {
        self.step.tick(&mut self.lists, cx)?;
        self.emit(output);
        Ok(())
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        self.step.stateful()
    }
    fn drain(&mut self, output: &mut Vec<Vec<V>>, cx: &mut Context) -> Result<(), Failure> {
        self.step.drain(&mut self.lists, cx)?;
        self.emit(output);
        Ok(())
    }
    fn end(&mut self, output: &mut Vec<Vec<V>>, cx: &mut Context) -> Result<(), Failure> {
        self.step.end(&mut self.lists, cx)?;
        self.emit(output);
        Ok(())
    }
}
