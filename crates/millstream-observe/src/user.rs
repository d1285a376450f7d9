//! Counters and gauges of the user's program, as `millstream_user_NAME` in the metrics, and on the page.
//!
//! Invariant: a name has one kind and one value in a process, whichever thread changes it. It is there from the first
//! call with its name until the process ends.
//!
//! ```
//! use millstream_observe::user::{counter, gauge};
//!
//! let rejected = counter("orders_rejected", "Orders without a price")?;
//! rejected.add(1.0);
//! assert_eq!(counter("orders_rejected", "")?.value(), 1.0);
//! assert!(gauge("orders_rejected", "").is_err());
//! # Ok::<(), millstream_observe::ObserveError>(())
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::error::ObserveError;
use crate::lock;

/// The number of metrics that a program may have: a name is not for values of the data.
pub const METRICS_MAX: usize = 1000;

static KNOWN: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

struct Known {
    metric: UserMetric,
    help: String,
}

/// A counter or a gauge of the program.
#[derive(Clone, Debug)]
pub struct UserMetric {
    counter: bool,
    /// The bits of a float.
    value: Arc<AtomicU64>,
}

impl UserMetric {
    /// Adds to the value.
    pub fn add(&self, more: f64) {
        let add = |bits| Some((f64::from_bits(bits) + more).to_bits());
        // The function always returns a value.
        let _ = self
            .value
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Sets the value.
    pub fn set(&self, value: f64) {
        self.value.store(value.to_bits(), Ordering::Relaxed);
    }

    /// Returns the value.
    #[must_use]
    pub fn value(&self) -> f64 {
        f64::from_bits(self.value.load(Ordering::Relaxed))
    }
}

/// The value of a metric of the program at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct UserSnapshot {
    /// Its name, as the program has given it.
    pub name: String,
    /// Whether it is a counter, and not a gauge.
    pub counter: bool,
    /// What it is, in the words of the program.
    pub help: String,
    /// Its value; on the page of process 0 the sum of those of all processes.
    pub value: f64,
}

/// Returns the counter of this name, a new one at its first use. The name may end with `_total`, which is added to it
/// otherwise.
///
/// # Errors
/// [`ObserveError::Metric`]: the name is none of Prometheus, or that of a gauge, or there are too many.
pub fn counter(name: &str, help: &str) -> Result<UserMetric, ObserveError> {
    metric(name.strip_suffix("_total").unwrap_or(name), true, help)
}

/// Returns the gauge of this name, a new one at its first use.
///
/// # Errors
/// [`ObserveError::Metric`]: the name is none of Prometheus, or that of a counter, or there are too many.
pub fn gauge(name: &str, help: &str) -> Result<UserMetric, ObserveError> {
    metric(name, false, help)
}

fn metric(name: &str, counter: bool, help: &str) -> Result<UserMetric, ObserveError> {
    let wrong = |said: String| Err(ObserveError::Metric(said));
    if !counter && name.ends_with("_total") {
        return wrong(format!(
            "{name:?}: the name of a gauge does not end with _total, as those of counters do"
        ));
    }
    let mut letters = name.chars();
    let begins = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_');
    if !begins || !letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
        return wrong(format!(
            "the name of a metric has letters a to z, digits and _, and does not begin with a digit, unlike {name:?}"
        ));
    }
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut known = lock(&KNOWN);
    if let Some(known) = known.get_mut(name) {
        if known.metric.counter != counter {
            return wrong(format!("{name:?} is the name of a counter and of a gauge"));
        }
        if known.help.is_empty() {
            known.help = help;
        }
        return Ok(known.metric.clone());
    }
    if known.len() == METRICS_MAX {
        return wrong(format!(
            "{name:?} would be metric {} of the program: a name is not for values of the data, which have no end",
            METRICS_MAX + 1
        ));
    }
    let metric = UserMetric {
        counter,
        value: Arc::new(AtomicU64::new(0f64.to_bits())),
    };
    let new = Known {
        metric: metric.clone(),
        help,
    };
    known.insert(name.to_owned(), new);
    Ok(metric)
}

/// Returns all metrics of the program, by name.
pub(crate) fn snapshots() -> Vec<UserSnapshot> {
    let known = lock(&KNOWN);
    let snapshot = |(name, known): (&String, &Known)| UserSnapshot {
        name: name.clone(),
        counter: known.metric.counter,
        help: known.help.clone(),
        value: known.metric.value(),
    };
    known.iter().map(snapshot).collect()
}

/// Adds the metrics of another process.
pub(crate) fn add(all: &mut Vec<UserSnapshot>, others: &[UserSnapshot]) {
    for other in others {
        match all.iter_mut().find(|known| known.name == other.name) {
            Some(known) => known.value += other.value,
            None => all.push(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_lose_no_count() {
        let counter = counter("threads", "").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(1.0)));
            }
        });
        assert_eq!(counter.value(), 4000.0);
    }

    #[test]
    fn a_name_is_one_of_prometheus_and_has_one_kind() {
        for wrong in ["", "1st", "orders-rejected", "a b", "größe", "_total"] {
            assert!(counter(wrong, "").is_err(), "{wrong}");
        }
        let one = counter("kinds_total", "").unwrap();
        one.add(2.0);
        assert_eq!(counter("kinds", "").unwrap().value(), 2.0);
        let error = gauge("kinds", "").unwrap_err();
        assert!(error.to_string().contains("a counter and of a gauge"));
        // A counter has such a name in the metrics.
        assert!(gauge("other_total", "").is_err());
    }

    #[test]
    fn values_of_processes_are_added() {
        let of = |name: &str, value| UserSnapshot {
            name: name.to_owned(),
            value,
            ..UserSnapshot::default()
        };
        let mut all = vec![of("a", 1.0)];
        add(&mut all, &[of("b", 5.0), of("a", 2.0)]);
        assert_eq!(all, [of("a", 3.0), of("b", 5.0)]);
    }
}
