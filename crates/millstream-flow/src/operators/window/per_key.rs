//! Windows and joins with a watermark for each key instead of that of the partition.
//!
//! The watermark of a key is the latest time of its own items minus the allowed lateness. An item is late only
//! if its key has seen later ones: a key whose items arrive slowly is not late because others were faster. With
//! `patience` it also follows the shared watermark with that lag: the windows of a silent key are closed, and
//! the key is removed.
//!
//! Invariant: the watermark of a key is `max(latest time of the key - lateness, shared watermark - patience)`,
//! and the contents of its windows and its late items depend on that alone. It is saved with the state of the
//! key, so that a key without open windows is kept too, until patience has run out.

use std::time::Duration;

use crate::checkpoint::{BoxedCodec, Codecs, StateCodec, pack};
use crate::error::Cause;
use crate::saved::raw::{Raw, RawState, read};
use crate::state::{KeyLogic, Moment, Outputs};
use crate::time::{BEFORE_ALL, NEVER, Timed, nanos};

/// The definition of the watermark of a key; nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct PerKey {
    /// How much earlier than the latest item of its key an item may be.
    pub(crate) lateness: i64,
    /// The lag of the watermark of a silent key after the shared watermark; without it the key does not follow.
    pub(crate) patience: Option<i64>,
}

/// The logic of windows or joins with a watermark for each key.
#[doc(hidden)] // For the other crates of Millstream.
pub struct ByKey<L> {
    inner: L,
    how: PerKey,
}

/// The windows of a key, and its watermark.
pub struct WithWatermark<S> {
    windows: S,
    watermark: i64,
    forgotten: bool,
}

impl PerKey {
    /// A watermark `lateness` before the latest item of the key; with `patience`, at most this much before the
    /// shared watermark.
    pub(crate) fn new(lateness: Duration, patience: Option<Duration>) -> Self {
        PerKey {
            lateness: nanos(lateness),
            patience: patience.map(nanos),
        }
    }
}

impl<L> ByKey<L> {
    /// Adds a watermark for each key to windows or a join.
    pub fn new(inner: L, how: PerKey) -> Self {
        ByKey { inner, how }
    }

    /// Returns the least watermark of a key under the shared watermark.
    fn least_watermark(&self, shared: i64) -> i64 {
        match self.how.patience {
            Some(patience) if shared != BEFORE_ALL => shared.saturating_sub(patience),
            _ => BEFORE_ALL,
        }
    }
}

impl<L> ByKey<L> {
    /// Closes the windows whose end the watermark `reached` has reached.
    fn close<K>(
        &mut self,
        key: &K,
        own: &mut WithWatermark<L::State>,
        (reached, processing): (i64, i64),
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error>
    where
        L: KeyLogic<K>,
    {
        if self.inner.next(&own.windows).event > reached {
            return Ok(());
        }
        let until = Moment {
            event: reached,
            processing,
        };
        self.inner.on_due(key, &mut own.windows, until, out)
    }
}

impl<K: 'static, L: KeyLogic<K>> KeyLogic<K> for ByKey<L> {
    type State = WithWatermark<L::State>;
    type In = L::In;
    type Out = L::Out;
    type Error = L::Error;

    fn open(&mut self, key: &K) -> Result<Self::State, L::Error> {
        Ok(WithWatermark {
            windows: self.inner.open(key)?,
            watermark: BEFORE_ALL,
            forgotten: false,
        })
    }

    fn on_item(
        &mut self,
        key: &K,
        own: &mut Self::State,
        item: Timed<L::In>,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        let shared = self.least_watermark(item.watermark.max(at.event));
        own.watermark = own.watermark.max(shared);
        own.forgotten = false;
        self.close(key, own, (own.watermark, at.processing), out)?;
        let reached = item.time.saturating_sub(self.how.lateness);
        let item = Timed {
            watermark: own.watermark,
            ..item
        };
        let at = Moment {
            event: own.watermark,
            ..at
        };
        let added = self.inner.on_item(key, &mut own.windows, item, at, out);
        // Time advances with an item on which a function has failed, too.
        own.watermark = own.watermark.max(reached);
        added?;
        self.close(key, own, (own.watermark, at.processing), out)
    }

    fn on_due(
        &mut self,
        key: &K,
        own: &mut Self::State,
        until: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        let shared = self.least_watermark(until.event);
        own.forgotten = shared >= own.watermark;
        // The shared watermark does not decrease: it need not be stored.
        let reached = own.watermark.max(shared);
        self.close(key, own, (reached, until.processing), out)
    }

    fn on_end(
        &mut self,
        key: &K,
        own: &mut Self::State,
        at: Moment,
        out: &mut impl Outputs<K, L::Out, L::In>,
    ) -> Result<(), L::Error> {
        own.forgotten = true;
        self.inner.on_end(key, &mut own.windows, at, out)
    }

    fn take_refused(&mut self) -> Option<(L::In, L::Error)> {
        self.inner.take_refused()
    }

    fn next(&self, own: &Self::State) -> Moment {
        let Some(patience) = self.how.patience else {
            return Moment::NEVER;
        };
        let next = self.inner.next(&own.windows).event;
        let next = match next {
            NEVER => own.watermark,
            next => next,
        };
        Moment {
            event: next.saturating_add(patience),
            ..Moment::NEVER
        }
    }

    fn is_empty(&self, own: &Self::State) -> bool {
        own.forgotten && self.inner.is_empty(&own.windows)
    }

    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::State>, Cause> {
        Ok(Box::new(WithWatermarkCodec(self.inner.codec(codecs)?)))
    }
}

/// The codec of `[watermark, windows]`.
struct WithWatermarkCodec<S>(BoxedCodec<S>);

impl WithWatermark<Raw> {
    /// Reads a watermark and a state without its type.
    pub(crate) fn read(bytes: &[u8]) -> Result<(i64, Raw), Cause> {
        let own = read(&WithWatermarkCodec(Box::new(RawState)), bytes)?;
        Ok((own.watermark, own.windows))
    }
}

impl<S> StateCodec<WithWatermark<S>> for WithWatermarkCodec<S> {
    fn save(&self, own: &WithWatermark<S>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(2, out);
        pack::integer(own.watermark, out);
        self.0.save(&own.windows, out)
    }
    fn load(&self, from: &mut &[u8]) -> Result<WithWatermark<S>, Cause> {
        pack::take_members(2, from)?;
        Ok(WithWatermark {
            watermark: pack::take_integer(from)?,
            windows: self.0.load(from)?,
            forgotten: false,
        })
    }
    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("watermark");
        self.0.layout(out);
    }
    fn save_added(&self, own: &WithWatermark<S>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        pack::integer(own.watermark, out);
        self.0.save_added(&own.windows, out)
    }
    fn load_added(&self, own: &mut WithWatermark<S>, from: &mut &[u8]) -> Result<(), Cause> {
        own.watermark = pack::take_integer(from)?;
        self.0.load_added(&mut own.windows, from)
    }
}
