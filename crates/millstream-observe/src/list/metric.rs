//! A metric of the list: its name, its help, and how it is read from a snapshot.

use crate::snapshot::Snapshot;

/// A metric.
pub struct Metric {
    /// Its name, with the unit; that of a counter ends with `_total`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it is, in one sentence.
    pub help: &'static str,
    pub(crate) read: Read,
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts in buckets.
    Histogram,
}

/// Receives a value, with the values of its labels.
pub(crate) type Put<'a> = &'a mut dyn FnMut(&[&str], f64);
/// Receives the sum, the count and the cumulated counts of a histogram, with the values of its labels.
pub(crate) type PutBuckets<'a> = &'a mut dyn FnMut(&[&str], f64, &[u64]);

/// How a metric is read from a snapshot.
pub(crate) enum Read {
    Values(fn(&Snapshot, Put<'_>)),
    Buckets(fn(&Snapshot, PutBuckets<'_>)),
}

/// A metric whose values `read` returns.
pub(super) const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&Snapshot, Put<'_>),
) -> Metric {
    Metric {
        name,
        kind,
        labels,
        help,
        read: Read::Values(read),
    }
}
