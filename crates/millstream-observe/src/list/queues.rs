//! The metrics of a server of queues.

use super::metric::{Alert, Kind, Metric, Put, Read, metric};
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
    metric("millstream_queue_items", Kind::Gauge, QUEUE, "Items of a queue that wait: ready, only on disk, or delayed", |all, put| {
        each(all, put, |queue| queue.items as f64);
    }),
    metric("millstream_queue_bytes", Kind::Gauge, QUEUE, "Bytes of the items of a queue that wait", |all, put| {
        each(all, put, |queue| queue.bytes as f64);
    }),
    metric("millstream_queue_disk_bytes", Kind::Gauge, QUEUE, "Disk space of a queue", |all, put| {
        each(all, put, |queue| queue.disk_bytes as f64);
    }),
    metric("millstream_queue_oldest_seconds", Kind::Gauge, QUEUE, "Age of the oldest item that waits", |all, put| {
        each(all, put, |queue| queue.oldest_seconds);
    })
    .alert(Alert {
        name: "MillstreamQueueNotRead",
        expr: "millstream_queue_oldest_seconds > 300 and deriv(millstream_queue_oldest_seconds[5m]) > 0.9",
        after: "5m",
        severity: "warning",
        summary: "Items of a queue wait for more than five minutes, and none is taken.",
        action: "Open the page: it shows whether clients are connected and wait for the queue. Start a consumer, or look at the log of the one that there is.",
    }),
    metric("millstream_queue_open_items", Kind::Gauge, QUEUE, "Items that clients have open", |all, put| {
        each(all, put, |queue| queue.open_items as f64);
    }),
    metric("millstream_queue_held_seconds", Kind::Gauge, QUEUE, "Time for which the slowest client has had its oldest item open", |all, put| {
        each(all, put, |queue| queue.held_seconds);
    })
    .alert(Alert {
        name: "MillstreamQueueConsumerStuck",
        expr: "millstream_queue_held_seconds > 60 and millstream_queue_items > 0",
        after: "1m",
        severity: "critical",
        summary: "A client has had an item open for more than a minute, while others wait.",
        action: "Open the page: the queue names the address of the client. Look at that process, or end it: its items are requeued. `open_timeout` requeues them without that.",
    }),
    metric("millstream_queue_waiting_clients", Kind::Gauge, QUEUE, "Clients that wait for an item", |all, put| {
        each(all, put, |queue| queue.waiters as f64);
    }),
    metric("millstream_queue_in_items_total", Kind::Counter, QUEUE, "Items that were put into a queue", |all, put| {
        each(all, put, |queue| queue.in_items as f64);
    }),
    metric("millstream_queue_out_items_total", Kind::Counter, QUEUE, "Items that left a queue: taken and confirmed, or flushed", |all, put| {
        each(all, put, |queue| queue.out_items as f64);
    }),
    metric("millstream_queue_expired_items_total", Kind::Counter, QUEUE, "Items that expired", |all, put| {
        each(all, put, |queue| queue.expired_items as f64);
    }),
    metric("millstream_queue_discarded_items_total", Kind::Counter, QUEUE, "Items that were removed because the queue was full", |all, put| {
        each(all, put, |queue| queue.discarded_items as f64);
    }),
    metric("millstream_queue_refused_items_total", Kind::Counter, QUEUE, "Items that were refused because the queue was full", |all, put| {
        each(all, put, |queue| queue.refused_items as f64);
    })
    .alert(Alert {
        name: "MillstreamQueueFull",
        expr: "increase(millstream_queue_refused_items_total[5m]) + increase(millstream_queue_discarded_items_total[5m]) > 0",
        after: "0m",
        severity: "critical",
        summary: "A queue is full: it refuses items, or discards old ones.",
        action: "Add consumers, or raise `max_items` or `max_bytes` of the queue.",
    }),
    metric("millstream_queue_requeued_items_total", Kind::Counter, QUEUE, "Open items that came back: aborted, timed out, or of a client that left", |all, put| {
        each(all, put, |queue| queue.requeued_items as f64);
    }),
    metric("millstream_queue_failed_items_total", Kind::Counter, QUEUE, "Items that were delivered too often", |all, put| {
        each(all, put, |queue| queue.failed_items as f64);
    })
    .alert(Alert {
        name: "MillstreamQueueItemsFail",
        expr: "increase(millstream_queue_failed_items_total[5m]) > 0",
        after: "0m",
        severity: "warning",
        summary: "Items were delivered too often and moved to the error queue.",
        action: "Peek at the error queue, correct the consumer, and return the items with `millstream queue redrive`.",
    }),
    metric("millstream_queues_open", Kind::Gauge, NONE, "Queues of the server", |all, put| {
        server(all, put, |queues| queues.count as f64);
    }),
    metric("millstream_queues_unlabelled", Kind::Gauge, NONE, "Queues without metrics of their own: they are reported together, as queue \"other\"", |all, put| {
        server(all, put, |queues| queues.unlabelled as f64);
    }),
    metric("millstream_queues_closed", Kind::Gauge, NONE, "Queues that could not be opened", |all, put| {
        server(all, put, |queues| queues.closed_count as f64);
    })
    .alert(Alert {
        name: "MillstreamQueueClosed",
        expr: "millstream_queues_closed > 0",
        after: "1m",
        severity: "critical",
        summary: "A queue could not be opened: its files are damaged, or the system refused.",
        action: "The page has the reason. Read what can be read of a damaged queue with `millstream queue salvage`.",
    }),
    metric("millstream_queues_held", Kind::Gauge, NONE, "1 while a server with --commit-on-replica or --arbiter answers nothing, since not all followers that count acknowledge, or its lease could not be renewed", |all, put| {
        server(all, put, |queues| f64::from(queues.is_held));
    })
    .alert(Alert {
        name: "MillstreamQueuesHeld",
        expr: "millstream_queues_held > 0",
        after: "15s",
        severity: "critical",
        summary: "The server of the queues answers nothing: not all followers that count acknowledge, or its lease could not be renewed.",
        action: "`millstream journal followers queues/.changes` says which is away: start it again (`millstream queue follow`), or forget it if it will not return. With --arbiter the log of the server says whether the arbiter answers.",
    }),
    metric("millstream_queues_alone", Kind::Gauge, NONE, "1 while a server with --arbiter has no follower that could take over", |all, put| {
        server(all, put, |queues| f64::from(queues.is_alone));
    })
    .alert(Alert {
        name: "MillstreamQueuesAlone",
        expr: "millstream_queues_alone > 0",
        after: "1m",
        severity: "warning",
        summary: "No other machine has all that the server of the queues answers: if it is lost, nothing is served.",
        action: "Start the other machines again (`millstream queue serve --arbiter`). The log of one that runs says why it has not caught up.",
    }),
    metric("millstream_queues_follows", Kind::Gauge, NONE, "1 while this machine follows the one that serves the queues (--arbiter)", |all, put| {
        server(all, put, |queues| f64::from(queues.leader.is_some()));
    }),
    metric("millstream_queues_silent_seconds", Kind::Gauge, NONE, "Time since the server of the queues published its figures, which it does once a second", |all, put| {
        server(all, put, |queues| queues.silent_seconds);
    }),
    metric("millstream_queues_connected_clients", Kind::Gauge, NONE, "Clients that are connected", |all, put| {
        server(all, put, |queues| queues.connections as f64);
    }),
    metric("millstream_queues_memory_bytes", Kind::Gauge, NONE, "Memory of the items of all queues", |all, put| {
        server(all, put, |queues| queues.memory_bytes as f64);
    }),
    metric("millstream_queues_auth_failures_total", Kind::Counter, NONE, "Wrong passwords", |all, put| {
        server(all, put, |queues| queues.auth_failures as f64);
    }),
    Metric {
        name: "millstream_queues_latency_seconds",
        kind: Kind::Histogram,
        labels: &["kind"],
        help: "Time of a request from its arrival to its answer (set, get), and of a sync",
        alert: Some(Alert {
            name: "MillstreamQueueDiskSlow",
            expr: "histogram_quantile(0.5, sum by (instance, job, le) (rate(millstream_queues_latency_seconds_bucket{kind=\"sync\"}[5m]))) > 0.5",
            after: "5m",
            severity: "warning",
            summary: "Half of the syncs of the queues take more than half a second.",
            action: "Check the disk of the queues: other load, a failing device, a network file system.",
        }),
        read: Read::Buckets(|all, put| {
            let latencies = all.queues.iter().flat_map(|queues| &queues.latencies);
            for latency in latencies {
                let (sum, counts) = &latency.buckets;
                put(&[latency.name], *sum, counts);
            }
        }),
    },
];
