//! The lag of the partitions of sources: how much of their input they have not read yet.
//!
//! A source reports what it knows without asking: in records, in bytes or as a time. A partition whose source reports
//! nothing has no entry in a report.
//!
//! ```
//! use std::time::Duration;
//!
//! use millstream_flow::metrics::{Lag, LagGauge};
//!
//! let gauge = LagGauge::default();
//! assert_eq!(gauge.get(), None);
//! gauge.set(Lag { records: Some(20), ..Lag::default() });
//! assert_eq!(gauge.get().and_then(|lag| lag.records), Some(20));
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

/// The input of a partition that was not read yet, as far as its source knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// The number of records.
    pub records: Option<u64>,
    /// Their bytes.
    pub bytes: Option<u64>,
    /// Their age: the time since the last record that was read was made, and zero if there are no more.
    pub age: Option<Duration>,
    /// The number of records after those: they are written, and cannot be read before a transaction has ended.
    pub withheld: Option<u64>,
}

/// Where a source reports the lag of a partition, from any thread. [`Io::lag_gauge`](crate::poller::Io::lag_gauge)
/// returns it.
#[derive(Clone, Debug, Default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct LagGauge(Arc<Mutex<Option<Lag>>>);

impl LagGauge {
    /// Reports the lag as it is now.
    pub fn set(&self, lag: Lag) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(lag);
    }

    /// Returns the lag that was reported last.
    #[must_use]
    pub fn get(&self) -> Option<Lag> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lag of one partition in a [`Report`](crate::metrics::Report).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionLag {
    /// The name of the source.
    pub source: String,
    /// The name of the partition.
    pub partition: String,
    /// The lag that the source reported last.
    pub lag: Lag,
}

impl PartitionLag {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "source": self.source, "partition": self.partition, "records": self.lag.records,
            "bytes": self.lag.bytes, "seconds": self.lag.age.map(|age| age.as_secs_f64()),
            "withheld": self.lag.withheld,
        })
    }
}

/// A line for people about each source: the sums of its partitions, and the largest age.
pub(crate) fn summaries(lags: &[PartitionLag]) -> Vec<String> {
    let mut sources: Vec<&str> = lags.iter().map(|lag| lag.source.as_str()).collect();
    sources.dedup();
    let summary = |source: &&str| {
        let own = || lags.iter().filter(|lag| lag.source == *source);
        let sum = |of: fn(&Lag) -> Option<u64>| {
            own()
                .filter_map(|lag| of(&lag.lag))
                .reduce(u64::saturating_add)
        };
        let records = sum(|lag| lag.records).map(|records| format!("{records} records"));
        let bytes = sum(|lag| lag.bytes).map(|bytes| format!("{bytes} bytes"));
        let age = own().filter_map(|lag| lag.lag.age).max();
        let age = age.map(|age| format!("{:.1} s", age.as_secs_f64()));
        let withheld = sum(|lag| lag.withheld).filter(|records| *records > 0);
        let withheld = withheld.map(|records| format!("{records} records in open transactions"));
        let parts = [records, bytes, age, withheld].into_iter().flatten();
        let parts: Vec<String> = parts.collect();
        format!(
            "lag of {source}: {} ({} partitions)",
            parts.join(", "),
            own().count()
        )
    };
    sources.iter().map(summary).collect()
}

/// A partition that is open or was, with its gauge.
#[derive(Clone)]
pub(crate) struct WatchedLag {
    pub(crate) source: String,
    pub(crate) partition: String,
    pub(crate) gauge: LagGauge,
}

impl WatchedLag {
    pub(crate) fn metrics(&self) -> Option<PartitionLag> {
        Some(PartitionLag {
            source: self.source.clone(),
            partition: self.partition.clone(),
            lag: self.gauge.get()?,
        })
    }
}
