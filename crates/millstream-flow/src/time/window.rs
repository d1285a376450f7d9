//! Windows: the items of a key, grouped by time or by number, and one result for each group.
//!
//! Invariant: what a window holds does not depend on the size of batches, on the number of workers or
//! on which partition was faster. An item is in those of its windows that have not closed by the watermark
//! of its own partition, and goes to the `late` stream once for each that has:
//!
//! - of tumbling windows that is its one window, of sliding ones it may be some of several;
//! - of sessions, it is late when it lies before the watermark: nobody can say any more whose session it was;
//! - windows that count have no late items.
//!
//! A window closes when the watermark has come to its end, a session when the watermark is past it: an item at
//! the end of a session, exactly one gap after its last, belongs to it. When all windows of a key have closed the key
//! is forgotten; that an item is late is known from the watermark, which all keys share.
//!
//! Sliding windows share *panes* (Li et al., SIGMOD Record 2005): an item is added to one pane, and the
//! panes of a window are merged when it closes.
//!
//! ```
//! use std::time::Duration;
//! use millstream_flow::{EventTime, Flow, Options, testing, window::Window};
//!
//! let flow = Flow::new("per minute");
//! let out = testing::Collected::new();
//! let second = 1_000_000_000i64;
//! let minutes = flow.source("clicks", testing::items([1, 2, 61, 200].map(|s| s * second)))
//!     .event_time(|time| *time, EventTime::default())
//!     .key_by(|_| "all")
//!     .window("minutes", Window::tumbling(Duration::from_secs(60)))
//!     .count();
//! minutes.results.values().map(move |count| (count.start / second, count.value.value)).sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [(0, 2), (60, 1), (180, 1)]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

mod aggregate;
mod aligned;
mod chosen;
mod counted;
mod group;
mod item;
mod line;
mod logic;
mod ordered;
mod per_key;
mod session;

use std::sync::Arc;
use std::time::Duration;

pub use aggregate::{Aggregate, Bounds, Windowed};
pub use chosen::Windower;
pub use item::Choose;
pub use logic::WindowLogic;
pub use ordered::{InOrder, Kept};
pub use per_key::{ByKey, PerKey};

use crate::batch::Data;
use crate::describe::graph::Mistake;
use crate::error::Cause;
use crate::key::Key;
use crate::operators::keyed::KeyedStream;
use crate::run::control::lock;
use crate::state::KeyedStep;
use crate::time::{Timed, nanos};

/// How the items of a key are grouped. Lengths are in nanoseconds inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub(crate) kind: Kind,
    pub(crate) early: u64,
    pub(crate) ordered: bool,
    pub(crate) per_key: Option<PerKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Windows of `length`, one beginning `every`, at `offset` and multiples of `every` from it.
    Aligned {
        length: i64,
        every: i64,
        offset: i64,
    },
    /// Items with at most `gap` between them.
    Session { gap: i64 },
    /// So many items.
    Count { items: u64 },
}

impl Window {
    fn of(kind: Kind) -> Self {
        Window {
            kind,
            early: 0,
            ordered: false,
            per_key: None,
        }
    }

    /// Windows of one length, one after the other. They begin at the epoch and multiples of the length.
    #[must_use]
    pub fn tumbling(length: Duration) -> Self {
        Window::sliding(length, length)
    }

    /// Windows of one length, one beginning `every` so often: they overlap.
    #[must_use]
    pub fn sliding(length: Duration, every: Duration) -> Self {
        Window::of(Kind::Aligned {
            length: nanos(length),
            every: nanos(every),
            offset: 0,
        })
    }

    /// Items with at most `gap` between one and the next: two that are exactly `gap` apart are of one session.
    /// A session ends `gap` after its last item.
    #[must_use]
    pub fn session(gap: Duration) -> Self {
        Window::of(Kind::Session { gap: nanos(gap) })
    }

    /// So many items, one group after the other.
    #[must_use]
    pub fn count(items: u64) -> Self {
        Window::of(Kind::Count { items })
    }

