//! Windows: the items of a key, grouped by time or by number, and one result for each group.
//!
//! Invariant: the contents of a window do not depend on the size of batches, the number of workers or the speed
//! of partitions. An item is added to those of its windows that have not closed by the watermark of its own
//! partition, and is emitted on the `late` stream once for each window that has:
//!
//! - a tumbling window is the only one of its item; of sliding windows some or all may have closed;
//! - an item is late for sessions if its time is before the watermark: its session can no longer be determined;
//! - windows by number have no late items.
//!
//! A window closes when the watermark reaches its end, a session when the watermark is past its end: an item at
//! the end of a session, exactly one gap after its last item, belongs to it. When all windows of a key have
//! closed, the key is removed; whether an item is late follows from the watermark, which all keys share.
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
mod inline_queue;
mod item;
mod logic;
mod ordered;
mod parts;
mod per_key;
mod session;

use std::sync::Arc;
use std::time::Duration;

pub use aggregate::{Aggregate, Bounds, Windowed};
pub use chosen::Windower;
pub use item::Choose;
pub(crate) use logic::OpenWindows;
pub use logic::WindowLogic;
pub use ordered::{InOrder, TimedItems};
pub(crate) use per_key::WithWatermark;
pub use per_key::{ByKey, PerKey};

use crate::batch::Data;
use crate::describe::graph::Mistake;
use crate::error::Cause;
use crate::key::Key;
use crate::mutex::lock;
use crate::operators::keyed::KeyedStream;
use crate::state::KeyedStep;
use crate::time::{Timed, nanos};

/// The longest length of a window: 200 years, to which the times of items can be added.
const NANOS_MAX: i64 = 200 * 365 * 86_400 * 1_000_000_000;
/// The number of sliding windows in which an item may be. Each of them has a result.
const ITEM_WINDOWS_MAX: i64 = 100_000;

