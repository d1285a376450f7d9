//! The conditions of a server of queues.

use super::condition::{Condition, EVENT_SECONDS, Finder};
use crate::ages::BUCKETS;
use crate::sections::queue_figures::{QueueSnapshot, QueueState, QueuesSnapshot};
use crate::snapshot::{Severity, Snapshot};

/// The subject of a condition of the whole server.
const SERVER: (&str, &str) = ("queues", "queues");
/// The time without figures that is reported.
const SILENT_SECONDS: f64 = 5.0;
/// The median of the syncs of a minute that is reported, and the least number of syncs.
const SYNC_SECONDS: f64 = 0.5;
const SYNCS_MIN: u64 = 3;

/// The seconds for which a disk that fails some sets, and others not, is reported.
const FAULT_SECONDS: u64 = 5;

/// The conditions, in the order of the guide.
pub(super) static QUEUES: &[Condition] = &[
    Condition {
        name: "MillstreamQueueNotRead",
        severity: "critical",
        after: "5m",
        summary: "Items of a queue wait, and none is taken: for a minute, or since no client is connected; or they expire.",
        action: "Start a consumer, or look at the log of the one that there is; the page shows whether clients wait for the queue. Items of an error queue are returned with `millstream queue redrive`.",
        ends: "when an item is taken, or a client waits",
        is_obstacle: false,
        lasts: 0,
        look: not_read,
    },
    Condition {
        name: "MillstreamQueueConsumerStuck",
        severity: "warning",
        after: "1m",
        summary: "A client has an item open for seconds, while others wait.",
        action: "The sentence names the address of the client. If it does no long job, end it: its items are requeued. `open_timeout` requeues them without that, and a long job renews its lease with `touch`.",
        ends: "when the client confirms or aborts, or nothing waits",
        is_obstacle: false,
        lasts: 0,
        look: kept,
    },
    Condition {
        name: "MillstreamQueueFull",
        severity: "critical",
        after: "0m",
        summary: "A queue is full: it refuses items, discards old ones, or gets no copies.",
        action: "Add consumers, or raise `max_items` or `max_bytes` of the queue.",
        ends: "5 minutes after the last one",
        is_obstacle: false,
        lasts: EVENT_SECONDS,
        look: full,
    },
    Condition {
        name: "MillstreamQueueDiskFails",
        severity: "critical",
        after: "0m",
        summary: "Items of a queue cannot be written: the disk is full, or fails.",
        action: "Free space on the disk of the queues. After a failed sync look at the disk, and restart the server.",
        ends: "when an item is written, or a minute after the last set that failed; after a failed sync with the restart",
        is_obstacle: true,
        lasts: FAULT_SECONDS,
        look: disk_fails,
    },
    Condition {
        name: "MillstreamQueueRefusesItems",
        severity: "warning",
        after: "0m",
        summary: "A queue that is not full refuses items: they are too large, have too many ids, or would be in no queue.",
        action: "Correct the producer, or raise `max_item_bytes`, `max_bytes` or `dedupe_ids` of the queue. A queue that is `fanout_only` needs a fan-out queue: `millstream queue get QUEUE+NAME` makes one.",
        ends: "5 minutes after the last one",
        is_obstacle: false,
        lasts: EVENT_SECONDS,
        look: refused,
    },
    Condition {
        name: "MillstreamQueueItemsFail",
        severity: "warning",
        after: "0m",
        summary: "Items were delivered too often: they moved to the error queue, or were dropped without one.",
        action: "Correct the consumer. Peek at the error queue, and return the items with `millstream queue redrive`; if there is none, set `error_queue`.",
        ends: "5 minutes after the last one",
        is_obstacle: false,
        lasts: EVENT_SECONDS,
        look: failed,
    },
    Condition {
        name: "MillstreamQueueClosed",
        severity: "critical",
        after: "1m",
        summary: "A queue could not be opened: its files are damaged, or the system refused.",
        action: "The page has the reason. Read what can be read of a damaged queue with `millstream queue salvage`.",
        ends: "when the queue is opened",
        is_obstacle: false,
        lasts: 0,
        look: closed,
    },
    Condition {
        name: "MillstreamQueuesReadOnly",
        severity: "warning",
        after: "5m",
        summary: "The server of the queues takes no sets, since its status is READONLY or QUIESCENT.",
        action: "`millstream queue status UP` ends it.",
        ends: "with the status UP, or a restart",
        is_obstacle: true,
        lasts: 0,
        look: read_only,
    },
    Condition {
        name: "MillstreamQueuesHeld",
        severity: "critical",
        after: "15s",
        summary: "The server of the queues answers nothing: not all followers that count acknowledge, or its lease could not be renewed.",
        action: "`millstream journal followers queues/.changes` says which is away: start it again (`millstream queue follow`), or forget it if it will not return. With --arbiter the log of the server says whether the arbiter answers.",
        ends: "when they acknowledge, or the lease is renewed",
        is_obstacle: true,
        lasts: 0,
        look: held,
    },
    Condition {
        name: "MillstreamQueuesAlone",
        severity: "warning",
        after: "1m",
        summary: "No other machine has all that the server of the queues answers: if it is lost, nothing is served.",
        action: "Start the other machines again (`millstream queue serve --arbiter`). The log of one that runs says why it has not caught up.",
        ends: "when another machine has caught up",
        is_obstacle: false,
        lasts: 0,
        look: alone,
    },
    Condition {
        name: "MillstreamQueuesNotFollowed",
        severity: "critical",
        after: "1m",
        summary: "This machine should follow the one that serves the queues, and does not.",
        action: "The sentence has the reason: the other machine, the network, or the arbiter.",
        ends: "when it follows again",
        is_obstacle: true,
        lasts: 0,
        look: not_followed,
    },
    Condition {
        name: "MillstreamQueuesSilent",
        severity: "critical",
        after: "15s",
        summary: "The server of the queues has published no figures for seconds, which it does once a second.",
        action: "Look at the processor and the disk of the machine: the server does not get to run, or waits for a call of the system.",
        ends: "with its next figures",
        is_obstacle: true,
        lasts: 0,
        look: silent,
    },
    Condition {
        name: "MillstreamQueueDiskSlow",
        severity: "warning",
        after: "5m",
        summary: "Half of the syncs of the last minute took more than half a second.",
        action: "Check the disk of the queues: other load, a failing device, a network file system.",
        ends: "when syncs are faster for a minute",
        is_obstacle: false,
        lasts: 0,
        look: disk,
    },
];