    /// Lets tumbling and sliding windows begin so much later.
    #[must_use]
    pub fn offset(mut self, by: Duration) -> Self {
        if let Kind::Aligned { offset, .. } = &mut self.kind {
            *offset = nanos(by);
        }
        self
    }

    /// Gives the result so far after every so many items of a window (of a pane, where windows slide).
    /// The result at the end comes all the same.
    #[must_use]
    pub fn early(mut self, items: u64) -> Self {
        self.early = items;
        self
    }

    /// Hands the items of a window to the aggregate in the order of their times, those of one time as they came: for first,
    /// last and differences. Unless told so it is handed them as they come.
    ///
    /// What it costs: the items are kept until their window closes, in memory and in the saved state, instead of one
    /// accumulator, so that in a run with recovery the type of the items is announced. They are sorted when the window closes. The
    /// aggregate works on a whole window at once then, once for each window that slides, and again for each early result.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, testing, window::Window};
    ///
    /// let flow = Flow::new("first price of each ten");
    /// let out = testing::Collected::new();
    /// let ten = Duration::from_nanos(10);
    /// flow.source("prices", testing::items([(3i64, 'b'), (1, 'a'), (12, 'c')]))
    ///     .event_time(|price| price.0, EventTime::default().lateness(ten))
    ///     .key_by(|_| "all")
    ///     .window("first", Window::tumbling(ten).ordered())
    ///     .reduce(|first, _| first)
    ///     .results.values().map(|first| first.value.value.1).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), ['a', 'c']);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Judges what is late, and closes windows, by a watermark of each key, `lateness` behind the latest item of the key: an item
    /// is late only if its own key has seen later ones. Unless told so that of the partition counts.
    ///
    /// `patience`: the watermark of a key that is silent follows that of the partitions, so far behind it. Without, its
    /// windows stay open until the input ends, and something is kept of each key that ever was. What is late for a key then
    /// depends on the order in which its items come, where they come from several partitions. Results come when their key has
    /// seen later items, so that windows or joins behind them may find them late.
    #[must_use]
    pub fn per_key(mut self, lateness: Duration, patience: Option<Duration>) -> Self {
        self.per_key = Some(PerKey::new(lateness, patience));
        self
    }

    /// How the watermark of a key follows, if there is one.
    #[must_use]
    pub fn by_key(&self) -> Option<PerKey> {
        self.per_key
    }

    /// What is wrong with it.
    ///
    /// # Errors
    /// A length of nothing, or windows with gaps between them.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.kind {
            Kind::Aligned { length, every, .. } if length <= 0 || every <= 0 => {
                Err("a window has a length above 0")
            }
            Kind::Aligned { length, every, .. } if every > length => {
                Err("sliding windows begin at least as often as they are long")
            }
            Kind::Session { gap } if gap <= 0 => Err("the gap of a session is above 0"),
            Kind::Count { items: 0 } => Err("a window that counts holds 1 item or more"),
            _ => Ok(()),
        }
    }
}

/// A keyed stream whose items are grouped into windows: what is to be made of them?
pub struct Windows<K, V> {
    stream: KeyedStream<K, Timed<V>>,
    name: String,
    window: Window,
    windower: Option<Arc<dyn Windower>>,
}

