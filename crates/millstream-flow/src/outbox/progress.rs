//! The progress of an outbox: what is appended, committed and delivered. Its writers, the committer and the forwarder
//! share it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use millstream_journal::clock::wall_ns;

use crate::control::Load;
use crate::metrics::OutboxMetrics;
use crate::metrics::figures::Figures;
use crate::mutex::lock;
use crate::outbox::settings::Settings;

/// Pauses of the sources are logged once in this time: those of a slow destination are many.
const LOG_NS: u64 = 60_000_000_000;

/// The state of an outbox in a run.
pub(super) struct Progress {
    state: Mutex<State>,
    changed: Condvar,
    settings: Settings,
    /// Whether refused records become dead letters.
    keeps_refused: bool,
    load: Arc<Load>,
}

struct State {
    metrics: OutboxMetrics,
    /// Records below this number are committed.
    committed: u64,
    /// The time at which the oldest undelivered record was appended, in nanoseconds since 1970.
    oldest_ns: Option<u64>,
    /// The time of the last delivery, in nanoseconds since 1970.
    delivered_ns: Option<u64>,
    /// Nothing more is committed in this run.
    finished: bool,
    /// The forwarder has ended.
    ended: bool,
    /// Whether it makes the sources pause.
    holds: bool,
    /// The time of the last pause that was logged, and whether its end is logged too.
    logged_ns: Option<u64>,
    logs_end: bool,
}

/// What is committed at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Situation {
    pub(super) committed: u64,
    pub(super) finished: bool,
}

impl Progress {
    /// Creates the progress of an outbox whose records, all below `committed`, are committed.
    pub(super) fn new(
        sink: &str,
        address: &str,
        committed: u64,
        (settings, keeps_refused): (Settings, bool),
        load: &Arc<Load>,
    ) -> Arc<Self> {
        Arc::new(Progress {
            state: Mutex::new(State {
                metrics: OutboxMetrics::new(sink, address),
                committed,
                oldest_ns: None,
                delivered_ns: None,
                finished: false,
                ended: false,
                holds: false,
                logged_ns: None,
                logs_end: false,
            }),
            changed: Condvar::new(),
            settings,
            keeps_refused,
            load: Arc::clone(load),
        })
    }

    /// Adds the metrics of the outbox to those of the run.
    pub(super) fn publish(self: &Arc<Self>, figures: &Figures) {
        let watched = Arc::clone(self);
        figures.watch_outbox(Box::new(move || watched.metrics()));
    }

    /// Counts appended records.
    pub(super) fn appended(&self, records: usize, bytes: usize) {
        let mut state = lock(&self.state);
        state.metrics.waiting_records += records as u64;
        state.metrics.waiting_bytes += bytes as u64;
        if records > 0 {
            state.oldest_ns.get_or_insert_with(wall_ns);
        }
        self.hold_back(&mut state);
    }

    /// Counts the records of an earlier run; the first was appended at `oldest_ns`.
    pub(super) fn found(&self, records: usize, bytes: usize, oldest_ns: Option<u64>) {
        let mut state = lock(&self.state);
        state.metrics.waiting_records += records as u64;
        state.metrics.waiting_bytes += bytes as u64;
        state.oldest_ns = oldest_ns.or(state.oldest_ns);
        self.hold_back(&mut state);
    }

    /// Subtracts records that the destination has; the next one was appended at `oldest_ns`.
    pub(super) fn left(&self, records: usize, bytes: usize, oldest_ns: Option<u64>) {
        let mut state = lock(&self.state);
        let metrics = &mut state.metrics;
        metrics.waiting_records = metrics.waiting_records.saturating_sub(records as u64);
        metrics.waiting_bytes = metrics.waiting_bytes.saturating_sub(bytes as u64);
        let more = metrics.waiting_records > 0;
        // A record that is appended at this moment is not in the journal yet, and counted already.
        state.oldest_ns = more.then(|| oldest_ns.unwrap_or_else(wall_ns));
        self.hold_back(&mut state);
    }

    /// Counts a delivery of so many records that has succeeded but for those that were left out as refused.
    pub(super) fn delivered(&self, records: usize, left_out: &[(u64, String)]) {
        for (number, reason) in left_out {
            self.refused(*number, reason);
        }
        let mut state = lock(&self.state);
        state.metrics.delivered_records += (records - left_out.len()) as u64;
        state.metrics.deliveries += 1;
        state.delivered_ns = Some(wall_ns());
    }