fn server(all: &Snapshot) -> Option<&QueuesSnapshot> {
    all.queues.as_ref().filter(|queues| queues.leader.is_none())
}

/// The queues in a state. It is that of the section, by which it also chooses the queues to show.
fn in_state(all: &Snapshot, state: QueueState) -> impl Iterator<Item = &QueueSnapshot> {
    let queues = server(all).into_iter().flat_map(|server| &server.queues);
    queues.filter(move |queue| queue.state == state)
}

fn not_read(all: &Snapshot, find: &mut Finder<'_>) {
    for queue in in_state(all, QueueState::Unread) {
        let name = &queue.name;
        let items = queue.items;
        let oldest = queue.oldest_seconds;
        let words = format!(
            "No client takes items of queue \"{name}\": {items} wait, the oldest for {oldest:.0} s."
        );
        find.found(("queue", name), Severity::Critical, words);
    }
    for queue in server(all).into_iter().flat_map(|server| &server.labelled) {
        // What has moved to another queue is waited for there.
        let dropped = queue
            .expired_items
            .saturating_sub(queue.expired_moved_items);
        let expired = find.grown(0, &queue.name, dropped).minute;
        let taken = find.grown(1, &queue.name, queue.out_items).minute;
        if expired > 0 && taken == 0 && queue.open_items + queue.waiters == 0 {
            let words = format!(
                "{expired} items of queue \"{}\" have expired in the last minute, and none was taken.",
                queue.name
            );
            find.found(("queue", &queue.name), Severity::Critical, words);
        }
    }
}

/// A long job may keep an item, and renew its lease.
fn kept(all: &Snapshot, find: &mut Finder<'_>) {
    for queue in in_state(all, QueueState::Stuck) {
        let client = queue.held_by.as_deref().unwrap_or_default();
        let name = &queue.name;
        let items = queue.items;
        let held = queue.held_seconds;
        let words = format!(
            "Client {client} has kept an item of queue \"{name}\" open for {held:.0} s, while {items} items wait."
        );
        find.found(("queue", name), Severity::Warning, words);
    }
}

fn full(all: &Snapshot, find: &mut Finder<'_>) {
    for queue in server(all).into_iter().flat_map(|server| &server.labelled) {
        let refused = find.grown(0, &queue.name, queue.refused.full).now;
        let discarded = find.grown(1, &queue.name, queue.discarded_items).now;
        let skipped = find.grown(2, &queue.name, queue.skipped_items).now;
        if refused + discarded + skipped > 0 {
            let words = format!(
                "Queue \"{}\" is full: it has refused {} items, discarded {} old ones, and got no copy of {}.",
                queue.name, queue.refused.full, queue.discarded_items, queue.skipped_items
            );
            find.found(("queue", &queue.name), Severity::Critical, words);
        }
    }
}

