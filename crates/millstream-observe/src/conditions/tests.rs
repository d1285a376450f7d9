//! Each condition of the list is planted in a snapshot in which nothing else is wrong.

use super::*;
use crate::ages::BUCKETS;
use crate::sections::journal_figures::{
    CursorSnapshot, JournalSnapshot, JournalState, JournalsSnapshot,
};
use crate::sections::queue_figures::{
    ClosedQueue, LatencySnapshot, QueueSnapshot, QueueState, QueuesSnapshot,
};
use crate::sections::service_figures::{
    CallSnapshot, InputSnapshot, PartSnapshot, ServiceSnapshot, ServiceState, ServicesSnapshot,
};
use crate::snapshot::{
    Bottleneck, EpochSnapshot, Limit, PartitionSnapshot, ProcessSnapshot, Restart, SinkSnapshot,
    Snapshot, SourceSnapshot, State, StepSnapshot, WorkerSnapshot,
};

/// A process of which everything is right.
fn healthy() -> Snapshot {
    let queue = QueueSnapshot {
        name: "jobs".to_owned(),
        ..QueueSnapshot::default()
    };
    Snapshot {
        flow: "f".to_owned(),
        state: State::Running,
        time_ms: 10_000_000,
        seconds: 100.0,
        steps: vec![StepSnapshot {
            name: "book".to_owned(),
            items_in: 1000,
            ..StepSnapshot::default()
        }],
        workers: vec![WorkerSnapshot::default()],
        processes: vec![ProcessSnapshot {
            process: 1,
            state: "running".to_owned(),
            ..ProcessSnapshot::default()
        }],
        sources: vec![SourceSnapshot {
            name: "in".to_owned(),
            ..SourceSnapshot::default()
        }],
        sinks: vec![SinkSnapshot {
            name: "out".to_owned(),
            address: "a shop".to_owned(),
            ..SinkSnapshot::default()
        }],
        epochs: Some(EpochSnapshot {
            length_seconds: 1.0,
            ..EpochSnapshot::default()
        }),
        queues: Some(QueuesSnapshot {
            queues: vec![queue.clone()],
            labelled: vec![queue],
            ..QueuesSnapshot::default()
        }),
        journals: Some(JournalsSnapshot {
            journals: vec![JournalSnapshot {
                name: "orders".to_owned(),
                ..JournalSnapshot::default()
            }],
            ..JournalsSnapshot::default()
        }),
        services: Some(ServicesSnapshot {
            services: vec![ServiceSnapshot {
                name: "Desk".to_owned(),
                ..ServiceSnapshot::default()
            }],
            ..ServicesSnapshot::default()
        }),
        ..Snapshot::default()
    }
}

fn queues(all: &mut Snapshot) -> &mut QueuesSnapshot {
    all.queues.as_mut().unwrap()
}

fn queue(all: &mut Snapshot, state: QueueState) {
    let queue = &mut queues(all).queues[0];
    (queue.state, queue.items, queue.held_by) = (state, 4, Some("1.2.3.4:5".to_owned()));
}

fn journal(all: &mut Snapshot, state: JournalState) {
    let journal = &mut all.journals.as_mut().unwrap().journals[0];
    journal.state = state;
    journal.cursors = vec![CursorSnapshot {
        name: "backup".to_owned(),
        is_follower: true,
        ..CursorSnapshot::default()
    }];
}

fn service(all: &mut Snapshot) -> &mut ServiceSnapshot {
    &mut all.services.as_mut().unwrap().services[0]
}

/// The watermarks of two sources of which a step waits for both, by their age in seconds; none before the first item.
fn joined(all: &mut Snapshot, seconds: u64, one: Option<f64>, other: Option<f64>) {
    let source = |name: &str, with: &str, lag: Option<f64>| SourceSnapshot {
        name: name.to_owned(),
        watermark_lag_seconds: lag,
        held_by: lag.map(|_| "0".to_owned()),
        without_items: Some("0".to_owned()).filter(|_| lag.is_none()),
        partitions: vec![PartitionSnapshot {
            watermark_lag_seconds: lag,
            ..PartitionSnapshot::default()
        }],
        joined_with: vec![with.to_owned()],
        ..SourceSnapshot::default()
    };
    all.sources = vec![source("in", "silent", one), source("silent", "in", other)];
    all.time_ms += seconds * 1000;
}

/// Plants a condition; the value is that of the seconds since the beginning, for those that need some time.
type Plant = fn(&mut Snapshot, u64);

