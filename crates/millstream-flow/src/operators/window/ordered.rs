//! Windows whose items are passed to the aggregate in the order of their times.
//!
//! Invariant: an aggregate receives the items of a window by event time, and those of one time in the order of
//! arrival. For this the items are kept until the window closes, and are then sorted. So the memory and the
//! saved state of a window are those of its items; an item in several sliding windows is passed to the
//! aggregate once for each.

use super::aggregate::{Aggregate, Bounds};
use super::item::Copier;
use crate::checkpoint::{BoxedCodec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::saved::raw::{Raw, RawState, read};
use crate::state::Growing;
use crate::time::{BEFORE_ALL, Timed};

/// The items of a window, or of a part of one, with their times.
#[doc(hidden)] // For the other crates of Millstream.
pub struct TimedItems<T>(Growing<(i64, T)>);

/// An aggregate that receives its items in order.
#[doc(hidden)] // For the other crates of Millstream.
pub struct InOrder<G: Aggregate> {
    inner: G,
    copy: Copier<G::In>,
}

impl<G: Aggregate> InOrder<G> {
    /// Creates the aggregate; `copy` copies an item that is in several windows.
    pub fn new(inner: G, copy: fn(&G::In) -> G::In) -> Self {
        InOrder { inner, copy }
    }

    /// Adds the items in order; returns the accumulator, and how many were added.
    fn added(
        &mut self,
        acc: &mut TimedItems<G::In>,
        early: bool,
    ) -> Result<(G::Acc, usize), G::Error> {
        // The sort is stable: items of one time keep their order of arrival.
        let all = acc.0.change();
        all.sort_by_key(|(time, _)| *time);
        let items = if early {
            let items = all.iter();
            items.map(|(time, v)| (*time, (self.copy)(v))).collect()
        } else {
            std::mem::take(all)
        };
        let mut acc = self.inner.initial()?;
        let mut added = 0;
        for (time, value) in items {
            let item = Timed {
                time,
                watermark: BEFORE_ALL,
                value,
            };
            match self.inner.add_timed(&mut acc, item) {
                Ok(()) => added += 1,
                Err(error) => self.inner.refuse(error, early)?,
            }
        }
        Ok((acc, added))
    }
}

impl<G: Aggregate + Clone> Clone for InOrder<G> {
    fn clone(&self) -> Self {
        InOrder::new(self.inner.clone(), self.copy)
    }
}

impl<G: Aggregate> Aggregate for InOrder<G> {
    type In = G::In;
    type Acc = TimedItems<G::In>;
    type Out = G::Out;
    type Error = G::Error;

    fn initial(&mut self) -> Result<Self::Acc, G::Error> {
        Ok(TimedItems(Growing::default()))
    }
    /// An item without a time comes before all others.
    fn add(&mut self, acc: &mut Self::Acc, value: G::In) -> Result<(), G::Error> {
        acc.0.push((BEFORE_ALL, value));
        Ok(())
    }
    fn add_timed(&mut self, acc: &mut Self::Acc, item: Timed<G::In>) -> Result<(), G::Error> {
        acc.0.push((item.time, item.value));
        Ok(())
    }
    fn merge(&mut self, acc: &mut Self::Acc, later: &Self::Acc) -> Result<(), G::Error> {
        let later = later.0.iter();
        acc.0
            .extend(later.map(|(time, value)| (*time, (self.copy)(value))));
        Ok(())
    }
    fn result(&mut self, acc: &mut Self::Acc, bounds: Bounds) -> Result<G::Out, G::Error> {
        let (mut acc, _) = self.added(acc, bounds.early)?;
        self.inner.result(&mut acc, bounds)
    }
    fn result_of_any(
        &mut self,
        acc: &mut Self::Acc,
        bounds: Bounds,
    ) -> Result<Option<G::Out>, G::Error> {
        match self.added(acc, bounds.early)? {
            (_, 0) => Ok(None),
            (mut acc, _) => self.inner.result(&mut acc, bounds).map(Some),
        }
    }
    fn grows(&self) -> bool {
        true
    }
    fn take_refused(&mut self) -> Option<(G::In, G::Error)> {
        self.inner.take_refused()
    }
    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::Acc>, Cause> {
        Ok(Box::new(TimedItemsCodec(self.inner.item_codec(codecs)?)))
    }
}

/// The codec of items: `[time, item, time, item...]`; items that are added are such a list too.
struct TimedItemsCodec<T>(BoxedCodec<T>);

impl<T> TimedItemsCodec<T> {
    fn save_items(&self, items: &[(i64, T)], out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(2 * items.len(), out);
        for (time, item) in items {
            pack::integer(*time, out);
            self.0.save(item, out)?;
        }
        Ok(())
    }
}

impl TimedItems<Raw> {
    /// Reads items without their types.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Cause> {
        read(&TimedItemsCodec(Box::new(RawState)), bytes)
    }

    /// Returns the items with their times.
    pub(crate) fn items(&self) -> &[(i64, Raw)] {
        &self.0
    }
}

impl<T> StateCodec<TimedItems<T>> for TimedItemsCodec<T> {
    fn save(&self, held: &TimedItems<T>, out: &mut Vec<u8>) -> Result<(), Cause> {
        held.0.set_saved();
        self.save_items(&held.0, out)
    }
    fn load(&self, from: &mut &[u8]) -> Result<TimedItems<T>, Cause> {
        let mut held = TimedItems(Growing::default());
        self.load_added(&mut held, from)?;
        Ok(held)
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("items");
        self.0.layout(out);
    }
    fn save_added(&self, held: &TimedItems<T>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        let Some(added) = held.0.added() else {
            return Ok(false);
        };
        held.0.set_saved();
        self.save_items(added, out).map(|()| true)
    }
    fn load_added(&self, held: &mut TimedItems<T>, from: &mut &[u8]) -> Result<(), Cause> {
        for _ in 0..pack::take_list(from)? / 2 {
            let item = (pack::take_integer(from)?, self.0.load(from)?);
            held.0.push(item);
        }
        held.0.set_saved();
        Ok(())
    }
}