/// What comes out of windows.
pub struct Outcome<K, V, R> {
    /// The results, each at the last moment of its window.
    pub results: KeyedStream<K, Timed<R>>,
    /// The items that came too late.
    pub late: KeyedStream<K, Timed<V>>,
}

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    /// Groups the items of each key into windows. An aggregate of [`Windows`] makes the results.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. A result comes out when the watermark reaches the end of its window. With recovery the
    /// type of the accumulator is [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty, and
    /// [`FlowError::Usage`](crate::FlowError::Usage) when an option of the window is out of range.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("counts"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let tens = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// tens.count().results.values().map(|count| count.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [2, 1]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn window(&self, name: &str, window: Window) -> Windows<K, V> {
        Windows {
            stream: self.clone(),
            name: name.to_owned(),
            window,
            windower: None,
        }
    }

    /// Groups the items of each key into the windows that a [`Windower`] chooses. An aggregate of [`Windows`] makes the results.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. A result comes out when the watermark reaches the end of its window. With recovery the
    /// type of the accumulator is [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty, and
    /// [`FlowError::Usage`](crate::FlowError::Usage) when an option of the window is out of range.
    ///
    /// ```
    /// use millstream_flow::window::Windower;
    /// use millstream_flow::{EventTime, Flow, Options, testing};
    ///
    /// /// Before and after the moment 10.
    /// struct Halves;
    /// impl Windower for Halves {
    ///     fn windows(&self, time: i64) -> Vec<(i64, i64)> {
    ///         vec![if time < 10 { (0, 10) } else { (10, 20) }]
    ///     }
    /// }
    ///
    /// let (flow, out) = (Flow::new("counts"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let halves = items.window_by("halves", Halves);
    /// halves.count().results.values().map(|count| count.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [2, 1]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn window_by(&self, name: &str, windower: impl Windower) -> Windows<K, V> {
        Windows {
            windower: Some(Arc::new(windower)),
            ..self.window(name, Window::count(1))
        }
    }
}

/// What chooses windows, checked.
fn choosing(windower: Arc<dyn Windower>) -> Choose<Cause> {
    Box::new(move |time| {
        let windows = windower.windows(time);
        match windows
            .iter()
            .find(|(start, end)| !(start..end).contains(&&time))
        {
            None => Ok(windows),
            Some((start, end)) => {
                Err(format!("the window {start}..{end} does not hold its item, at {time}").into())
            }
        }
    })
}

impl<K: Key, V: Data> Windows<K, V> {
    /// The same windows with other options: what `change` makes of [`Window::early`], [`Window::ordered`] and
    /// [`Window::per_key`]. Windows of a [`Windower`] are told so.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(Window) -> Window) -> Self {
        let kind = self.window.kind;
        self.window = Window {
            kind,
            ..change(self.window)
        };
        self
    }

    /// One result for each window, by an [`Aggregate`] of your own.
    pub fn aggregate<A>(&self, aggregate: A) -> Outcome<K, V, A::Out>
    where
        A: Aggregate<In = V, Error = Cause> + Clone + Send + Sync,
        A::Out: Data,
    {
        let window = self.window;
        if let Err(wrong) = window.check() {
            self.stream.mistake(Mistake::Usage(wrong));
        }
        match window.ordered {
            true => self.keep(InOrder::new(aggregate, V::clone)),
            false => self.keep(aggregate),
        }
    }

    fn keep<A>(&self, aggregate: A) -> Outcome<K, V, A::Out>
    where
        A: Aggregate<In = V, Error = Cause> + Clone + Send + Sync,
        A::Out: Data,
    {
        let (name, window, windower) = (self.name.clone(), self.window, self.windower.clone());
        let logic = move || match &windower {
            None => WindowLogic::new(window, aggregate.clone(), V::clone),
            Some(windower) => {
                let choose = choosing(Arc::clone(windower));
                WindowLogic::chosen(window, aggregate.clone(), V::clone, choose)
            }
        };
        let (results, late) = match window.per_key {
            None => self.stream.keep_timed("window", &self.name, move || {
                KeyedStep::new(&name, false, logic())
            }),
            Some(how) => self.stream.keep_timed("window", &self.name, move || {
                KeyedStep::new(&name, false, ByKey::new(logic(), how))
            }),
        };
        Outcome { results, late }
    }
}

impl<K: Key, V: Data> KeyedStream<K, V> {
    pub(crate) fn mistake(&self, mistake: Mistake) {
        if let Some(part) = self.parts.first() {
            lock(&part.graph).mistake(mistake);
        }
    }
}