/// The condition, what of, a part of the sentence, and the plant.
const PLANTS: &[(&str, &str, &str, Plant)] = &[
    (
        "MillstreamFlowDown",
        "f",
        "waits for process 2.",
        |all, _| {
            all.state = State::Starting;
            all.waiting = Some("The flow waits for process 2".to_owned());
        },
    ),
    ("MillstreamFlowRestarts", "f", "3 times", |all, _| {
        let restart = Restart {
            time_ms: 9_999_000,
            cause: "a fault".to_owned(),
        };
        all.restarts = vec![restart; 3];
    }),
    ("MillstreamProcessLost", "1", "no news for 4 s", |all, _| {
        (all.processes[0].state, all.processes[0].silent_seconds) = ("lost".to_owned(), 4.0);
    }),
    ("MillstreamStepSaturated", "book", "limits", |all, _| {
        let words = "book limits the flow.".to_owned();
        all.bottleneck = Some(Bottleneck {
            step: "book".to_owned(),
            words,
            limit: Limit::Step,
        });
    }),
    (
        "MillstreamItemsSkipped",
        "book",
        "skipped 3 of 1000 items, 2 of them",
        |all, _| {
            (all.steps[0].skipped, all.steps[0].dead_letters) = (3, 2);
        },
    ),
    (
        "MillstreamItemsSkipped",
        "out",
        "a shop has refused 2 records",
        |all, _| {
            all.sinks[0].refused_records = 2;
        },
    ),
    (
        "MillstreamItemsLate",
        "book",
        "dropped 20 of 1000",
        |all, _| all.steps[0].late_dropped = 20,
    ),
    ("MillstreamInputFaults", "book", "closed 1", |all, _| {
        all.steps[0].faults = 1
    }),
    (
        "MillstreamWorkerStuck",
        "book",
        "inside book for 31 s",
        |all, _| {
            let words = "book limits the flow.".to_owned();
            all.bottleneck = Some(Bottleneck {
                step: "book".to_owned(),
                words,
                limit: Limit::Step,
            });
            (all.workers[0].inside_seconds, all.workers[0].step) =
                (Some(31.0), Some("book".to_owned()));
        },
    ),
    (
        "MillstreamSourceLagGrows",
        "in",
        "s after its input",
        |all, seconds| {
            all.sources[0].lag_seconds = Some(100.0 + seconds as f64);
        },
    ),
    (
        "MillstreamWatermarkHeldBack",
        "in",
        "Partition p1 of in",
        |all, seconds| {
            let partition = |lag| PartitionSnapshot {
                watermark_lag_seconds: Some(lag),
                ..PartitionSnapshot::default()
            };
            all.sources[0].partitions = vec![partition(1.0), partition(400.0 + seconds as f64)];
            all.sources[0].watermark_lag_seconds = Some(400.0 + seconds as f64);
            all.sources[0].held_by = Some("p1".to_owned());
        },
    ),
    (
        "MillstreamWatermarkHeldBack",
        "in",
        "Partition p2 of in has had no item",
        |all, _| {
            all.sources[0].held_by = Some("p1".to_owned());
            all.sources[0].without_items = Some("p2".to_owned());
        },
    ),
    (
        "MillstreamWatermarkHeldBack",
        "silent",
        "Partition 0 of silent holds the watermark back: it is 440 s old, that of in 1 s.",
        |all, seconds| joined(all, seconds, Some(1.0), Some(400.0 + seconds as f64)),
    ),
    (
        "MillstreamWatermarkHeldBack",
        "silent",
        "Partition 0 of silent has had no item",
        |all, seconds| joined(all, seconds, Some(1.0), None),
    ),
    (
        "MillstreamSourceLagGrows",
        "in",
        "has not read 10",
        |all, seconds| all.sources[0].lag_records = Some(1000 + seconds),
    ),
    (
        "MillstreamQueueNotRead",
        "jobs",
        "7 items of queue \"jobs\" have expired",
        |all, _| queues(all).labelled[0].expired_items = 7,
    ),
    (
        "MillstreamServiceRestarts",
        "desk",
        "started again 3 times, at last because of: a bad record",
        |all, _| {
            let state = "running".to_owned();
            let error = Some("a bad record".to_owned());
            all.services.as_mut().unwrap().processes = vec![PartSnapshot {
                name: "desk".to_owned(),
                state,
                error,
                restarts: 3,
                ..PartSnapshot::default()
            }];
        },
    ),
    (
        "MillstreamOutboxWaits",
        "out",
        "3 attempts in a row",
        |all, _| all.sinks[0].failures_in_a_row = 3,
    ),
    ("MillstreamOutboxWaits", "out", "too slowly", |all, _| {
        (all.sinks[0].waiting_records, all.sinks[0].waiting_seconds) = (9, 64.0);
    }),
    ("MillstreamOutboxWaits", "out", "full", |all, _| {
        let words = "The outbox of out is full".to_owned();
        all.bottleneck = Some(Bottleneck {
            step: "out".to_owned(),
            words,
            limit: Limit::Outbox,
        });
    }),
    ("MillstreamDiskSlow", "epochs", "1.5 s", |all, _| {
        all.epochs.as_mut().unwrap().last_seconds[2] = 1.5
    }),
    ("MillstreamNoCommit", "epochs", "for 4 s", |all, _| {
        all.epochs.as_mut().unwrap().age_seconds = 4.0
    }),
    ("MillstreamQueueNotRead", "jobs", "4 wait", |all, _| {
        queue(all, QueueState::Unread)
    }),
    (
        "MillstreamQueueConsumerStuck",
        "jobs",
        "1.2.3.4:5",
        |all, _| queue(all, QueueState::Stuck),
    ),
    (
        "MillstreamQueueFull",
        "jobs",
        "refused 3 items, discarded 1",
        |all, _| {
            let queue = &mut queues(all).labelled[0];
            (queue.refused.full, queue.discarded_items) = (3, 1);
        },
    ),
    (
        "MillstreamQueueFull",
        "jobs",
        "got no copy of 5",
        |all, _| queues(all).labelled[0].skipped_items = 5,
    ),
    (
        "MillstreamQueueDiskFails",
        "jobs",
        "6 were refused: the disk is full",
        |all, _| {
            let queue = &mut queues(all).labelled[0];
            (queue.refused.disk, queue.fault) = (6, Some("the disk is full".to_owned()));
        },
    ),
    (
        "MillstreamQueueRefusesItems",
        "jobs",
        "2 too large, 1 with an id too many",
        |all, _| {
            let refused = &mut queues(all).labelled[0].refused;
            (refused.too_large, refused.too_many_ids) = (2, 1);
        },
    ),
    (
        "MillstreamQueuesReadOnly",
        "queues",
        "neither sets nor gets",
        |all, _| queues(all).status = "quiescent".into(),
    ),
    (
        "MillstreamQueueItemsFail",
        "jobs",
        "2 items of queue \"jobs\" were delivered too often: 0 moved to its error queue, 2 were dropped",
        |all, _| queues(all).labelled[0].failed_items = 2,
    ),
    ("MillstreamQueueClosed", "queues", "\"bad\"", |all, _| {
        let name = "bad".to_owned();
        let reason = "damaged".to_owned();
        (queues(all).closed, queues(all).closed_count) = (vec![ClosedQueue { name, reason }], 1);
    }),
    ("MillstreamQueuesHeld", "queues", "a reason", |all, _| {
        queues(all).held = Some("a reason".to_owned())
    }),
    (
        "MillstreamQueuesAlone",
        "queues",
        "No other machine",
        |all, _| queues(all).is_alone = true,
    ),
    (
        "MillstreamQueuesNotFollowed",
        "queues",
        "a reason",
        |all, _| {
            let one = || Some("a reason".to_owned());
            (queues(all).leader, queues(all).trouble) = (one(), one());
        },
    ),
    ("MillstreamQueuesSilent", "queues", "for 6 s", |all, _| {
        queues(all).silent_seconds = 6.0
    }),
    (
        "MillstreamQueueDiskSlow",
        "queues",
        "Of 4 syncs",
        |all, _| {
            let mut counts = [0; BUCKETS.len() + 1];
            (counts[0], counts[BUCKETS.len()]) = (1, 3);
            let sync = LatencySnapshot {
                name: "sync".into(),
                buckets: (9.0, counts),
                ..LatencySnapshot::default()
            };
            queues(all).latencies = vec![sync];
        },
    ),
    (
        "MillstreamJournalUnreadable",
        "orders",
        "cannot be read",
        |all, _| journal(all, JournalState::Unreadable),
    ),
    (
        "MillstreamFollowerLags",
        "orders",
        "\"backup\"",
        |all, _| journal(all, JournalState::Lagging),
    ),
    (
        "MillstreamJournalSuperseded",
        "orders",
        "another copy",
        |all, _| journal(all, JournalState::Superseded),
    ),
    ("MillstreamCursorLags", "orders", "\"reader\"", |all, _| {
        let cursor = CursorSnapshot {
            name: "reader".to_owned(),
            lag_seconds: 301.0,
            ..CursorSnapshot::default()
        };
        all.journals.as_mut().unwrap().journals[0].cursors = vec![cursor];
    }),
    (
        "MillstreamJournalsSilent",
        "journals",
        "for 31 s",
        |all, _| all.journals.as_mut().unwrap().silent_seconds = 31.0,
    ),
    (
        "MillstreamServiceDown",
        "desk",
        "failed: a bad record",
        |all, _| {
            let state = "failed".to_owned();
            let error = Some("a bad record".to_owned());
            let part = PartSnapshot {
                name: "desk".to_owned(),
                state,
                error,
                ..PartSnapshot::default()
            };
            all.services.as_mut().unwrap().processes = vec![part];
        },
    ),
    (
        "MillstreamServiceStuck",
        "Desk",
        "place() with record 7 of orders for 5 s",
        |all, _| {
            service(all).call = Some(CallSnapshot {
                method: Some("place".to_owned()),
                input: "orders".to_owned(),
                record: 7,
                seconds: 5,
                stack: None,
            });
        },
    ),
    ("MillstreamServiceLags", "Desk", "\"orders\"", |all, _| {
        service(all).state = ServiceState::Lagging;
        service(all).inputs = vec![InputSnapshot {
            name: "orders".to_owned(),
            ..InputSnapshot::default()
        }];
    }),
    (
        "MillstreamServiceDeadLetters",
        "Desk",
        "set 2 aside",
        |all, _| service(all).dead_letters = 2,
    ),
    (
        "MillstreamServicesUnknown",
        "Desk",
        "no such file",
        |all, _| service(all).error = Some("no such file".to_owned()),
    ),
];

