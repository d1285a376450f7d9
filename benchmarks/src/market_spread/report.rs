//! The figures of a run of Market Spread.

use serde::{Deserialize, Serialize};

use super::counts::Counts;
use crate::figures::Latency;

/// What was measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Report {
    /// `Rust` or `Python`.
    pub language: String,
    /// Worker threads.
    pub workers: usize,
    /// For a run with durable input and recovery, `always` or `never`: whether what was read and committed survives a
    /// loss of power.
    pub durable_sync: Option<String>,
    /// Messages a second that were ordered, over both streams.
    pub rate_ordered: Option<f64>,
    /// Messages a second that went through, over both streams.
    pub rate_reached: f64,
    /// Messages handled.
    pub messages: u64,
    /// What was ordered, sent, handled and received.
    pub counts: Counts,
    /// Results that the receiver got.
    pub results: u64,
    /// Poison messages.
    pub skipped: u64,
    /// From the cut of the frame to the end of the state step.
    pub internal: Latency,
    /// From the cut of the frame to the hand-over to the socket, for results.
    pub internal_results: Latency,
    /// From the due time to the end of the state step; only with a rate.
    pub end_to_end: Option<Latency>,
    /// The largest lag of the sender against its schedule; messages that it never sent count.
    pub sender_lag_max_us: Option<u64>,
    /// CPU seconds of the flow's process for a million messages.
    pub cpu_s_per_million: f64,
    /// Largest memory of the flow's process.
    pub peak_memory_mib: f64,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ordered = self
            .rate_ordered
            .map_or("as fast as possible".to_owned(), |rate| {
                format!("{:.3} M msg/s ordered", rate / 1e6)
            });
        let durable = self.durable_sync.as_ref().map_or(String::new(), |sync| {
            format!("durable input with sync={sync}, ")
        });
        writeln!(
            f,
            "Market Spread in {}, {} worker(s), {durable}{ordered}: {:.3} M msg/s, {} messages, {} results, {} skipped",
            self.language,
            self.workers,
            self.rate_reached / 1e6,
            self.messages,
            self.results,
            self.skipped
        )?;
        let counts = &self.counts;
        writeln!(
            f,
            "ordered {}, sent {}, handled {}; results expected {}, received {}, {} of them wrong",
            counts.ordered,
            counts.sent,
            counts.handled,
            counts.expected_results,
            counts.results,
            counts.wrong_results.len()
        )?;
        writeln!(f, "{}", Latency::heading())?;
        writeln!(f, "{}", self.internal.row("internal, all messages"))?;
        writeln!(
            f,
            "{}",
            self.internal_results.row("internal, results to the socket")
        )?;
        if let Some(end_to_end) = &self.end_to_end {
            writeln!(f, "{}", end_to_end.row("end to end, open loop"))?;
        }
        if let Some(lag) = self.sender_lag_max_us {
            writeln!(f, "the sender was at most {lag} us behind its schedule")?;
        }
        write!(
            f,
            "CPU {:.3} s per million messages, peak memory {:.1} MiB",
            self.cpu_s_per_million, self.peak_memory_mib
        )
    }
}
