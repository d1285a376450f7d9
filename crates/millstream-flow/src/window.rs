//! Windows: the items of a key, grouped by time or by number, and one result for each group.
//!
//! Invariant: what a window holds does not depend on the size of batches, on the number of workers or
//! on which partition was faster. An item that is not late by the watermark of its own partition is in
//! all windows it belongs to; one that is late is in none of them, and goes to the `late` stream:
//!
//! - of tumbling and sliding windows, an item is late when the first window it belongs to has closed;
//! - of sessions, when it lies behind the watermark: nobody can say any more whose session it was;
//! - windows that count have no late items.
//!
//! A window closes when the watermark has come to its end. When all windows of a key have closed the key
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
mod counted;
mod group;
mod line;
mod logic;
mod session;

use std::time::Duration;

pub use aggregate::{Aggregate, Bounds, Windowed};
pub use logic::WindowLogic;

use crate::batch::Data;
use crate::control::lock;
use crate::error::Cause;
use crate::graph::Mistake;
use crate::key::Key;
use crate::keyed::KeyedStream;
use crate::state::KeyedStep;
use crate::time::{Timed, nanos};

/// How the items of a key are grouped. Lengths are in nanoseconds inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub(crate) kind: Kind,
    pub(crate) early: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Windows of `length`, one beginning `every`, at `offset` and multiples of `every` from it.
    Aligned {
        length: i64,
        every: i64,
        offset: i64,
    },
    /// Items with less than `gap` between them.
    Session { gap: i64 },
    /// So many items.
    Count { items: u64 },
}

impl Window {
    fn of(kind: Kind) -> Self {
        Window { kind, early: 0 }
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

    /// Items with less than `gap` between one and the next. A session ends `gap` behind its last item.
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
}

/// What comes out of windows.
pub struct Outcome<K, V, R> {
    /// The results, each at the last moment of its window.
    pub results: KeyedStream<K, Timed<R>>,
    /// The items that came too late.
    pub late: KeyedStream<K, Timed<V>>,
}

impl<K: Key, V: Data> KeyedStream<K, Timed<V>> {
    /// Groups the items of each key into windows.
    #[must_use]
    pub fn window(&self, name: &str, window: Window) -> Windows<K, V> {
        Windows {
            stream: self.clone(),
            name: name.to_owned(),
            window,
        }
    }
}

impl<K: Key, V: Data> Windows<K, V> {
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
        let name = self.name.clone();
        let (results, late) = self.stream.keep_timed("window", &self.name, move || {
            let logic = WindowLogic::new(window, aggregate.clone());
            KeyedStep::new(&name, false, logic)
        });
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