/// What holds after so many seconds with a plant.
fn held_after(seconds: u64, plant: Plant) -> Vec<ConditionSnapshot> {
    let mut evaluator = Evaluator::default();
    let mut held = Vec::new();
    for second in 0..=seconds {
        let mut all = healthy();
        plant(&mut all, second);
        held = evaluator.evaluate(&all, second * 1000);
    }
    held
}

#[test]
fn each_condition_is_found_alone_where_it_is_planted() {
    assert_eq!(held_after(0, |_, _| {}), []);
    for (name, subject, words, plant) in PLANTS {
        let found = held_after(40, *plant);
        let [one] = &found[..] else {
            panic!("{name}: {found:?}");
        };
        assert_eq!((&*one.name, &*one.subject), (*name, *subject));
        assert!(one.words.contains(words), "{name}: {}", one.words);
        assert!(!one.action.is_empty() && !one.kind.is_empty(), "{name}");
        let condition = all().find(|condition| condition.name == *name);
        let severities = condition.unwrap().severity;
        assert!(severities.contains(one.severity.name()), "{name}");
    }
    for condition in all() {
        let is_planted = PLANTS.iter().any(|plant| plant.0 == condition.name);
        assert!(is_planted, "{} is not planted", condition.name);
    }
}

#[test]
fn items_that_expire_into_another_queue_are_not_lost() {
    let moved: Plant = |all, _| {
        let queue = &mut queues(all).labelled[0];
        (queue.expired_items, queue.expired_moved_items) = (6, 6);
    };
    assert_eq!(held_after(40, moved), []);
}

