//! The report of `millstream send`.

use serde::Serialize;

use super::pace::Schedule;
use super::stream::Stream;
use crate::failure::Failure;
use crate::report;

/// What was sent.
#[derive(Serialize)]
struct Report<'a> {
    /// When message 0 of each stream was due, CLOCK_MONOTONIC; message i at `start_ns + i * 1e9 / rate`.
    start_ns: u64,
    /// Messages per second and stream, as ordered.
    rate: Option<f64>,
    /// When the schedule was left, CLOCK_MONOTONIC.
    end_ns: u64,
    /// Whether a signal ended it.
    interrupted: bool,
    streams: Vec<StreamReport<'a>>,
}

#[derive(Serialize)]
struct StreamReport<'a> {
    source: &'a str,
    to: String,
    /// Messages that were due when the schedule was left; with no rate those that were sent.
    ordered: u64,
    /// Messages that were sent.
    messages: u64,
    /// With prefixes and line ends.
    bytes: u64,
    writes: u64,
    /// From the start of the schedule to the end of the last write.
    seconds: f64,
    /// The rate reached.
    messages_per_second: f64,
    /// Messages that were ordered and not sent.
    unsent: u64,
    lag_us: Option<Lag>,
}

/// The lag of messages against the schedule when they were written: each as large as that of the oldest of its write.
/// Those that were ordered and not sent are in it with their lateness when the schedule was left.
#[derive(Serialize)]
struct Lag {
    p50: u64,
    p99: u64,
    max: u64,
}

/// Print the report.
pub(super) fn report(
    streams: &[Stream],
    schedule: &Schedule,
    end_ns: u64,
    interrupted: bool,
    json: bool,
) -> Result<(), Failure> {
    let report = Report {
        start_ns: schedule.start_ns,
        rate: schedule.rate,
        end_ns,
        interrupted,
        streams: streams
            .iter()
            .map(|stream| stream_report(stream, schedule, end_ns))
            .collect(),
    };
    let lines: Vec<String> = report.streams.iter().map(StreamReport::text).collect();
    let text = format!("start {} ns\n{}", report.start_ns, lines.join("\n"));
    report::print(&report, &text, json)
}

fn stream_report<'a>(stream: &'a Stream, schedule: &Schedule, end_ns: u64) -> StreamReport<'a> {
    let seconds = stream.last_ns.saturating_sub(schedule.start_ns) as f64 / 1e9;
    let ordered = schedule.ordered(stream.limit, end_ns).max(stream.sent);
    StreamReport {
        source: &stream.load.source,
        to: stream.to.to_string(),
        ordered,
        messages: stream.sent,
        bytes: stream.bytes,
        writes: stream.writes,
        seconds,
        messages_per_second: report::per_second(stream.sent, seconds),
        unsent: ordered - stream.sent,
        lag_us: schedule.rate.map(|_| Lag {
            p50: stream.lag_us.value_at_quantile(0.5),
            p99: stream.lag_us.value_at_quantile(0.99),
            max: stream.lag_us.max(),
        }),
    }
}

impl StreamReport<'_> {
    fn text(&self) -> String {
        let mut text = format!(
            "{} -> {}: {} messages, {}B in {:.3} s: {}msg/s",
            self.source,
            self.to,
            self.messages,
            report::human(self.bytes as f64),
            self.seconds,
            report::human(self.messages_per_second),
        );
        if let Some(Lag { p50, p99, max }) = self.lag_us {
            text.push_str(&format!(
                "; behind schedule p50 {p50} us, p99 {p99} us, max {max} us"
            ));
        }
        if self.unsent > 0 {
            text.push_str(&format!("; {} not sent", self.unsent));
        }
        text
    }
}
