//! `stateful_batch`: a function on all values of a key in a batch.
//!
//! Which values are in a batch depends on the source and on the rate of its input, as for `map_batch`. Values
//! of a key keep their order, and each value is in one call.
//!
//! ```
//! use millstream_flow::{Flow, Options, testing};
//!
//! let flow = Flow::new("sums");
//! let out = testing::Collected::new();
//! flow.source("numbers", testing::items(0..5u64))
//!     .key_by(|n| n % 2)
//!     .stateful_batch("sum", |_| 0, |sum, _key, values: Vec<u64>| {
//!         *sum += values.iter().sum::<u64>();
//!         Some(*sum)
//!     })
//!     .items()
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! // The last sum of each key.
//! let sums: std::collections::BTreeMap<_, _> = out.take().into_iter().collect();
//! assert_eq!(sums, [(0, 6), (1, 4)].into());
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use indexmap::IndexMap;

use crate::batch::Data;
use crate::error::Failure;
use crate::key::Key;
use crate::operators::keyed::KeyedStream;
use crate::step::{Context, Step};

impl<K: Key, V: Data> KeyedStream<K, V> {
    /// Calls `f` with the state of the key, the key and all values that the key has in a batch, of which
    /// there is one or more.
    ///
    /// The state of a key is made by `init` at the first value of the key. `name` is the name of the step in
    /// errors, metrics and saved state. With recovery the type of the state is
    /// [announced](crate::Flow::saves). `f` returns any number of outputs: an `Option`, a `Vec`, an array.
    /// The engine decides which values are in one batch.
    ///
    /// # Errors
    /// At the start of a run, [`FlowError::MissingName`](crate::FlowError::MissingName) when `name` is empty.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("sums"), testing::Collected::new());
    /// flow.source("in", testing::items([("a", 1), ("b", 2), ("a", 3)]))
    ///     .key_by(|item: &(&str, i64)| item.0)
    ///     .map(|item| item.1)
    ///     .stateful_batch("sum", |_key| 0, |sum, _key, values: Vec<i64>| {
    ///         *sum += values.iter().sum::<i64>();
    ///         Some(*sum)
    ///     })
    ///     .items()
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// // The last sum of each key.
    /// let sums: std::collections::BTreeMap<_, _> = out.take().into_iter().collect();
    /// assert_eq!(sums, [("a", 4), ("b", 2)].into());
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn stateful_batch<S: Send + 'static, U: Data, I: IntoIterator<Item = U>>(
        &self,
        name: &str,
        init: impl Fn(&K) -> S + Send + Sync + 'static,
        f: impl Fn(&mut S, &K, Vec<V>) -> I + Send + Sync + 'static,
    ) -> KeyedStream<K, U> {
        let batches = format!("{name}.batches");
        let batches = self.keep("batches", &batches, || Gather(IndexMap::new()));
        batches.stateful(name, init, f)
    }
}

/// Groups the values of each key in a batch.
struct Gather<K, V>(IndexMap<K, Vec<V>>);

impl<K: Key, V: Data> Step<Vec<(K, V)>, Vec<(K, Vec<V>)>> for Gather<K, V> {
    fn apply(
        &mut self,
        input: &mut Vec<(K, V)>,
        output: &mut Vec<(K, Vec<V>)>,
        _: &mut Context,
    ) -> Result<(), Failure> {
        for (key, value) in input.drain(..) {
            self.0.entry(key).or_default().push(value);
        }
        output.extend(self.0.drain(..));
        Ok(())
    }
}