#[test]
fn what_pauses_for_a_moment_is_no_condition() {
    let growing = [
        "MillstreamSourceLagGrows",
        "MillstreamCursorLags",
        "MillstreamWatermarkHeldBack",
    ];
    for (name, _, _, plant) in PLANTS {
        let found = held_after(1, *plant);
        assert_eq!(found.len(), usize::from(!growing.contains(name)), "{name}");
    }
}

#[test]
fn event_time_that_no_source_waits_for_in_vain_is_no_condition() {
    let idle: &[(&str, Plant)] = &[
        ("both are silent", |all, seconds| {
            let age = seconds as f64;
            joined(all, seconds, Some(1.0 + age), Some(9000.0 + age));
        }),
        (
            "the other has items, and no step waits for both",
            |all, seconds| {
                joined(all, seconds, Some(1.0), Some(400.0 + seconds as f64));
                for source in &mut all.sources {
                    source.joined_with.clear();
                }
            },
        ),
        ("neither has begun", |all, seconds| {
            joined(all, seconds, None, None)
        }),
        (
            "one was silent before the other had an item",
            |all, seconds| {
                let begun = (seconds > 20).then_some(1.0);
                joined(all, seconds, begun, None);
            },
        ),
        ("one is a minute older", |all, seconds| {
            joined(all, seconds, Some(1.0), Some(60.0 + seconds as f64));
        }),
        ("one is old and reads on", |all, seconds| {
            joined(all, seconds, Some(1.0), Some(9000.0));
        }),
        ("one has ended, or is idle", |all, seconds| {
            joined(all, seconds, Some(1.0), None);
            all.sources[1].without_items = None;
        }),
    ];
    for (what, plant) in idle {
        assert_eq!(held_after(40, *plant), [], "{what}");
    }
}
