//! Joins within windows: items of two streams that are in one window of their key.

use super::side::{JoinKind, Side};
use super::side_codec::both_sides;
use crate::batch::Data;
use crate::checkpoint::{BoxedCodec, Codec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::key::Key;
use crate::operators::keyed::KeyedStream;
use crate::operators::window::{Aggregate, Bounds, Outcome, Window, Windowed};
use crate::saved::raw::{RAW, Raw, read};
use crate::state::Growing;
use crate::time::Timed;

/// The outputs of a join within windows.
pub type WindowPairs<K, L, R> = Outcome<K, Side<L, R>, Windowed<(Option<L>, Option<R>)>>;

/// The items of a window, by their streams.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Sides<L, R> {
    left: Growing<L>,
    right: Growing<R>,
}

impl<L, R> Default for Sides<L, R> {
    fn default() -> Self {
        Sides {
            left: Growing::default(),
            right: Growing::default(),
        }
    }
}

impl<L, R> Sides<L, R> {
    fn set_saved(&self) {
        self.left.set_saved();
        self.right.set_saved();
    }
}

#[derive(Clone)]
struct PairUp<L, R> {
    how: JoinKind,
    types: std::marker::PhantomData<fn(L, R)>,
}

impl<L: Data, R: Data> Aggregate for PairUp<L, R> {
    type In = Side<L, R>;
    type Acc = Sides<L, R>;
    type Out = Vec<Windowed<(Option<L>, Option<R>)>>;
    type Error = Cause;

    fn initial(&mut self) -> Result<Self::Acc, Cause> {
        Ok(Sides::default())
    }
    fn add(&mut self, acc: &mut Self::Acc, value: Side<L, R>) -> Result<(), Cause> {
        match value {
            Side::Left(value) => acc.left.push(value),
            Side::Right(value) => acc.right.push(value),
        }
        Ok(())
    }
    fn merge(&mut self, acc: &mut Self::Acc, later: &Self::Acc) -> Result<(), Cause> {
        acc.left.extend(later.left.iter().cloned());
        acc.right.extend(later.right.iter().cloned());
        Ok(())
    }
    fn result(&mut self, acc: &mut Self::Acc, bounds: Bounds) -> Result<Self::Out, Cause> {
        let Sides { left, right } = acc;
        let made = |left: Option<&L>, right: Option<&R>| {
            Windowed::new(bounds, (left.cloned(), right.cloned()))
        };
        Ok(match (left.is_empty(), right.is_empty(), self.how) {
            (false, true, JoinKind::Left | JoinKind::Full) => {
                left.iter().map(|left| made(Some(left), None)).collect()
            }
            (true, false, JoinKind::Full) => {
                right.iter().map(|right| made(None, Some(right))).collect()
            }
            _ => {
                let pairs = left.iter().flat_map(|l| right.iter().map(move |r| (l, r)));
                pairs.map(|(l, r)| made(Some(l), Some(r))).collect()
            }
        })
    }
    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::Acc>, Cause> {
        Ok(Box::new(SidesCodec(codecs.get::<L>()?, codecs.get::<R>()?)))
    }
}

/// The codec of `[[left...], [right...]]`; what has changed are lists of the added items.
struct SidesCodec<L, R>(Codec<L>, Codec<R>);

impl<L, R> SidesCodec<L, R> {
    fn save_lists(&self, left: &[L], right: &[R], out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(2, out);
        pack::list(left.len(), out);
        for item in left {
            self.0.save(item, out)?;
        }
        pack::list(right.len(), out);
        right.iter().try_for_each(|item| self.1.save(item, out))
    }
}

impl Sides<Raw, Raw> {
    /// Reads the items of both sides without their types.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Cause> {
        read(&SidesCodec(RAW, RAW), bytes)
    }

    /// Returns the items of the left and of the right stream.
    pub(crate) fn both(&self) -> [&[Raw]; 2] {
        [&self.left, &self.right]
    }
}

impl<L, R> StateCodec<Sides<L, R>> for SidesCodec<L, R> {
    fn save(&self, sides: &Sides<L, R>, out: &mut Vec<u8>) -> Result<(), Cause> {
        sides.set_saved();
        self.save_lists(&sides.left, &sides.right, out)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Sides<L, R>, Cause> {
        let mut sides = Sides::default();
        self.load_added(&mut sides, from)?;
        Ok(sides)
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("sides");
    }
    fn save_added(&self, sides: &Sides<L, R>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        let (Some(left), Some(right)) = (sides.left.added(), sides.right.added()) else {
            return Ok(false);
        };
        self.save_lists(left, right, out)?;
        sides.set_saved();
        Ok(true)
    }
    fn load_added(&self, sides: &mut Sides<L, R>, from: &mut &[u8]) -> Result<(), Cause> {
        pack::take_members(2, from)?;
        for _ in 0..pack::take_list(from)? {
            sides.left.push(self.0.load(from)?);
        }
        for _ in 0..pack::take_list(from)? {
            sides.right.push(self.1.load(from)?);
        }
        sides.set_saved();
        Ok(())
    }
}

impl<K: Key, L: Data> KeyedStream<K, Timed<L>> {
    /// Pairs each item with all items of `right` that are in the same window of their key, when the window
    /// closes: in the order of arrival, or of their times with [`Window::ordered`]. `how` defines which items
    /// without a partner are emitted. An item that is late for the window is emitted on `late`. With recovery
    /// the types of both streams must be announced.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_flow::join::JoinKind;
    /// use millstream_flow::{EventTime, Flow, Options, Window, testing};
    ///
    /// let (flow, out) = (Flow::new("pairs"), testing::Collected::new());
    /// let timed = |name, items| {
    ///     let times = flow.source(name, testing::items(items));
    ///     times.event_time(|time: &i64| *time, EventTime::default()).key_by(|_| "all")
    /// };
    /// let (clicks, views) = (timed("clicks", [3, 14]), timed("views", [1, 5]));
    /// let tens = Window::tumbling(Duration::from_nanos(10));
    /// clicks.join_windows("pairs", &views, tens, JoinKind::Left)
    ///     .results.values().map(|pair| pair.value.value).sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [(Some(3), Some(1)), (Some(3), Some(5)), (Some(14), None)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn join_windows<R: Data>(
        &self,
        name: &str,
        right: &KeyedStream<K, Timed<R>>,
        window: Window,
        how: JoinKind,
    ) -> WindowPairs<K, L, R> {
        let both = both_sides(self, right);
        let types = std::marker::PhantomData;
        let windows = both.window(name, window);
        let pairs = windows.aggregate(PairUp { how, types });
        let Outcome { results, late } = windows.detailed("join", pairs);
        let results = results.joins(vec![self.nodes(), right.nodes()]);
        let results = results.flat_map(|pairs: Timed<Vec<_>>| {
            let time = pairs.time;
            let watermark = pairs.watermark;
            let pairs = pairs.value.into_iter();
            pairs.map(move |value| Timed {
                time,
                watermark,
                value,
            })
        });
        Outcome { results, late }
    }
}
