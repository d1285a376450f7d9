//! Figures: percentiles, medians, and what a process has used.

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The percentiles of a latency histogram, in microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// How many messages were measured.
    pub count: u64,
    /// Half of them were faster.
    pub p50_us: f64,
    /// One in 10 was slower.
    pub p90_us: f64,
    /// One in 100 was slower.
    pub p99_us: f64,
    /// One in 1,000 was slower.
    pub p999_us: f64,
    /// One in 10,000 was slower.
    pub p9999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latency {
    /// The percentiles of a histogram of nanoseconds.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Latency {
            count: histogram.len(),
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            p9999_us: at(0.9999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }

    /// The median of each percentile over several runs.
    #[must_use]
    pub fn median_of(runs: &[&Latency]) -> Self {
        let at = |field: fn(&Latency) -> f64| {
            let values: Vec<f64> = runs.iter().map(|run| field(run)).collect();
            values.get(median_index(&values)).copied().unwrap_or(0.0)
        };
        Latency {
            count: at(|run| run.count as f64) as u64,
            p50_us: at(|run| run.p50_us),
            p90_us: at(|run| run.p90_us),
            p99_us: at(|run| run.p99_us),
            p999_us: at(|run| run.p999_us),
            p9999_us: at(|run| run.p9999_us),
            max_us: at(|run| run.max_us),
        }
    }

    /// A row of a table.
    #[must_use]
    pub fn row(&self, name: &str) -> String {
        format!(
            "{name:<34} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>10.1} {:>11}",
            self.p50_us,
            self.p90_us,
            self.p99_us,
            self.p999_us,
            self.p9999_us,
            self.max_us,
            self.count
        )
    }

    /// The heading of such a table.
    #[must_use]
    pub fn heading() -> String {
        format!(
            "{:<34} {:>9} {:>9} {:>9} {:>9} {:>9} {:>10} {:>11}",
            "latency, us", "p50", "p90", "p99", "p99.9", "p99.99", "max", "messages"
        )
    }
}

/// CPU time that this process has used, in seconds.
#[must_use]
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The peak memory of this process, in MiB; 0 where the system does not report it.
#[must_use]
pub fn peak_memory_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// The index of the median of `values`.
#[must_use]
pub fn median_index(values: &[f64]) -> usize {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    order.get(values.len() / 2).copied().unwrap_or(0)
}
