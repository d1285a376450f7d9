//! What the figures of a server of queues become on the page.

use super::*;
use crate::conditions::{ConditionSnapshot, Evaluator};

fn figures(name: &str, items: u64, total: u64, left: u64) -> QueueFigures {
    QueueFigures {
        name: name.into(),
        items,
        total_items: total,
        left_items: left,
        ..QueueFigures::default()
    }
}

fn known() -> Known {
    Queues::new(ServerWatch::default(), true)
        .known
        .into_inner()
        .unwrap()
}

fn publish(known: &mut Known, number: u64, queues: Vec<QueueFigures>) -> QueuesSnapshot {
    known.advance(Arc::new(ServerFigures {
        number,
        uptime_ms: number * 1_000,
        queues,
        ..ServerFigures::default()
    }));
    known.snapshot(number * 1_000)
}

#[test]
fn items_taken_before_the_first_look_are_counted() {
    let mut known = known();
    let of = |all: &QueuesSnapshot| (all.queues[0].in_items, all.queues[0].out_items);
    let at = publish(&mut known, 1, vec![figures("jobs", 10, 2, 1)]);
    assert_eq!((of(&at), at.queues[0].out_rate), ((2, 1), 0.0));
    // Five more came, and eight left.
    let at = publish(&mut known, 2, vec![figures("jobs", 7, 7, 9)]);
    assert_eq!(of(&at), (7, 9));
    assert_eq!((at.queues[0].in_rate, at.queues[0].out_rate), (5.0, 8.0));
    // A queue that is new, from which an item has left already.
    let new = figures("new", 1, 2, 1);
    let at = publish(&mut known, 3, vec![figures("jobs", 7, 7, 9), new]);
    assert_eq!((at.queues[1].in_items, at.queues[1].out_items), (2, 1));
    assert_eq!((at.queues[1].in_rate, at.queues[1].out_rate), (2.0, 1.0));
    // Deleted and created again.
    let at = publish(&mut known, 4, vec![figures("jobs", 1, 1, 0)]);
    assert_eq!((of(&at), at.queues[0].out_rate), ((1, 0), 0.0));
    assert_eq!((at.total.items, at.count), (1, 1));
}

#[test]
fn a_connection_that_keeps_an_item_is_named_only_while_others_wait() {
    let mut known = known();
    let mut queue = figures("jobs", 3, 4, 0);
    queue.open_items = 1;
    queue.oldest_ms = 9_000;
    queue.holders = vec![millstream_queue::server::watch::Holder {
        peer: "1.2.3.4:5".to_owned(),
        items: 1,
        held_ms: 8_000,
        ..Default::default()
    }];
    let at = publish(&mut known, 1, vec![queue.clone()]);
    assert_eq!(at.queues[0].state, QueueState::Stuck);
    let [condition] = &conditions(at)[..] else {
        panic!("one condition")
    };
    assert!(condition.words.contains("1.2.3.4:5") && condition.words.contains("\"jobs\""));

    (queue.items, queue.oldest_ms) = (0, 0);
    let at = publish(&mut known, 2, vec![queue]);
    assert_eq!(at.queues[0].state, QueueState::Good);
    assert_eq!(conditions(at), []);
}

#[test]
fn a_queue_is_unread_after_a_minute_or_where_no_client_is_connected() {
    for (connections, oldest_ms, state) in [
        (1, 59_000, QueueState::Good),
        (1, 60_000, QueueState::Unread),
        (0, 1_999, QueueState::Good),
        (0, 2_000, QueueState::Unread),
    ] {
        let mut queue = queue(&figures("jobs", 3, 4, 0));
        queue.oldest_seconds = oldest_ms as f64 / 1e3;
        assert_eq!(
            super::state(&queue, false, connections),
            state,
            "{connections} {oldest_ms}"
        );
        // Items that wait to move on need no consumer.
        assert_eq!(super::state(&queue, true, connections), QueueState::Good);
    }
}

/// What needs attention of the queues.
fn conditions(queues: QueuesSnapshot) -> Vec<ConditionSnapshot> {
    let mut snapshot = Snapshot {
        queues: Some(queues),
        ..Snapshot::default()
    };
    Evaluator::default().complete(&mut snapshot);
    snapshot.conditions
}

#[test]
fn ten_thousand_queues_have_bounded_answers() {
    let mut known = known();
    let queues = (0..10_000).map(|number| figures(&format!("q{number:05}"), number, number, 0));
    let at = publish(&mut known, 1, queues.collect());
    assert_eq!((at.count, at.unlabelled), (10_000, 10_000 - LABELLED_MAX));
    assert_eq!(at.queues.len(), SHOWN_MAX);
    assert_eq!(at.queues.last().unwrap().items, 9_999);
    assert_eq!(at.labelled.len(), LABELLED_MAX + 1);
    let labelled: u64 = at.labelled.iter().map(|queue| queue.items).sum();
    assert_eq!((labelled, at.total.items), (49_995_000, 49_995_000));
    // The same queues keep their metrics when others come before them.
    let mut queues: Vec<_> = (0..10_000)
        .map(|number| figures(&format!("q{number:05}"), number, number, 0))
        .collect();
    queues.insert(0, figures("a", 1, 1, 0));
    let at = publish(&mut known, 2, queues);
    assert_eq!(at.labelled[0].name, "q00000");
}