/// The definition of the groups of a key's items. Lengths are stored in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub(crate) kind: Kind,
    pub(crate) early: u64,
    pub(crate) ordered: bool,
    pub(crate) per_key: Option<PerKey>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Windows of `length`, one starting every `every`, at `offset` and multiples of `every` from it.
    Aligned {
        length: i64,
        every: i64,
        offset: i64,
    },
    /// Items whose distance to the next is at most `gap`.
    Session { gap: i64 },
    /// This many items.
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

    /// Creates consecutive windows of one length. They start at the epoch and at multiples of the length.
    #[must_use]
    pub fn tumbling(length: Duration) -> Self {
        Window::sliding(length, length)
    }

    /// Creates windows of one length, with one starting at each multiple of `every`: they overlap.
    #[must_use]
    pub fn sliding(length: Duration, every: Duration) -> Self {
        Window::of(Kind::Aligned {
            length: nanos(length),
            every: nanos(every),
            offset: 0,
        })
    }

    /// Creates sessions of items with at most `gap` between one and the next: two items that are exactly `gap`
    /// apart are in one session. A session ends `gap` after its last item.
    #[must_use]
    pub fn session(gap: Duration) -> Self {
        Window::of(Kind::Session { gap: nanos(gap) })
    }

    /// Creates consecutive groups of `items` items.
    #[must_use]
    pub fn count(items: u64) -> Self {
        Window::of(Kind::Count { items })
    }

    /// Shifts the starts of tumbling and sliding windows by `by`.
    #[must_use]
    pub fn offset(mut self, by: Duration) -> Self {
        if let Kind::Aligned { offset, .. } = &mut self.kind {
            *offset = nanos(by);
        }
        self
    }

    /// Emits an early result after every `items` items of a window (of a pane, for sliding windows). The final
    /// result is emitted too.
    #[must_use]
    pub fn early(mut self, items: u64) -> Self {
        self.early = items;
        self
    }

    /// Passes the items of a window to the aggregate in the order of their times, those of one time in the
    /// order of arrival: for first, last and differences. The default is the order of arrival.
    ///
    /// Costs: the items are kept until their window closes, in memory and in the saved state, instead of one
    /// accumulator, so that in a run with recovery the type of the items must be announced. They are sorted
    /// when the window closes. The aggregate then processes a whole window at once, once for each sliding
    /// window, and again for each early result.
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

    /// Uses a watermark for each key, `lateness` before the latest item of the key, to close windows and to
    /// find late items: an item is late only if its own key has seen later ones. The default is the watermark
    /// of the partition.
    ///
    /// `patience`: the watermark of a silent key follows that of the partitions with this lag. Without it, its
    /// windows stay open until the input ends, and state is kept for every key that ever occurred. If the items
    /// of a key come from several partitions, which of them are late depends on their order of arrival. Results
    /// are emitted when their key has seen later items, so that later windows or joins may find them late.
    #[must_use]
    pub fn per_key(mut self, lateness: Duration, patience: Option<Duration>) -> Self {
        self.per_key = Some(PerKey::new(lateness, patience));
        self
    }

    /// Returns the definition of the watermark of each key, if there is one.
    #[must_use]
    pub fn by_key(&self) -> Option<PerKey> {
        self.per_key
    }

    /// Describes what the state of such windows depends on, with the verb that makes their results; of those that a
    /// windower chooses the kind does not count.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn describe(&self, windower: Option<&str>, verb: &str) -> String {
        let time = |nanos: i64| Duration::from_nanos(nanos.unsigned_abs());
        let mut text = match (windower, self.kind) {
            (Some(windower), _) => format!("by {windower}"),
            (
                None,
                Kind::Aligned {
                    length,
                    every,
                    offset,
                },
            ) => {
                let shape = if length == every {
                    format!("tumbling {:?}", time(length))
                } else {
                    format!("sliding {:?} every {:?}", time(length), time(every))
                };
                match offset {
                    0 => shape,
                    _ => format!("{shape} offset {:?}", time(offset)),
                }
            }
            (None, Kind::Session { gap }) => format!("session {:?}", time(gap)),
            (None, Kind::Count { items }) => format!("of {items} items"),
        };
        if self.ordered {
            text += ", ordered";
        }
        if self.per_key.is_some() {
            text += ", watermark by key";
        }
        format!("{text}, {verb}")
    }

    /// Checks the definition.
    ///
    /// # Errors
    /// A length is zero or longer than 200 years, there are gaps between sliding windows, or an item is in more than
    /// 100,000 of them.
    pub fn check(&self) -> Result<(), &'static str> {
        match self.kind {
            Kind::Aligned { length: long, .. } | Kind::Session { gap: long }
                if long > NANOS_MAX =>
            {
                Err("the length of a window must be at most 200 years")
            }
            Kind::Aligned { offset, .. } if offset > NANOS_MAX => {
                Err("the offset of windows must be at most 200 years")
            }
            Kind::Aligned { length, every, .. } if length <= 0 || every <= 0 => {
                Err("the length of a window must be above 0")
            }
            Kind::Aligned { length, every, .. } if every > length => {
                Err("sliding windows must start at least once in each length")
            }
            Kind::Aligned { length, every, .. } if length / every > ITEM_WINDOWS_MAX => Err(
                "each item would be in more than 100,000 sliding windows, each with a result: let them start less often",
            ),
            Kind::Session { gap } if gap <= 0 => Err("the gap of a session must be above 0"),
            Kind::Count { items: 0 } => Err("a window by number must have 1 item or more"),
            _ => Ok(()),
        }
    }
}

/// A keyed stream whose items are grouped into windows; its methods aggregate the windows.
pub struct Windows<K, V> {
    stream: KeyedStream<K, Timed<V>>,
    name: String,
    window: Window,
    windower: Option<Arc<dyn Windower>>,
    /// The name of its type.
    chosen_by: Option<&'static str>,
}

/// The outputs of windows.
pub struct Outcome<K, V, R> {
    /// The results, each at the last moment of its window.
    pub results: KeyedStream<K, Timed<R>>,
    /// The items that were too late.
    pub late: KeyedStream<K, Timed<V>>,
}

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    /// Groups the items of each key into windows. An aggregate of [`Windows`] makes the results.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. A result comes out when the
    /// watermark reaches the end of its window. With recovery the type of the accumulator is
    /// [announced](crate::Flow::saves).
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
            chosen_by: None,
        }
    }

    /// Groups the items of each key into the windows that a [`Windower`] chooses. An aggregate of [`Windows`]
    /// makes the results.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. A result comes out when the
    /// watermark reaches the end of its window. With recovery the type of the accumulator is
    /// [announced](crate::Flow::saves).
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
        let chosen_by = Some(own_name(std::any::type_name_of_val(&windower)));
        Windows {
            windower: Some(Arc::new(windower)),
            chosen_by,
            ..self.window(name, Window::count(1))
        }
    }
}

