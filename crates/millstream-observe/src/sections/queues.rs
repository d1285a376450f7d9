//! The queues of a server in this process, from the figures that it publishes once a second.

mod actions;
mod detail;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use millstream_http::pages::{Page, PageRequest, PendingPage};
use millstream_queue::server::watch::{QueueFigures, ServerFigures, ServerWatch};
use serde_json::json;

use super::queue_figures::{
    ClosedQueue, LABELLED_MAX, LatencySnapshot, QueueSnapshot, QueueState, QueuesSnapshot,
    RefusedItems, SHOWN_MAX,
};
use super::tracks::Tracks;
use super::{Section, json};
use crate::ages::{Ages, BUCKETS};
use crate::lock;
use crate::snapshot::Snapshot;

/// The time after which a connection that keeps an item open, while others wait, is reported.
const HELD_SECONDS: f64 = 5.0;
/// The time after which a queue without a consumer is reported, while clients are connected and while none is.
const UNREAD_SECONDS: f64 = 60.0;
const ALONE_SECONDS: f64 = 2.0;
/// What is the matter with a server whose answers wait for a follower.
const HELD: &str = "Not all followers that count acknowledge: the server of the queues answers nothing until they do.";
/// What is the matter with a server whose lease is over.
const LEASE_OVER: &str =
    "The lease could not be renewed: the server of the queues answers nothing until it is.";
/// The name of the history of all queues together; no queue can have it.
const ALL: &str = "";

/// The section of the queues of a server.
///
/// ```no_run
/// use millstream_observe::sections::queues::Queues;
/// use millstream_queue::server::{Server, ServerOptions};
///
/// let server = Server::start(ServerOptions::new("queues"))?;
/// let observer = millstream_observe::http("127.0.0.1:8080").bind()?;
/// observer.show(Queues::new(server.watch().clone(), true));
/// server.wait()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Queues {
    watch: ServerWatch,
    shows_items: bool,
    known: Mutex<Known>,
}

/// What is remembered from one second to the next.
struct Known {
    figures: Arc<ServerFigures>,
    since: Instant,
    queues: Arc<Vec<QueueSnapshot>>,
    labelled: HashSet<String>,
    history: Tracks<6>,
}

impl Queues {
    /// The queues of the server that publishes to `watch`. `shows_items`: whether readers of the page may see the
    /// contents of items.
    #[must_use]
    pub fn new(watch: ServerWatch, shows_items: bool) -> Self {
        Queues {
            watch,
            shows_items,
            known: Mutex::new(Known {
                figures: Arc::default(),
                since: crate::now(),
                queues: Arc::default(),
                labelled: HashSet::new(),
                history: Tracks::new([
                    "items",
                    "oldest_seconds",
                    "held_seconds",
                    "in_rate",
                    "out_rate",
                    "expired_rate",
                ]),
            }),
        }
    }

    /// The queues whose names contain `search`, from the first or from a later one.
    fn found(&self, request: &PageRequest<'_>) -> Page {
        let search = request.parameter("search").unwrap_or_default();
        let from = request.parameter("from").and_then(|from| from.parse().ok());
        let queues = Arc::clone(&lock(&self.known).queues);
        let found = queues.iter().filter(|queue| queue.name.contains(&search));
        let shown: Vec<_> = found.skip(from.unwrap_or(0)).take(SHOWN_MAX).collect();
        let count = queues.iter().filter(|queue| queue.name.contains(&search));
        json(&json!({"count": count.count(), "queues": shown}))
    }
}

impl Section for Queues {
    fn add(&self, snapshot: &mut Snapshot) {
        let newest = self.watch.newest();
        let mut known = lock(&self.known);
        if newest.number != known.figures.number {
            known.advance(newest);
        }
        let mut queues = known.snapshot(snapshot.time_ms);
        if let Some(following) = self.watch.following() {
            queues.status = "follows".into();
            queues.silent_seconds = 0.0;
            queues.trouble = Some(following.trouble).filter(|trouble| !trouble.is_empty());
            queues.leader = Some(following.leader);
        }
        snapshot.queues = Some(queues);
    }

