//! Verbs on streams that lack what they need: the compiler says which verb comes first.
//!
//! Each is a method with a bound that no type meets, whose diagnostic is the advice. None of them can be called, and
//! the documentation shows none. On a keyed stream they are methods of [`Untimed`], so that a verb of the same name for
//! values with times comes first.
//!
//! ```compile_fail,E0277
//! # use millstream_flow::{Emit, Flow, testing};
//! let flow = Flow::new("no keys");
//! flow.source("in", testing::items([1, 2])).count(Emit::End);
//! ```
//!
//! ```compile_fail,E0277
//! # use millstream_flow::{Emit, Flow, testing};
//! let flow = Flow::new("no keys");
//! flow.source("in", testing::items([1, 2])).fold("list", Emit::End, Vec::new(), |list, n| list.push(n));
//! ```
//!
//! ```compile_fail,E0277
//! # use std::time::Duration;
//! # use millstream_flow::{Flow, Window, testing};
//! let flow = Flow::new("no times");
//! let keyed = flow.source("in", testing::items([1, 2])).key_by(|n| n % 2);
//! keyed.window("minutes", Window::tumbling(Duration::from_secs(60))).count();
//! ```
//!
//! ```compile_fail,E0277
//! # use millstream_flow::{EventTime, Flow, testing};
//! let flow = Flow::new("times after keys");
//! let keyed = flow.source("in", testing::items([1i64, 2])).key_by(|n| n % 2);
//! keyed.event_time(|time| *time, EventTime::default());
//! ```
//!
//! ```compile_fail,E0277
//! # use millstream_flow::{Flow, testing};
//! let (flow, out) = (Flow::new("keys at the end"), testing::Collected::new());
//! flow.source("in", testing::items([("a", 1)])).into_keyed().sink("out", out.sink());
//! flow.run(Default::default()).unwrap();
//! assert_eq!(out.take(), [("a", 1)]);
//! ```
//!
//! ```compile_fail,E0277
//! # use std::time::Duration;
//! # use millstream_flow::{EventTime, Flow, Window, testing};
//! let flow = Flow::new("no result");
//! let times = flow.source("in", testing::items([1i64, 2])).event_time(|time| *time, EventTime::default());
//! times.key_by(|n| *n).window("minutes", Window::tumbling(Duration::from_secs(60))).map(|window| window);
//! ```

use std::time::Duration;

use crate::batch::Data;
use crate::join::{Join, JoinAll, JoinKind};
use crate::key::Key;
use crate::operators::keyed::Untimed;
use crate::policy::OnError;
use crate::time::EventTime;
use crate::window::{Window, Windows};

/// The type itself. By it the bound of a verb is on a type that is inferred after the verb is found: the compiler shows
/// the diagnostic of the bound, and not that there is no such method.
pub trait Is<T> {}

impl<T> Is<T> for T {}

macro_rules! needs {
    ($(#[$doc:meta])* $name:ident: $message:literal, $label:literal) => {
        $(#[$doc])*
        #[diagnostic::on_unimplemented(message = $message, label = $label)]
        pub trait $name {
            /// What the verb would return: unknown, so that the verbs after it are no further errors.
            type Out;
            /// Returns it.
            fn out() -> Self::Out;
        }
    };
}

needs!(
    /// A stream whose items have keys.
    HasKeys: "this is a verb of keyed streams", "this stream has no keys: call `key_by` or `into_keyed` first"
);
needs!(
    /// A keyed stream whose values have times.
    HasTimes: "this verb needs times", "this stream has no times: call `event_time` or `processing_time` before `key_by`"
);
needs!(
    /// A stream without keys.
    HasNoKeys: "this is a verb of streams without keys", "this stream is keyed: call `items()` or `values()` first"
);
needs!(
    /// A stream that has no keys yet.
    HasNoKeysYet: "items get their times before their keys", "this stream is keyed: call this verb before `key_by`"
);
needs!(
    /// Results of windows.
    HasResults: "this is a verb of streams", "windows have no results yet: make one of each first, as `count()` does, and use its `.results`"
);

/// Methods with a bound that no type meets.
macro_rules! misplaced {
    ($bound:ident: $($verb:ident<$($generic:ident),*>($($type:ty),*);)+) => {$(
        #[doc(hidden)]
        pub fn $verb<$($generic,)* This>(&self, $(_: $type),*) -> This::Out
        where
            This: $crate::operators::misplaced::$bound,
            Self: $crate::operators::misplaced::Is<This>,
        {
            This::out()
        }
    )+};
}

pub(crate) use misplaced;

/// The verbs of a module that are verbs of keyed streams, for calls on a stream without keys. `T` is the type of its
/// items.
macro_rules! needs_keys {
    ($($verbs:tt)+) => {
        impl<T: $crate::batch::Data> $crate::stream::Stream<T> {
            $crate::operators::misplaced::misplaced!(HasKeys: $($verbs)+);
        }
    };
}

pub(crate) use needs_keys;

// Windows and joins are used here, and so do not use this module.
needs_keys!(
    window<>(&str, Window);
    window_by<W>(&str, W);
    join<R>(&str, R, Join);
    join_windows<R>(&str, R, Window, JoinKind);
    join_all<R>(&str, R, JoinAll);
);

impl<K: Key, V: Data> Untimed<K, V> {
    misplaced!(HasTimes:
        window<>(&str, Window);
        window_by<W>(&str, W);
        join_windows<R>(&str, R, Window, JoinKind);
        stateful_in_order<M>(&str, Option<Duration>, M);
    );
    misplaced!(HasNoKeysYet:
        event_time<>(impl Fn(&V) -> i64, EventTime);
        processing_time<>();
    );
    misplaced!(HasNoKeys:
        sink<S>(&str, S);
        sink_gathered<S>(&str, S);
        try_sink<S>(&str, OnError, S);
        redistribute<>();
        key_by<J>(impl Fn(&V) -> J);
        try_map<U, E>(&str, OnError, impl Fn(&V) -> Result<U, E>);
        try_filter_map<U, E>(&str, OnError, impl Fn(&V) -> Result<Option<U>, E>);
    );
}

impl<K: Key, V: Data> Windows<K, V> {
    misplaced!(HasResults:
        sink<S>(&str, S);
        items<>();
        values<>();
        map<U>(impl Fn(V) -> U);
        filter<>(impl Fn(&V) -> bool);
    );
}
