//! `map_async`: slow calls to external systems.
//!
//! Each worker calls an asynchronous function for its items, with a bounded number of calls at once, on a
//! runtime of `tokio`: its own, with one thread, or one that the caller passes. At the limit the worker waits
//! for a call to end; this is the back-pressure.
//!
//! Invariant: a call is either pending, in which case it is saved with each epoch and repeated by a run that
//! resumes, or its answer has been passed on.
//!
//! ```
//! use millstream_flow::{Calls, Flow, Options, error::Cause, testing};
//! use std::time::Duration;
//!
//! async fn price(symbol: String) -> Result<(String, usize), Cause> {
//!     tokio::time::sleep(Duration::from_millis(1)).await; // calls an exchange
//!     let price = symbol.len() * 10;
//!     Ok((symbol, price))
//! }
//!
//! let (flow, out) = (Flow::new("prices"), testing::Collected::new());
//! let calls = Calls::new().concurrency(2).timeout(Duration::from_secs(5)).retries(2);
//! flow.source("symbols", testing::items(["A", "BB"].map(String::from)))
//!     .map_async("price", calls, price)
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), [("A".to_owned(), 10), ("BB".to_owned(), 20)]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

mod calling;
mod options;
mod runtime;
mod step;

use std::fmt::Debug;
use std::sync::Arc;

use crate::batch::Data;
use crate::describe::graph::Mistake;
use crate::describe::stream::Stream;
use crate::error::Cause;
use crate::key::Key;
use crate::mutex::lock;
use crate::operators::keyed::KeyedStream;

use calling::Calling;
pub use options::Calls;
use step::{ByKey, WithoutKeys};

/// Returns the error in the options of calls, if there is one.
fn mistake(calls: &Calls) -> Option<Mistake> {
    (calls.concurrency == 0).then_some(Mistake::Usage("map_async makes 1 call or more at once"))
}

impl<T: Data> Stream<T> {
    /// As [`map`](Stream::map), with an asynchronous function that calls an external system.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. `calls` says how many calls may be
    /// under way at once, when a call is repeated, and what happens when it fails.
    ///
    /// Items under way are saved with each epoch, and the calls are made again after a crash: an external
    /// system sees each call at least once. With recovery the type of the items is
    /// [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty, and
    /// [`FlowError::Usage`](crate::FlowError::Usage) when `calls` allows none at once.
    ///
    /// ```
    /// use millstream_flow::{Calls, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("prices"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2]))
    ///     .map_async("price", Calls::new(), |n: i64| async move { Ok::<_, String>(n * 10) })
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [10, 20]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn map_async<U, E, F, Fut>(&self, name: &str, calls: Calls, f: F) -> Stream<U>
    where
        T: Debug,
        U: Data,
        E: Into<Cause> + 'static,
        F: Fn(T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<U, E>> + Send + 'static,
    {
        let mut graph = lock(&self.graph);
        graph.demand_name("map_async", name);
        if let Some(mistake) = mistake(&calls) {
            graph.mistake(mistake);
        }
        drop(graph);
        let calls = Arc::new(calls);
        let f = Arc::new(f);
        let on_error = calls.on_error.clone();
        let made = self.step("map_async", name, move |making| {
            Calling::make(&calls, &f, making).map(WithoutKeys::new)
        });
        made.settles_by(&on_error)
    }
}

impl<K: Key, V: Data> KeyedStream<K, V> {
    /// As [`map`](KeyedStream::map), with an asynchronous function that calls an external system.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. `calls` says how many calls may be
    /// under way at once, when a call is repeated, and what happens when it fails.
    ///
    /// Items under way are saved with each epoch, and the calls are made again after a crash: an external
    /// system sees each call at least once. With recovery the type of the values is
    /// [announced](crate::Flow::saves).
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty, and
    /// [`FlowError::Usage`](crate::FlowError::Usage) when `calls` allows none at once.
    ///
    /// ```
    /// use millstream_flow::{Calls, Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("prices"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .map_async("price", Calls::new(), |n: i64| async move { Ok::<_, String>(n * 10) })
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [("a", 10), ("b", 20), ("a", 30)]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn map_async<U, E, F, Fut>(&self, name: &str, calls: Calls, f: F) -> KeyedStream<K, U>
    where
        V: Debug,
        U: Data,
        E: Into<Cause> + 'static,
        F: Fn(V) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<U, E>> + Send + 'static,
    {
        if let Some(mistake) = mistake(&calls) {
            self.mistake(mistake);
        }
        let calls = Arc::new(calls);
        let f = Arc::new(f);
        let on_error = calls.on_error.clone();
        let made = self.keep_anywhere("map_async", name, move |making| {
            Calling::make(&calls, &f, making).map(ByKey)
        });
        made.settles_by(&on_error)
    }
}