    fn answer(&self, request: &PageRequest<'_>) -> Option<Page> {
        match request.path() {
            "/api/queues.json" => Some(self.found(request)),
            "/api/queue.json" => self.detail(&request.parameter("name")?),
            "/api/history.json" if request.parameter("of")? == "queue" => {
                let name = request.parameter("name").unwrap_or_default();
                Some(json(&lock(&self.known).history.of(&name)))
            }
            _ => None,
        }
    }

    fn obstacle(&self) -> Option<String> {
        if let Some(following) = self.watch.following() {
            let leader = following.leader;
            return Some(format!("this machine does not serve: it follows {leader}"));
        }
        let starts = self.watch.newest().number == 0;
        starts.then(|| "the server of the queues starts".to_owned())
    }

    fn actions(&self) -> &'static [&'static str] {
        &[actions::REDRIVE, actions::RELOAD]
    }

    fn act(&self, action: &str, request: &PageRequest<'_>) -> Option<PendingPage> {
        match action {
            actions::REDRIVE => Some(actions::redrive(&self.watch, request)),
            actions::RELOAD => Some(actions::reload(&self.watch)),
            _ => None,
        }
    }
}

impl Known {
    /// Takes new figures.
    fn advance(&mut self, newest: Arc<ServerFigures>) {
        let elapsed_ms = newest.uptime_ms.saturating_sub(self.figures.uptime_ms);
        let before: HashMap<&str, &QueueSnapshot> = self
            .queues
            .iter()
            .map(|queue| (queue.name.as_str(), queue))
            .collect();
        let is_first = self.figures.number == 0;
        let mut queues = Vec::with_capacity(newest.queues.len());
        for figures in &newest.queues {
            let mut queue = queue(figures);
            let seconds = elapsed_ms.max(1) as f64 / 1e3;
            // A queue that is new began at 0; before the first figures nothing is known.
            let zero = QueueSnapshot::default();
            let before = before.get(figures.name.as_ref()).copied();
            if let Some(before) = before.or((!is_first).then_some(&zero)) {
                let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
                queue.in_rate = rate(queue.in_items, before.in_items);
                queue.out_rate = rate(queue.out_items, before.out_items);
                queue.expired_rate = rate(queue.expired_items, before.expired_items);
            }
            queue.state = state(&queue, figures.is_delay, newest.connections);
            queues.push(queue);
        }
        self.labelled.retain(|name| {
            let found = queues.binary_search_by(|queue| queue.name.as_str().cmp(name));
            found.is_ok()
        });
        for queue in &queues {
            if self.labelled.len() >= LABELLED_MAX {
                break;
            }
            if !self.labelled.contains(&queue.name) {
                self.labelled.insert(queue.name.clone());
            }
        }
        self.queues = Arc::new(queues);
        self.figures = newest;
        self.since = crate::now();
    }

    fn snapshot(&mut self, time_ms: u64) -> QueuesSnapshot {
        let figures = Arc::clone(&self.figures);
        let mut total = QueueSnapshot::default();
        let mut other = QueueSnapshot {
            name: "other".to_owned(),
            ..QueueSnapshot::default()
        };
        let mut labelled = Vec::new();
        for queue in &*self.queues {
            total.add(queue);
            if self.labelled.contains(&queue.name) {
                labelled.push(queue.clone())
            } else {
                other.add(queue)
            }
        }
        let values = |queue: &QueueSnapshot| {
            [
                queue.items as f32,
                queue.oldest_seconds as f32,
                queue.held_seconds as f32,
                queue.in_rate as f32,
                queue.out_rate as f32,
                queue.expired_rate as f32,
            ]
        };
        let tracks = labelled
            .iter()
            .map(|queue| (queue.name.as_str(), values(queue)));
        self.history
            .add(time_ms, [(ALL, values(&total))].into_iter().chain(tracks));
        let unlabelled = self.queues.len() - labelled.len();
        if unlabelled > 0 {
            labelled.push(other);
        }
        let closed = figures.closed.iter().take(SHOWN_MAX);
        let closed = closed.map(|(name, reason)| ClosedQueue {
            name: name.clone(),
            reason: reason.clone(),
        });
        QueuesSnapshot {
            status: figures.status.into(),
            uptime_seconds: figures.uptime_ms as f64 / 1e3,
            silent_seconds: self.since.elapsed().as_secs_f64(),
            count: self.queues.len(),
            unlabelled,
            connections: figures.connections,
            memory_bytes: figures.memory_bytes,
            memory_bytes_max: Some(figures.memory_bytes_max).filter(|most| *most != u64::MAX),
            total,
            latencies: latencies(&figures),
            auth_failures: figures.counters.auth_failures,
            held: held(&figures).map(str::to_owned),
            is_alone: figures.is_alone,
            leader: None,
            trouble: None,
            queues: most_urgent(&self.queues),
            closed: closed.collect(),
            closed_count: figures.closed.len(),
            labelled,
        }
    }
}