/// The name of a type without its path.
fn own_name(path: &'static str) -> &'static str {
    let name = path.split('<').next().unwrap_or(path);
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns the function that chooses windows and checks them.
fn choosing(windower: Arc<dyn Windower>) -> Choose<Cause> {
    Box::new(move |time| {
        let windows = windower.windows(time);
        match windows
            .iter()
            .find(|(start, end)| !(start..end).contains(&&time))
        {
            None => Ok(windows),
            Some((start, end)) => Err(format!(
                "the window {start}..{end} does not contain its item, at {time}"
            )
            .into()),
        }
    })
}

impl<K: Key, V: Data> Windows<K, V> {
    /// Changes the options of the windows with [`Window::early`], [`Window::ordered`] and [`Window::per_key`].
    /// This is how windows of a [`Windower`] get options.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([2, 1, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.with(Window::ordered).collect().results.values().map(|windowed| windowed.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [vec![1, 2], vec![14]]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(Window) -> Window) -> Self {
        let kind = self.window.kind;
        self.window = Window {
            kind,
            ..change(self.window)
        };
        self
    }

    /// Emits one result for each window, by an [`Aggregate`] of the caller.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::Usage`](crate::FlowError::Usage) when an option of the window is out
    /// of range. An error of the aggregate ends the run.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::error::Cause;
    /// use millstream_flow::window::{Aggregate, Bounds};
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// /// The number of values that are even.
    /// #[derive(Clone)]
    /// struct Even;
    /// impl Aggregate for Even {
    ///     type In = i64;
    ///     type Acc = u64;
    ///     type Out = u64;
    ///     type Error = Cause;
    ///     fn initial(&mut self) -> Result<u64, Cause> {
    ///         Ok(0)
    ///     }
    ///     fn add(&mut self, even: &mut u64, n: i64) -> Result<(), Cause> {
    ///         *even += u64::from(n % 2 == 0);
    ///         Ok(())
    ///     }
    ///     fn merge(&mut self, even: &mut u64, later: &u64) -> Result<(), Cause> {
    ///         *even += later;
    ///         Ok(())
    ///     }
    ///     fn result(&mut self, even: &mut u64, _: Bounds) -> Result<u64, Cause> {
    ///         Ok(*even)
    ///     }
    /// }
    ///
    /// let (flow, out) = (Flow::new("windows"), testing::Collected::new());
    /// let items = flow.source("in", testing::items([1, 2, 14]))
    ///     .event_time(|time: &i64| *time, EventTime::default())
    ///     .key_by(|_| "all");
    /// let windows = items.window("tens", Window::tumbling(Duration::from_nanos(10)));
    /// windows.aggregate(Even).results.values().map(|windowed| windowed.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1, 1]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn aggregate<A>(&self, aggregate: A) -> Outcome<K, V, A::Out>
    where
        A: Aggregate<In = V, Error = Cause> + Clone + Send + Sync,
        A::Out: Data,
    {
        let window = self.window;
        if let Err(wrong) = window.check() {
            self.stream.mistake(Mistake::Usage(wrong));
        }
        let outcome = if window.ordered {
            self.keep(InOrder::new(aggregate, V::clone))
        } else {
            self.keep(aggregate)
        };
        self.detailed("aggregate", outcome)
    }

    /// Describes the step of a verb.
    pub(crate) fn detailed<R: Data>(&self, verb: &str, made: Outcome<K, V, R>) -> Outcome<K, V, R> {
        let detail = self.window.describe(self.chosen_by, verb);
        Outcome {
            results: made.results.detailed(&detail),
            ..made
        }
    }

    fn keep<A>(&self, aggregate: A) -> Outcome<K, V, A::Out>
    where
        A: Aggregate<In = V, Error = Cause> + Clone + Send + Sync,
        A::Out: Data,
    {
        let name = self.name.clone();
        let window = self.window;
        let windower = self.windower.clone();
        let logic = move || match &windower {
            None => WindowLogic::new(window, aggregate.clone(), V::clone),
            Some(windower) => {
                let choose = choosing(Arc::clone(windower));
                WindowLogic::chosen(window, aggregate.clone(), V::clone, choose)
            }
        };
        let (results, late) = match window.per_key {
            None => self
                .stream
                .keep_timed(("window", true), &self.name, move || {
                    KeyedStep::new(&name, false, logic())
                }),
            Some(how) => self
                .stream
                .keep_timed(("window", true), &self.name, move || {
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