fn disk_fails(all: &Snapshot, find: &mut Finder<'_>) {
    for queue in server(all).into_iter().flat_map(|server| &server.labelled) {
        if let Some(fault) = &queue.fault {
            let items = queue.refused.disk;
            let words = format!("Items cannot be written, and {items} were refused: {fault}");
            find.found(("queue", &queue.name), Severity::Critical, words);
        }
    }
}

fn refused(all: &Snapshot, find: &mut Finder<'_>) {
    for queue in server(all).into_iter().flat_map(|server| &server.labelled) {
        let reasons = [
            (queue.refused.too_large, "too large"),
            (queue.refused.too_many_ids, "with an id too many"),
            (queue.refused.no_fanout, "without a fan-out queue to be in"),
        ];
        let all: u64 = reasons.iter().map(|reason| reason.0).sum();
        if find.grown(0, &queue.name, all).now > 0 {
            let reasons = reasons.iter().filter(|reason| reason.0 > 0);
            let reasons: Vec<_> = reasons
                .map(|(items, why)| format!("{items} {why}"))
                .collect();
            let words = format!(
                "Queue \"{}\" has refused items: {}.",
                queue.name,
                reasons.join(", ")
            );
            find.found(("queue", &queue.name), Severity::Warning, words);
        }
    }
}

fn read_only(all: &Snapshot, find: &mut Finder<'_>) {
    let words = match server(all).map(|server| &*server.status) {
        Some("read only") => "The server of the queues takes no sets: its status is READONLY.",
        Some("quiescent") => {
            "The server of the queues takes neither sets nor gets: its status is QUIESCENT."
        }
        _ => return,
    };
    find.found(SERVER, Severity::Warning, words.to_owned());
}

fn failed(all: &Snapshot, find: &mut Finder<'_>) {
    for queue in server(all).into_iter().flat_map(|server| &server.labelled) {
        if find.grown(0, &queue.name, queue.failed_items).now > 0 {
            let moved = queue.failed_moved_items;
            let dropped = queue.failed_items.saturating_sub(moved);
            let words = format!(
                "{} items of queue \"{}\" were delivered too often: {moved} moved to its error queue, {dropped} were dropped.",
                queue.failed_items, queue.name
            );
            find.found(("queue", &queue.name), Severity::Warning, words);
        }
    }
}

fn closed(all: &Snapshot, find: &mut Finder<'_>) {
    let Some(server) = server(all) else { return };
    if let Some(first) = server.closed.first() {
        let words = match server.closed_count {
            1 => format!(
                "Queue \"{}\" could not be opened: {}",
                first.name, first.reason
            ),
            count => format!(
                "{count} queues could not be opened, \"{}\" for one: {}",
                first.name, first.reason
            ),
        };
        find.found(SERVER, Severity::Critical, words);
    }
}

fn held(all: &Snapshot, find: &mut Finder<'_>) {
    if let Some(why) = server(all).and_then(|server| server.held.clone()) {
        find.found(SERVER, Severity::Critical, why);
    }
}

fn alone(all: &Snapshot, find: &mut Finder<'_>) {
    if server(all).is_some_and(|server| server.is_alone) {
        let words = "No other machine has all that is answered: none could take over if this one were lost.";
        find.found(SERVER, Severity::Warning, words.to_owned());
    }
}

fn not_followed(all: &Snapshot, find: &mut Finder<'_>) {
    if let Some(trouble) = all
        .queues
        .as_ref()
        .and_then(|queues| queues.trouble.clone())
    {
        find.found(SERVER, Severity::Critical, trouble);
    }
}

fn silent(all: &Snapshot, find: &mut Finder<'_>) {
    let silent = server(all).map_or(0.0, |server| server.silent_seconds);
    if silent > SILENT_SECONDS {
        let words = format!("The server of the queues has published nothing for {silent:.0} s.");
        find.found(SERVER, Severity::Critical, words);
    }
}

fn disk(all: &Snapshot, find: &mut Finder<'_>) {
    let latencies = server(all).into_iter().flat_map(|server| &server.latencies);
    for sync in latencies.filter(|latency| latency.name == "sync") {
        let mut all = 0;
        let mut fast = 0;
        for (slot, count) in sync.buckets.1.iter().enumerate() {
            let minute = find.grown(slot as u8, "sync", *count).minute;
            all += minute;
            if BUCKETS
                .get(slot)
                .is_some_and(|bound| *bound <= SYNC_SECONDS)
            {
                fast += minute;
            }
        }
        if all >= SYNCS_MIN && fast * 2 < all {
            let words = format!(
                "Of {all} syncs of the last minute {} took more than {SYNC_SECONDS} s.",
                all - fast
            );
            find.found(SERVER, Severity::Warning, words);
        }
    }
}
