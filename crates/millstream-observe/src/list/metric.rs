//! A metric of the list: its name, its help, its alert, and how it is read from a snapshot.

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
    /// The alert that is made of it.
    pub alert: Option<Alert>,
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

/// An alert rule.
pub struct Alert {
    /// Its name.
    pub name: &'static str,
    /// The condition, in PromQL.
    pub expr: &'static str,
    /// How long the condition must hold.
    pub after: &'static str,
    /// `warning` or `critical`.
    pub severity: &'static str,
    /// What has happened, in one sentence.
    pub summary: &'static str,
    /// What to do, in one sentence.
    pub action: &'static str,
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
        alert: None,
        read: Read::Values(read),
    }
}

impl Metric {
    /// With an alert.
    pub(super) const fn alert(self, alert: Alert) -> Self {
        Metric {
            alert: Some(alert),
            ..self
        }
    }
}
