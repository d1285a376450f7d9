//! Calls to the outside that take their time: `map_async`.
//!
//! Each worker calls an asynchronous function for its items, a bounded number at once, on a runtime of `tokio`: its own, with one
//! thread, or one that is handed in. When no more calls may begin the worker waits for one to end; that is back-pressure.
//!
//! Invariant: an item is either under way, and then it is saved with each epoch and asked again by the run that resumes, or its
//! answer has been sent on.
//!
//! ```
//! use millstream_flow::{Calls, Flow, Options, error::Cause, testing};
//! use std::time::Duration;
//!
//! async fn price(symbol: String) -> Result<(String, usize), Cause> {
//!     tokio::time::sleep(Duration::from_millis(1)).await; // an exchange is asked
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
mod runtime;
mod step;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::batch::Data;
use crate::describe::graph::Mistake;
use crate::describe::stream::Stream;
use crate::error::Cause;
use crate::key::Key;
use crate::operators::keyed::KeyedStream;
use crate::policy::OnError;
use crate::run::control::lock;

use calling::Calling;
use step::{ByKey, WithoutKeys};

/// How an asynchronous function is called.
#[derive(Clone)]
pub struct Calls {
    concurrency: usize,
    ordered: bool,
    timeout: Option<Duration>,
    retries: u32,
    retry_pause: Duration,
    on_error: OnError,
    runtime: Option<Handle>,
}

impl Default for Calls {
    fn default() -> Self {
        Calls {
            concurrency: 16,
            ordered: true,
            timeout: None,
            retries: 0,
            retry_pause: Duration::from_millis(100),
            on_error: OnError::Fail,
            runtime: None,
        }
    }
}

impl Calls {
    /// At most 16 calls at once on each worker, answers in the order of the items, no retries and no limit of time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// At most so many calls at once on each worker. In order, an answer that waits for those before it counts.
    #[must_use]
    pub fn concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }
    /// Answers go on as they come, not in the order of the items.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.ordered = false;
        self
    }
    /// A call that has not answered after this time has failed.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }
    /// A call that fails is made again so many times.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }
    /// How long to wait before the first retry, 100 ms unless told otherwise; before each further one twice as long.
    #[must_use]
    pub fn retry_pause(mut self, pause: Duration) -> Self {
        self.retry_pause = pause;
        self
    }
    /// What becomes of an item whose call has failed for good. A call that panics ends the flow in any case.
    #[must_use]
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.on_error = on_error;
        self
    }
    /// The runtime that makes the calls, which must go on until the flow has ended and have its timers enabled. Without, each
    /// worker has one of its own, with one thread.
    #[must_use]
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }
}

/// What may be wrong with how calls are made.
fn mistake(calls: &Calls) -> Option<Mistake> {
    (calls.concurrency == 0).then_some(Mistake::Usage("map_async makes 1 call or more at once"))
}

impl<T: Data> Stream<T> {
    /// As `map`, with an asynchronous function that calls the outside.
    ///
    /// What is under way is saved with each epoch, and asked again after a crash: towards the outside, at least once. With
    /// recovery the type of the items is [announced](crate::Flow::saves).
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
        let (calls, f) = (Arc::new(calls), Arc::new(f));
        let on_error = calls.on_error.clone();
        let made = self.step("map_async", name, move |making| {
            Calling::make(&calls, &f, making).map(WithoutKeys::new)
        });
        made.settles_by(&on_error)
    }
}

impl<K: Key, V: Data> KeyedStream<K, V> {
    /// As [of streams without keys](Stream::map_async); the function is given the value.
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
        let (calls, f) = (Arc::new(calls), Arc::new(f));
        let on_error = calls.on_error.clone();
        let made = self.keep_anywhere("map_async", name, move |making| {
            Calling::make(&calls, &f, making).map(ByKey)
        });
        made.settles_by(&on_error)
    }
}
