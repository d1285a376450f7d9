//! Keyed state with timers, the basis of windows, joins and logic with timers.
//!
//! A [`KeyLogic`] defines what a step does for one key: with an item, and at a moment for which the key has a
//! timer. [`Keyed`] contains the states of all keys of one worker and an agenda of their timers. The state of a
//! key is complete without the agenda, which is an index that could be rebuilt from the states at any time.
//!
//! Invariant: before a key receives an item, all its timers up to the watermark at that item have fired. With one
//! partition this makes the order of items and timers of a key independent of the size of batches and the number of
//! workers: it is the order in which they would occur one by one. With several, items wait for timers: see [`InTurn`].

mod agenda;
pub(crate) mod backlog;
mod growing;
mod in_turn;
mod keyed;
mod logic;
mod plain;
mod step;
mod table;
mod timers;

pub use growing::Growing;
pub use in_turn::InTurn;
pub(crate) use in_turn::Waiting;
pub use keyed::{Fault, Keyed};
pub use logic::{KeyContext, Logic, may_follow, times_of};
pub use timers::{Due, Timer, Timers, Ttl, WithTimers, WithTimersCodec};

pub(crate) use logic::ByLogic;
pub(crate) use plain::Plain;
pub(crate) use step::KeyedStep;

pub use crate::saved::changes::{Changes, REMOVED};
pub use crate::saved::codec;
pub use crate::saved::restore::{Restore, SavedKey};

use crate::error::Cause;
use crate::saved::codec::{BoxedCodec, Codecs};
use crate::time::{NEVER, Timed};

/// A moment in both kinds of time, nanoseconds each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Moment {
    /// In event time.
    pub event: i64,
    /// In processing time.
    pub processing: i64,
}

impl Moment {
    /// The moment that never occurs.
    pub const NEVER: Moment = Moment {
        event: NEVER,
        processing: NEVER,
    };
}

/// The receiver of the outputs of keys.
#[doc(hidden)] // For the other crates of Millstream.
pub trait Outputs<K, O, I> {
    /// Emits an output at a time, after a watermark.
    fn result(&mut self, key: &K, output: Timed<O>);
    /// Emits an item that was too late.
    fn late(&mut self, key: &K, item: Timed<I>);
}

/// The behaviour of a step for one key.
#[doc(hidden)] // For the other crates of Millstream.
pub trait KeyLogic<K>: 'static {
    /// The state of a key.
    type State: 'static;
    /// The input items.
    type In: 'static;
    /// The outputs.
    type Out: 'static;
    /// The error of a function of the user.
    type Error;

    /// Creates the state of a key at its first item.
    ///
    /// # Errors
    /// The failure of a function of the user, as for all methods below.
    fn open(&mut self, key: &K) -> Result<Self::State, Self::Error>;
    /// Processes an item. `at.event` is the watermark at the item.
    ///
    /// # Errors
    /// As for `open`.
    fn on_item(
        &mut self,
        key: &K,
        state: &mut Self::State,
        item: Timed<Self::In>,
        at: Moment,
        out: &mut impl Outputs<K, Self::Out, Self::In>,
    ) -> Result<(), Self::Error>;
    /// Fires the timers of the key up to `until`; there is at least one. If it fails, the effects until then
    /// are kept and not repeated.
    ///
    /// # Errors
    /// As for `open`.
    fn on_due(
        &mut self,
        key: &K,
        state: &mut Self::State,
        until: Moment,
        out: &mut impl Outputs<K, Self::Out, Self::In>,
    ) -> Result<(), Self::Error>;
    /// Ends the key after all input has ended. If it fails and the state is not empty, it is called again.
    ///
    /// # Errors
    /// As for `open`.
    fn on_end(
        &mut self,
        key: &K,
        state: &mut Self::State,
        at: Moment,
        out: &mut impl Outputs<K, Self::Out, Self::In>,
    ) -> Result<(), Self::Error>;
    /// Whether the output of `on_end` is emitted only once, even if the flow resumes in another run: it leaves
    /// nothing in the state. For other logics the output at the end belongs to one run, and their states are
    /// saved as they were before it.
    fn ends_once(&self) -> bool {
        false
    }
    /// Takes an item that was refused in the last call, with its error; the call itself did not fail.
    fn take_refused(&mut self) -> Option<(Self::In, Self::Error)> {
        None
    }
    /// Returns the next moments for which the key has a timer.
    fn next(&self, state: &Self::State) -> Moment;
    /// True if the state is empty: the key is removed.
    fn is_empty(&self, state: &Self::State) -> bool;
    /// Returns the codec of the states, from the codecs of the announced types.
    ///
    /// # Errors
    /// A type that cannot be saved.
    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::State>, Cause>;
}
