//! Windows whose items are handed to the aggregate in the order of their times.
//!
//! Invariant: an aggregate sees the items of a window by event time, and those of one time as they came. For that the
//! items themselves are kept until the window closes, and sorted then. So a window takes as much memory, and as much of
//! the saved state, as its items do; sliding windows hand each item to the aggregate once for each window that holds it.

use super::aggregate::{Aggregate, Bounds};
use super::item::Copier;
use crate::checkpoint::{BoxedCodec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::time::{BEFORE_ALL, Timed};

/// The items of a window, or of a part of one, with their times.
pub struct Kept<T>(Vec<(i64, T)>);

/// An aggregate that is handed its items in order.
pub struct InOrder<G: Aggregate> {
    inner: G,
    copy: Copier<G::In>,
}

impl<G: Aggregate> InOrder<G> {
    /// `copy` makes another of an item that is in several windows.
    pub fn new(inner: G, copy: fn(&G::In) -> G::In) -> Self {
        InOrder { inner, copy }
    }
}

impl<G: Aggregate + Clone> Clone for InOrder<G> {
    fn clone(&self) -> Self {
        InOrder::new(self.inner.clone(), self.copy)
    }
}

impl<G: Aggregate> Aggregate for InOrder<G> {
    type In = G::In;
    type Acc = Kept<G::In>;
    type Out = G::Out;
    type Error = G::Error;

    fn initial(&mut self) -> Result<Self::Acc, G::Error> {
        Ok(Kept(Vec::new()))
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
        // Items of one time stay as they came.
        acc.0.sort_by_key(|(time, _)| *time);
        let items = match bounds.early {
            false => std::mem::take(&mut acc.0),
            true => {
                let items = acc.0.iter();
                items.map(|(time, v)| (*time, (self.copy)(v))).collect()
            }
        };
        let mut acc = self.inner.initial()?;
        for (time, value) in items {
            let item = Timed {
                time,
                watermark: BEFORE_ALL,
                value,
            };
            self.inner.add_timed(&mut acc, item)?;
        }
        self.inner.result(&mut acc, bounds)
    }
    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::Acc>, Cause> {
        Ok(Box::new(KeptCodec(self.inner.item_codec(codecs)?)))
    }
}

/// Writes items as `[[time, item]...]`.
struct KeptCodec<T>(BoxedCodec<T>);

impl<T> StateCodec<Kept<T>> for KeptCodec<T> {
    fn save(&self, kept: &Kept<T>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(kept.0.len(), out);
        for (time, item) in &kept.0 {
            pack::list(2, out);
            pack::integer(*time, out);
            self.0.save(item, out)?;
        }
        Ok(())
    }
    fn load(&self, from: &mut &[u8]) -> Result<Kept<T>, Cause> {
        let items = 0..pack::take_list(from)?;
        let items = items.map(|_| {
            pack::take_members(2, from)?;
            Ok((pack::take_integer(from)?, self.0.load(from)?))
        });
        Ok(Kept(items.collect::<Result<_, Cause>>()?))
    }
}
