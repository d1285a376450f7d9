//! Traces over OTLP/HTTP, as JSON: one trace for each epoch that was committed, with the spans *waiting*, *saving* and
//! *syncing*, and one for each sampled [call](calls) of a service.
//!
//! They are made of what the snapshot of each second has: nothing on the path of a message changes. Of epochs that are
//! shorter than a 64th of a second only the last 64 of each second have a trace. A collector that does not answer loses
//! traces, and delays nothing. The protocol: <https://opentelemetry.io/docs/specs/otlp/#otlphttp>.

mod calls;

use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use millstream_flow::metrics::CommitTimes;
use millstream_flow::watch::Moment;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::http::Uri;

use crate::error::ObserveError;

/// The requests that wait for the collector; further ones are dropped.
const QUEUED_MAX: usize = 8;
/// The time of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The environment variable of OpenTelemetry with the address of the collector.
pub(crate) const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Sends the traces of one observer to a collector, on a thread of its own.
#[derive(Clone, Debug)]
pub(crate) struct Exporter {
    sender: SyncSender<String>,
    ids: RandomState,
    /// The run and the epoch that was exported last.
    last: (String, u64),
}

impl Exporter {
    /// Begins to send to a collector: `http://HOST:4318`, to which `/v1/traces` is added.
    pub(crate) fn start(endpoint: &str) -> Result<Self, ObserveError> {
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let wrong = |cause: String| {
            ObserveError::Bind(format!("the collector of traces {endpoint}: {cause}").into())
        };
        let parsed: Uri = url.parse().map_err(|error| wrong(format!("{error}")))?;
        if !matches!(parsed.scheme_str(), Some("http" | "https")) {
            return Err(wrong("an address is like http://127.0.0.1:4318".to_owned()));
        }
        let (sender, receiver) = sync_channel(QUEUED_MAX);
        std::thread::Builder::new()
            .name("millstream-otlp".to_owned())
            .spawn(move || send_all(&url, &receiver))
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Exporter {
            sender,
            ids: RandomState::new(),
            last: (String::new(), 0),
        })
    }

    /// Sends the traces of the epochs of a run that were committed since the last call.
    pub(crate) fn export(&mut self, flow: &str, run: &str, moment: &Moment, time_ns: i64) {
        if self.last.0 != run {
            self.last = (run.to_owned(), 0);
        }
        let new = moment
            .commits
            .iter()
            .filter(|commit| commit.epoch > self.last.1);
        let spans: Vec<Value> = new
            .flat_map(|commit| {
                let ended = moment.now_ns.saturating_sub(commit.ended_ns);
                let end_ns = u64::try_from(time_ns).unwrap_or(0).saturating_sub(ended);
                spans(self.ids.hash_one((run, commit.epoch)), flow, commit, end_ns)
            })
            .collect();
        if let Some(newest) = moment.commits.last() {
            self.last.1 = self.last.1.max(newest.epoch);
        }
        self.send(flow, &spans);
    }

    /// Sends spans of a flow or a service, if there are any.
    fn send(&self, name: &str, spans: &[Value]) {
        if spans.is_empty() {
            return;
        }
        if let Err(TrySendError::Full(_)) = self.sender.try_send(document(name, spans)) {
            tracing::debug!(name, "traces are dropped: the collector is too slow");
        }
    }
}

/// A trace: what is the same in all its spans.
struct Trace {
    id: String,
    /// The number from which those of its spans are made.
    spans_id: u64,
    attributes: Value,
}

impl Trace {
    /// Span number `number`; all but number 0, which is the whole, are parts of that.
    fn span(&self, number: u64, name: &str, [from_ns, to_ns]: [u64; 2]) -> Value {
        let id = |number: u64| format!("{:016x}", (self.spans_id ^ number) | 1 << 63);
        let mut span = json!({
            "traceId": self.id, "spanId": id(number), "name": name, "kind": 1,
            "startTimeUnixNano": from_ns.to_string(), "endTimeUnixNano": to_ns.to_string(),
            "attributes": self.attributes,
        });
        if number > 0 {
            span["parentSpanId"] = json!(id(0));
        }
        span
    }
}

/// The spans of an epoch. The commit alternates between saving and syncing; they are drawn one after the other.
fn spans(id: u64, flow: &str, commit: &CommitTimes, end_ns: u64) -> Vec<Value> {
    let trace = Trace {
        id: format!("{id:016x}{:016x}", commit.epoch),
        spans_id: id,
        attributes: json!([
            {"key": "flow", "value": {"stringValue": flow}},
            {"key": "epoch", "value": {"intValue": commit.epoch.to_string()}},
            {"key": "bytes", "value": {"intValue": commit.bytes.to_string()}},
        ]),
    };
    let parts = [
        ("waiting", commit.waiting),
        ("saving", commit.saving),
        ("syncing", commit.syncing),
    ];
    let length: Duration = parts.iter().map(|(_, time)| *time).sum();
    let begin_ns = end_ns.saturating_sub(length.as_nanos() as u64);
    let mut from_ns = begin_ns;
    let mut all = vec![trace.span(0, "epoch", [begin_ns, end_ns])];
    for (number, (name, time)) in (1..).zip(parts) {
        let to_ns = from_ns + time.as_nanos() as u64;
        all.push(trace.span(number, name, [from_ns, to_ns]));
        from_ns = to_ns;
    }
    all
}

fn document(name: &str, spans: &[Value]) -> String {
    let resource = json!([
        {"key": "service.name", "value": {"stringValue": name}},
        {"key": "process.pid", "value": {"intValue": std::process::id().to_string()}},
    ]);
    let scope = json!({"name": "millstream", "version": env!("CARGO_PKG_VERSION")});
    let document = json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{"scope": scope, "spans": spans}],
    }]});
    document.to_string()
}

/// Posts each document, until the observer has ended.
fn send_all(url: &str, documents: &Receiver<String>) {
    let agent: Agent = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .build()
        .into();
    let mut failed = false;
    for document in documents {
        let posted = agent
            .post(url)
            .header("content-type", "application/json")
            .send(document);
        match posted {
            Ok(_) => failed = false,
            // Once for each time that it begins to fail.
            Err(error) if !failed => {
                failed = true;
                tracing::warn!("traces are not accepted by {url}: {error}");
            }
            Err(_) => {}
        }
    }
}
