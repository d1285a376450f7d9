//! The [list](crate::list) of metrics as text: OpenMetrics, and the older format of Prometheus, in which a counter has
//! its whole name everywhere.

use std::collections::HashSet;
use std::fmt::{Error, Result};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::ages::BUCKETS;
use crate::list::{self, Kind, Metric, Read};
use crate::snapshot::Snapshot;
use crate::user::UserSnapshot;

/// The beginning of the names of metrics of the user's program.
const USER: &str = "millstream_user_";

/// The media types of the two formats.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub(crate) const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug)]
struct Snapshots(Arc<Snapshot>);

impl Collector for Snapshots {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result {
        list::all()
            .filter(|metric| is_there(metric, &self.0))
            .try_for_each(|metric| write(metric, &self.0, &mut encoder))?;
        let mut user = self.0.user.iter();
        user.try_for_each(|metric| write_user(metric, &mut encoder))
    }
}

/// Writes a metric of the user's program.
fn write_user(metric: &UserSnapshot, encoder: &mut DescriptorEncoder<'_>) -> Result {
    let (kind, name) = if metric.counter {
        (MetricType::Counter, "Counter")
    } else {
        (MetricType::Gauge, "Gauge")
    };
    let help = match metric.help.as_str() {
        "" => format!("{name} of the program"),
        // The two formats escape quotes in different ways.
        help => help.replace('\\', "\\\\").replace('"', "'"),
    };
    let name = format!("{USER}{}", metric.name);
    let mut encoder = encoder.encode_descriptor(&name, &help, None, kind)?;
    if metric.counter {
        encoder.encode_counter::<NoLabelSet, _, f64>(&metric.value, None)
    } else {
        encoder.encode_gauge(&metric.value)
    }
}

/// Whether a process has the thing that a metric is of.
fn is_there(metric: &Metric, snapshot: &Snapshot) -> bool {
    match metric.labels.first() {
        Some(&"flow") => !snapshot.flow.is_empty(),
        _ if metric.name.starts_with("millstream_queue") => snapshot.queues.is_some(),
        _ if metric.name.starts_with("millstream_journal") => snapshot.journals.is_some(),
        _ if metric.name.starts_with("millstream_service") => snapshot.services.is_some(),
        _ => true,
    }
}

/// The name of a counter without its suffix, which the encoder adds.
fn family(metric: &Metric) -> &str {
    match metric.kind {
        Kind::Counter => metric.name.strip_suffix("_total").unwrap_or(metric.name),
        Kind::Gauge | Kind::Histogram => metric.name,
    }
}

fn write(metric: &Metric, snapshot: &Snapshot, encoder: &mut DescriptorEncoder<'_>) -> Result {
    let kind = match metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    let mut encoder = encoder.encode_descriptor(family(metric), metric.help, None, kind)?;
    let mut outcome = Ok(());
    let mut put = |labels: &[&str], write: &dyn Fn(&mut MetricEncoder<'_>) -> Result| {
        if outcome.is_ok() {
            outcome = labelled(metric, labels, &mut encoder, write);
        }
    };
    match metric.read {
        Read::Values(read) => read(snapshot, &mut |labels, value| {
            put(labels, &|encoder| match metric.kind {
                Kind::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(&value, None),
                Kind::Gauge | Kind::Histogram => encoder.encode_gauge(&value),
            });
        }),
        Read::Buckets(read) => read(snapshot, &mut |labels, sum, counts| {
            let bounds = BUCKETS.into_iter().chain([f64::INFINITY]);
            // The encoder cumulates the counts.
            let buckets: Vec<(f64, u64)> = bounds.zip(counts.iter().copied()).collect();
            let count = counts.iter().sum();
            put(labels, &|encoder| {
                encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            });
        }),
    }
    outcome
}

fn labelled(
    metric: &Metric,
    labels: &[&str],
    encoder: &mut MetricEncoder<'_>,
    write: &dyn Fn(&mut MetricEncoder<'_>) -> Result,
) -> Result {
    let pairs: Vec<(&str, &str)> = metric
        .labels
        .iter()
        .copied()
        .zip(labels.iter().copied())
        .collect();
    if pairs.is_empty() {
        return write(encoder);
    }
    write(&mut encoder.encode_family(&pairs)?)
}

/// Returns the metrics of a snapshot in OpenMetrics.
///
/// # Errors
/// None: the text grows in memory.
pub(crate) fn open_metrics(snapshot: &Arc<Snapshot>) -> std::result::Result<String, Error> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshots(Arc::clone(snapshot))));
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Returns the same in the older format.
pub(crate) fn prometheus(open_metrics: &str) -> String {
    let counters: HashSet<&str> = open_metrics.lines().filter_map(counter).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                text += &format!("# {what} {name}_total {rest}");
            }
            _ => text += line,
        }
        text.push('\n');
    }
    text
}

/// The name of the counter whose type a line says.
fn counter(line: &str) -> Option<&str> {
    let described = line.strip_prefix("# TYPE ")?;
    described.strip_suffix(" counter")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::StepSnapshot;

    fn text() -> String {
        let step = StepSnapshot {
            name: "<script>\"\\\n".to_owned(),
            items_in: 7,
            age_buckets: (1.5, [1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            ..StepSnapshot::default()
        };
        let user = |name: &str, counter, help: &str| UserSnapshot {
            name: name.to_owned(),
            counter,
            help: help.to_owned(),
            value: 2.5,
        };
        let snapshot = Snapshot {
            flow: "f".to_owned(),
            steps: vec![step],
            user: vec![
                user("rejected", true, "Orders \"x\" \\ rejected"),
                user("depth", false, ""),
            ],
            ..Snapshot::default()
        };
        open_metrics(&Arc::new(snapshot)).unwrap()
    }

    #[test]
    fn labels_are_escaped_and_buckets_are_cumulated() {
        let text = text();
        let labels = r#"{flow="f",step="<script>\"\\\n"}"#;
        assert!(
            text.contains(&format!("millstream_step_items_in_total{labels} 7.0\n")),
            "{text}"
        );
        let bucket = |bound: &str, count: u32| {
            let labels = labels.trim_end_matches('}');
            format!(
                "millstream_step_age_seconds_bucket{{le=\"{bound}\",{}}} {count}\n",
                &labels[1..]
            )
        };
        assert!(text.contains(&bucket("0.0005", 3)), "{text}");
        assert!(text.contains(&bucket("+Inf", 4)), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_older_format_has_complete_names() {
        let text = prometheus(&text());
        assert!(text.contains("# TYPE millstream_step_items_in_total counter\n"));
        assert!(text.contains("# TYPE millstream_step_busy_ratio gauge\n"));
        assert!(!text.contains("EOF"));
        assert!(text.contains("# TYPE millstream_user_rejected_total counter\n"));
    }

    #[test]
    fn metrics_of_the_program_are_there() {
        let text = text();
        assert!(
            text.contains("\nmillstream_user_rejected_total 2.5\n"),
            "{text}"
        );
        assert!(
            text.contains("# HELP millstream_user_depth Gauge of the program\n"),
            "{text}"
        );
        assert!(text.contains("\nmillstream_user_depth 2.5\n"), "{text}");
        let help = r"# HELP millstream_user_rejected Orders 'x' \\ rejected";
        assert!(text.contains(help), "{text}");
    }
}
