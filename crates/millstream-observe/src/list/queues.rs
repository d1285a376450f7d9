//! The metrics of a server of queues.

use super::metric::{Kind, Metric, Put, Read, metric};
use crate::sections::queue_figures::{QueueSnapshot, QueuesSnapshot};
use crate::snapshot::Snapshot;

const QUEUE: &[&str] = &["queue"];
const NONE: &[&str] = &[];

fn each(snapshot: &Snapshot, put: Put<'_>, of: fn(&QueueSnapshot) -> f64) {
    let queues = snapshot.queues.iter().flat_map(|queues| &queues.labelled);
    for queue in queues {
        put(&[&queue.name], of(queue));
    }
}

fn server(snapshot: &Snapshot, put: Put<'_>, of: fn(&QueuesSnapshot) -> f64) {
    if let Some(queues) = &snapshot.queues {
        put(&[], of(queues));
    }
}

/// The metrics of a server of queues, in the order of the guide.
pub static QUEUES: &[Metric] = &[
    metric(
        "millstream_queue_items",
        Kind::Gauge,
        QUEUE,
        "Items of a queue that wait: ready, only on disk, or delayed",
        |all, put| {
            each(all, put, |queue| queue.items as f64);
        },
    ),
    metric(
        "millstream_queue_bytes",
        Kind::Gauge,
        QUEUE,
        "Bytes of the items of a queue that wait",
        |all, put| {
            each(all, put, |queue| queue.bytes as f64);
        },
    ),
    metric(
        "millstream_queue_disk_bytes",
        Kind::Gauge,
        QUEUE,
        "Disk space of a queue",
        |all, put| {
            each(all, put, |queue| queue.disk_bytes as f64);
        },
    ),
    metric(
        "millstream_queue_oldest_seconds",
        Kind::Gauge,
        QUEUE,
        "Age of the oldest item that waits",
        |all, put| {
            each(all, put, |queue| queue.oldest_seconds);
        },
    ),
    metric(
        "millstream_queue_open_items",
        Kind::Gauge,
        QUEUE,
        "Items that clients have open",
        |all, put| {
            each(all, put, |queue| queue.open_items as f64);
        },
    ),
    metric(
        "millstream_queue_held_seconds",
        Kind::Gauge,
        QUEUE,
        "Time for which the slowest client has had its oldest item open",
        |all, put| {
            each(all, put, |queue| queue.held_seconds);
        },
    ),
    metric(
        "millstream_queue_waiting_clients",
        Kind::Gauge,
        QUEUE,
        "Clients that wait for an item",
        |all, put| {
            each(all, put, |queue| queue.waiters as f64);
        },
    ),
    metric(
        "millstream_queue_in_items_total",
        Kind::Counter,
        QUEUE,
        "Items that were put into a queue",
        |all, put| {
            each(all, put, |queue| queue.in_items as f64);
        },
    ),
    metric(
        "millstream_queue_out_items_total",
        Kind::Counter,
        QUEUE,
        "Items that left a queue: taken and confirmed, or flushed",
        |all, put| {
            each(all, put, |queue| queue.out_items as f64);
        },
    ),
    metric(
        "millstream_queue_expired_items_total",
        Kind::Counter,
        QUEUE,
        "Items that expired",
        |all, put| {
            each(all, put, |queue| queue.expired_items as f64);
        },
    ),
    metric(
        "millstream_queue_discarded_items_total",
        Kind::Counter,
        QUEUE,
        "Items that were removed because the queue was full",
        |all, put| {
            each(all, put, |queue| queue.discarded_items as f64);
        },
    ),
    metric(
        "millstream_queue_refused_items_total",
        Kind::Counter,
        &["queue", "reason"],
        "Items that were refused: the queue was full, the item too large, the disk full or failing",
        |all, put| {
            for queue in all.queues.iter().flat_map(|queues| &queues.labelled) {
                for (reason, items) in queue.refused.by_reason() {
                    put(&[&queue.name, reason], items as f64);
                }
            }
        },
    ),
    metric(
        "millstream_queue_skipped_items_total",
        Kind::Counter,
        QUEUE,
        "Items of its parent of which a full fan-out queue got no copy",
        |all, put| {
            each(all, put, |queue| queue.skipped_items as f64);
        },
    ),
    metric(
        "millstream_queue_requeued_items_total",
        Kind::Counter,
        QUEUE,
        "Open items that came back: aborted, timed out, or of a client that left",
        |all, put| {
            each(all, put, |queue| queue.requeued_items as f64);
        },
    ),
    metric(
        "millstream_queue_failed_items_total",
        Kind::Counter,
        QUEUE,
        "Items that were delivered too often",
        |all, put| {
            each(all, put, |queue| queue.failed_items as f64);
        },
    ),
    metric(
        "millstream_queues_open",
        Kind::Gauge,
        NONE,
        "Queues of the server",
        |all, put| {
            server(all, put, |queues| queues.count as f64);
        },
    ),
    metric(
        "millstream_queues_unlabelled",
        Kind::Gauge,
        NONE,
        "Queues without metrics of their own: they are reported together, as queue \"other\"",
        |all, put| {
            server(all, put, |queues| queues.unlabelled as f64);
        },
    ),
    metric(
        "millstream_queues_closed",
        Kind::Gauge,
        NONE,
        "Queues that could not be opened",
        |all, put| {
            server(all, put, |queues| queues.closed_count as f64);
        },
    ),
    metric(
        "millstream_queues_held",
        Kind::Gauge,
        NONE,
        "1 while a server with --commit-on-replica or --arbiter answers nothing, since not all followers that count acknowledge, or its lease could not be renewed",
        |all, put| {
            server(all, put, |queues| f64::from(queues.held.is_some()));
        },
    ),
    metric(
        "millstream_queues_alone",
        Kind::Gauge,
        NONE,
        "1 while a server with --arbiter has no follower that could take over",
        |all, put| {
            server(all, put, |queues| f64::from(queues.is_alone));
        },
    ),
    metric(
        "millstream_queues_follows",
        Kind::Gauge,
        NONE,
        "1 while this machine follows the one that serves the queues (--arbiter)",
        |all, put| {
            server(all, put, |queues| f64::from(queues.leader.is_some()));
        },
    ),
    metric(
        "millstream_queues_silent_seconds",
        Kind::Gauge,
        NONE,
        "Time since the server of the queues published its figures, which it does once a second",
        |all, put| {
            server(all, put, |queues| queues.silent_seconds);
        },
    ),
    metric(
        "millstream_queues_connected_clients",
        Kind::Gauge,
        NONE,
        "Clients that are connected",
        |all, put| {
            server(all, put, |queues| queues.connections as f64);
        },
    ),
    metric(
        "millstream_queues_memory_bytes",
        Kind::Gauge,
        NONE,
        "Memory of the items of all queues",
        |all, put| {
            server(all, put, |queues| queues.memory_bytes as f64);
        },
    ),
    metric(
        "millstream_queues_auth_failures_total",
        Kind::Counter,
        NONE,
        "Wrong passwords",
        |all, put| {
            server(all, put, |queues| queues.auth_failures as f64);
        },
    ),
    Metric {
        name: "millstream_queues_latency_seconds",
        kind: Kind::Histogram,
        labels: &["kind"],
        help: "Time of a request from its arrival to its answer (set, get), and of a sync",
        read: Read::Buckets(|all, put| {
            let latencies = all.queues.iter().flat_map(|queues| &queues.latencies);
            for latency in latencies {
                let (sum, counts) = &latency.buckets;
                put(&[&latency.name], *sum, counts);
            }
        }),
    },
];