/// Why a server answers nothing.
fn held(figures: &ServerFigures) -> Option<&'static str> {
    match (figures.is_lease_over, figures.is_held) {
        (true, _) => Some(LEASE_OVER),
        (false, true) => Some(HELD),
        (false, false) => None,
    }
}

fn queue(figures: &QueueFigures) -> QueueSnapshot {
    let slowest = figures.holders.iter().max_by_key(|holder| holder.held_ms);
    QueueSnapshot {
        name: figures.name.to_string(),
        items: figures.items,
        bytes: figures.bytes,
        disk_bytes: figures.disk_bytes,
        oldest_seconds: figures.oldest_ms as f64 / 1e3,
        open_items: figures.open_items,
        oldest_open_seconds: figures.oldest_open_ms as f64 / 1e3,
        held_seconds: slowest.map_or(0.0, |holder| holder.held_ms as f64 / 1e3),
        held_by: slowest.map(|holder| holder.peer.clone()),
        waiters: figures.waiters,
        in_items: figures.total_items,
        out_items: figures.left_items,
        expired_items: figures.expired_items,
        expired_moved_items: figures.expired_moved_items,
        discarded_items: figures.discarded_items,
        failed_items: figures.failed_items,
        failed_moved_items: figures.failed_moved_items,
        refused: RefusedItems {
            full: figures.refused.full,
            too_large: figures.refused.too_large,
            too_many_ids: figures.refused.too_many_ids,
            no_fanout: figures.refused.no_fanout,
            disk: figures.refused.disk,
        },
        skipped_items: figures.skipped_items,
        fault: figures.fault.clone(),
        requeued_items: figures.requeued_items,
        sync: figures.sync.clone(),
        ..QueueSnapshot::default()
    }
}

fn state(queue: &QueueSnapshot, is_delay: bool, connections: u64) -> QueueState {
    let waits = queue.items > 0;
    if waits && queue.held_seconds >= HELD_SECONDS && queue.oldest_seconds >= HELD_SECONDS {
        return QueueState::Stuck;
    }
    let is_read = queue.out_rate > 0.0 || queue.waiters > 0 || queue.open_items > 0;
    let allowed = match connections {
        0 => ALONE_SECONDS,
        _ => UNREAD_SECONDS,
    };
    if waits && !is_read && !is_delay && queue.oldest_seconds >= allowed {
        QueueState::Unread
    } else {
        QueueState::Good
    }
}

/// The queues to show: those that need attention, then the longest, at most 100, by name.
fn most_urgent(queues: &[QueueSnapshot]) -> Vec<QueueSnapshot> {
    let mut urgent: Vec<&QueueSnapshot> = queues.iter().collect();
    if urgent.len() > SHOWN_MAX {
        urgent.sort_by(|one, other| {
            let key = |queue: &QueueSnapshot| (queue.state, queue.items, queue.open_items);
            key(other).cmp(&key(one))
        });
        urgent.truncate(SHOWN_MAX);
        urgent.sort_by(|one, other| one.name.cmp(&other.name));
    }
    urgent.into_iter().cloned().collect()
}

fn latencies(figures: &ServerFigures) -> Vec<LatencySnapshot> {
    let all = figures.latencies.histograms().map(|(name, histogram)| {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e6;
        let mut counts = [0; BUCKETS.len() + 1];
        for value in histogram.iter_recorded() {
            let seconds = value.value_iterated_to() as f64 / 1e6;
            counts[BUCKETS.partition_point(|bound| *bound < seconds)] += value.count_at_value();
        }
        LatencySnapshot {
            name: name.into(),
            ages: Some(Ages {
                p50: at(0.5),
                p99: at(0.99),
                p999: at(0.999),
            }),
            buckets: (histogram.mean() * histogram.len() as f64 / 1e6, counts),
        }
    });
    all.collect()
}

#[cfg(test)]
mod tests;