    /// Counts and logs a record that the destination has refused and the flow skips.
    pub(super) fn refused(&self, number: u64, reason: &str) {
        let mut state = lock(&self.state);
        state.metrics.refused_records += 1;
        let metrics = &state.metrics;
        let sink = metrics.sink.clone();
        let address = metrics.address.clone();
        drop(state);
        let what = if self.keeps_refused {
            "becomes a dead letter"
        } else {
            "skipped"
        };
        tracing::warn!(
            sink = sink.as_str(),
            "sink \"{sink}\" ({address}): record {number} is refused and {what}: {reason}"
        );
    }

    /// Counts an attempt that has failed.
    pub(super) fn failed(&self) {
        let metrics = &mut lock(&self.state).metrics;
        metrics.retries += 1;
        metrics.failures_in_a_row += 1;
    }

    /// Notes that the last attempt has succeeded.
    pub(super) fn succeeded(&self) {
        lock(&self.state).metrics.failures_in_a_row = 0;
    }

    /// Stores that the records below this number are committed.
    pub(super) fn commit(&self, committed: u64) {
        let mut state = lock(&self.state);
        state.committed = state.committed.max(committed);
        self.changed.notify_all();
    }

    /// Nothing more is committed in this run.
    pub(super) fn finish(&self) {
        lock(&self.state).finished = true;
        self.changed.notify_all();
    }

    pub(super) fn situation(&self) -> Situation {
        let state = lock(&self.state);
        Situation {
            committed: state.committed,
            finished: state.finished,
        }
    }

    /// Returns whether it makes the sources pause.
    pub(super) fn is_full(&self) -> bool {
        lock(&self.state).holds
    }

    /// Waits until more than `than` records are committed or nothing more will be, at most for `limit`.
    pub(super) fn wait(&self, than: u64, limit: Duration) {
        let mut state = lock(&self.state);
        self.hold_back(&mut state);
        let nothing = |state: &mut State| state.committed <= than && !state.finished;
        let waited = self.changed.wait_timeout_while(state, limit, nothing);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Waits for `limit`.
    pub(super) fn pause(&self, limit: Duration) {
        let waited = self
            .changed
            .wait_timeout_while(lock(&self.state), limit, |_| true);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// Makes the sources of the run pause while too much waits, or a record waits for too long.
    fn hold_back(&self, state: &mut State) {
        let age = |oldest: u64| Duration::from_nanos(wall_ns().saturating_sub(oldest));
        let is_old = |most| state.oldest_ns.is_some_and(|oldest| age(oldest) > most);
        let is_full = state.metrics.waiting_bytes > self.settings.bytes_max
            || self.settings.age_max.is_some_and(is_old);
        if is_full == state.holds {
            return;
        }
        state.holds = is_full;
        self.hold_sources(is_full);
        let now = wall_ns();
        let is_recent = |at: u64| now.saturating_sub(at) < LOG_NS;
        if is_full && !state.logged_ns.is_some_and(is_recent) {
            state.logged_ns = Some(now);
            state.logs_end = true;
        } else if is_full || !std::mem::take(&mut state.logs_end) {
            return;
        }
        let metrics = &state.metrics;
        let sink = &metrics.sink;
        let records = metrics.waiting_records;
        let bytes = metrics.waiting_bytes;
        if is_full {
            tracing::warn!(
                sink = sink.as_str(),
                "sink \"{sink}\": {records} records ({bytes} bytes) wait for delivery: the sources of the flow pause"
            )
        } else {
            tracing::info!(
                sink = sink.as_str(),
                "sink \"{sink}\": the sources of the flow resume"
            )
        }
    }

    /// Lets the sources resume, at the end of the forwarder.
    pub(super) fn end(&self) {
        let mut state = lock(&self.state);
        state.ended = true;
        if std::mem::replace(&mut state.holds, false) {
            self.hold_sources(false);
        }
    }

    /// Whether the forwarder has ended.
    pub(super) fn has_ended(&self) -> bool {
        lock(&self.state).ended
    }

    fn hold_sources(&self, hold: bool) {
        self.load.hold_sources(hold);
    }

    pub(super) fn metrics(&self) -> OutboxMetrics {
        let state = lock(&self.state);
        let since = |at: u64| Duration::from_nanos(wall_ns().saturating_sub(at));
        OutboxMetrics {
            waiting: state.oldest_ns.map_or(Duration::ZERO, since),
            since_delivery: state.delivered_ns.map(since),
            batch_age: self.settings.batch_age.unwrap_or_default(),
            ..state.metrics.clone()
        }
    }
}
