//! State for each key that knows time: what windows, joins and logic with timers stand on.
//!
//! A [`KeyLogic`] says what a step does for one key: with an item, and when a moment has come that the
//! key waits for. [`Keyed`] holds the states of all keys of one worker and an agenda of which key waits
//! for what. The state of a key is whole in itself; the agenda is an index that could be made anew
//! from the states at any time.
//!
//! Invariant: before a key is handed an item it has seen all its moments up to the watermark at that
//! item. With one partition this makes the order of items and moments of a key the same for any size
//! of batches and number of workers: that in which they would come one by one.

mod agenda;
pub(crate) mod changes;
pub mod codec;
mod keyed;
mod logic;
mod plain;
pub(crate) mod restore;
mod step;
mod table;
mod timers;

pub use changes::{Changes, REMOVED};
pub use keyed::{Fault, Keyed};
pub use logic::{KeyContext, Logic, may_follow, times_of};
pub use restore::{Restore, SavedKey};
pub use timers::{Attended, AttendedCodec, Due, Timer, Timers, Ttl};

pub(crate) use logic::ByLogic;
pub(crate) use plain::Plain;
pub(crate) use step::KeyedStep;

use crate::checkpoint::{BoxedCodec, Codecs};
use crate::error::Cause;
use crate::time::{NEVER, Timed};

/// A moment in both kinds of time, nanoseconds each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// In event time.
    pub event: i64,
    /// In processing time.
    pub processing: i64,
}

impl Moment {
    /// The moment that does not come.
    pub const NEVER: Moment = Moment {
        event: NEVER,
        processing: NEVER,
    };
}

/// Where what comes out of a key goes.
pub trait Outputs<K, O, I> {
    /// An output, at a time, behind a watermark.
    fn result(&mut self, key: &K, output: Timed<O>);
    /// An item that came too late.
    fn late(&mut self, key: &K, item: Timed<I>);
}

/// What a step does for one key.
pub trait KeyLogic<K>: 'static {
    /// What is kept for a key.
    type State: 'static;
    /// What goes in.
    type In: 'static;
    /// What comes out.
    type Out: 'static;
    /// What can go wrong.
    type Error;

    /// The state of a key at its first item.
    ///
    /// # Errors
    /// The failure of a function of the user's, as for all verbs below.
    fn open(&mut self, key: &K) -> Result<Self::State, Self::Error>;
    /// An item. `at.event` is the watermark at the item.
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
    /// Time has come to `until`, and the key waits for a moment before or at it. What has been done
    /// when it fails is not done again.
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
    /// All input has ended. If it fails and the state is not empty, it is called again.
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
    /// Whether what `on_end` gives is given once, whether or not the flow goes on in another run: it leaves nothing in
    /// the state. What others give at the end belongs to one run, and their states are kept as they were before.
    fn gives_once(&self) -> bool {
        false
    }
    /// The next moments that the key waits for.
    fn next(&self, state: &Self::State) -> Moment;
    /// True when there is nothing to keep: the key is forgotten.
    fn is_empty(&self, state: &Self::State) -> bool;
    /// How states are saved, with the codecs of the types that are announced.
    ///
    /// # Errors
    /// A type that cannot be saved.
    fn codec(&self, codecs: &Codecs) -> Result<BoxedCodec<Self::State>, Cause>;
}
