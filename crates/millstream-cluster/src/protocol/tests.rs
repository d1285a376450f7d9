//! Process 0 and two others, by hand.

use millstream_flow::cluster::{Event, HandledLoad, Offer, StateOffer};

use super::{Body, Coordinator, Ids, Message, Misfit, Notice, Output, Participant, Start, Times};

const RUN: u64 = 7;

fn offer() -> Offer {
    Offer {
        flow: "orders".to_owned(),
        workers: 1,
        ..Offer::default()
    }
}

fn coordinator(own: Offer) -> Coordinator {
    let ids = Ids {
        run: RUN,
        cluster: 1,
    };
    Coordinator::new(3, own, ids, Times::default()).unwrap()
}

fn outputs(zero: &mut Coordinator) -> Vec<Output> {
    std::iter::from_fn(|| zero.next_output()).collect()
}

fn say(zero: &mut Coordinator, connection: u64, run: u64, body: Body, now_ms: u64) {
    zero.received(connection, Message { run, body }, now_ms);
}

/// A run of three, with connections 1 and 2 of processes 1 and 2.
fn running() -> Coordinator {
    let mut zero = coordinator(offer());
    for process in 1..3 {
        zero.connected(process as u64, process, 0);
        say(
            &mut zero,
            process as u64,
            0,
            Body::Offer(Box::new(offer())),
            0,
        );
    }
    let all = outputs(&mut zero);
    assert!(
        all.iter()
            .any(|output| matches!(output, Output::Started(_))),
        "{all:?}"
    );
    zero
}

/// The death that was reported here, and the connections to which it was sent.
fn death(zero: &mut Coordinator) -> Option<(usize, String, Vec<u64>)> {
    let mut died = None;
    let mut told = Vec::new();
    for output in outputs(zero) {
        match output {
            Output::Event(Event::Died { process, cause }) => died = Some((process, cause)),
            Output::Send {
                to,
                message:
                    Message {
                        body: Body::Died { .. },
                        ..
                    },
            } => told.push(to),
            _ => {}
        }
    }
    died.map(|(process, cause)| (process, cause, told))
}

fn failed(cause: &str) -> Body {
    Body::Failed {
        cause: cause.to_owned(),
    }
}

#[test]
fn a_lost_connection_waits_for_its_cause() {
    let mut zero = running();
    let lost = Body::Lost {
        process: 2,
        cause: "reset".to_owned(),
    };
    say(&mut zero, 1, RUN, lost, 1_000);
    zero.tick(1_100);
    assert_eq!(death(&mut zero), None);
    say(&mut zero, 2, RUN, failed("division by zero"), 1_150);
    let died = death(&mut zero);
    assert_eq!(died, Some((2, "division by zero".to_owned(), vec![1, 2])));
    assert!(zero.is_over());
    // Nothing follows.
    say(&mut zero, 1, RUN, failed("another"), 1_160);
    zero.notice(Notice::Failed("a third".to_owned()), 1_160);
    zero.tick(9_000);
    assert_eq!(outputs(&mut zero), []);
}

#[test]
fn a_bare_loss_is_reported_in_the_end() {
    let mut zero = running();
    zero.lost(2, "killed", 1_000);
    zero.tick(1_199);
    assert_eq!(death(&mut zero), None);
    zero.tick(1_200);
    assert_eq!(death(&mut zero), Some((2, "killed".to_owned(), vec![1])));
}

#[test]
fn silence_is_death_and_an_own_pause_is_not() {
    let mut zero = running();
    for now_ms in (0..10_000).step_by(100) {
        zero.tick(now_ms);
        say(&mut zero, 1, 0, Body::Alive, now_ms);
    }
    assert_eq!(death(&mut zero), None);
    zero.tick(10_001);
    zero.tick(10_201);
    let (process, cause, _) = death(&mut zero).unwrap();
    assert!(
        process == 2 && cause.contains("process 0 received nothing"),
        "{cause}"
    );
    let mut paused = running();
    paused.tick(100);
    paused.tick(60_000);
    paused.tick(60_300);
    assert_eq!(death(&mut paused), None);
}

#[test]
fn messages_of_other_runs_are_dropped() {
    let mut zero = running();
    say(&mut zero, 1, RUN - 1, failed("long ago"), 10);
    say(&mut zero, 1, RUN - 1, Body::Built, 10);
    assert_eq!(outputs(&mut zero), []);
    let mut one = Participant::new(offer(), Times::default());
    one.connected(5, 0);
    let start = Start {
        run: RUN,
        cluster: 1,
        epoch: 0,
        keeps_prepared: false,
    };
    let run = 0;
    one.received(
        5,
        Message {
            run,
            body: Body::Start(start),
        },
        0,
    );
    let run = RUN - 1;
    one.received(
        5,
        Message {
            run,
            body: Body::Go,
        },
        0,
    );
    one.received(
        4,
        Message {
            run: RUN,
            body: Body::Go,
        },
        0,
    );
    let events = std::iter::from_fn(|| one.next_output());
    assert!(
        !events
            .into_iter()
            .any(|output| matches!(output, Output::Event(_)))
    );
}

#[test]
fn a_second_process_of_a_number_and_one_that_comes_late_try_again() {
    let refusal = |zero: &mut Coordinator, connection| {
        outputs(zero).into_iter().find_map(|output| match output {
            Output::Send {
                to,
                message:
                    Message {
                        body: Body::Refused(Misfit { again, text, .. }),
                        ..
                    },
            } if to == connection => Some((again, text)),
            _ => None,
        })
    };
    let mut zero = coordinator(offer());
    zero.connected(1, 1, 0);
    zero.connected(2, 1, 0);
    assert!(refusal(&mut zero, 2).is_some_and(|(again, _)| again));
    zero.connected(3, 3, 0);
    assert!(refusal(&mut zero, 3).is_some_and(|(again, _)| !again));
    // The first of them is lost, and the second has its place.
    zero.lost(1, "killed", 0);
    zero.connected(4, 1, 0);
    assert_eq!(refusal(&mut zero, 4), None);
    let mut late = running();
    late.connected(9, 1, 0);
    assert!(refusal(&mut late, 9).is_some_and(|(again, _)| again));
    let other = Offer {
        flow: "stock".to_owned(),
        ..offer()
    };
    say(&mut zero, 4, 0, Body::Offer(Box::new(other)), 0);
    assert!(refusal(&mut zero, 4).is_some_and(|(again, text)| !again && text.contains("stock")));
}

#[test]
fn what_no_process_can_drop_is_refused_in_all() {
    let drops = |names: &[&str]| Offer {
        state: Some(StateOffer {
            drops: vec!["count".to_owned()],
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..StateOffer::default()
        }),
        ..offer()
    };
    for (last, is_known) in [("counts", false), ("count", true)] {
        let mut zero = coordinator(drops(&["in"]));
        let others = zero.missing().count();
        for process in 1..=others {
            zero.connected(process as u64, process, 0);
            let names = if process == others { last } else { "in" };
            say(
                &mut zero,
                process as u64,
                0,
                Body::Offer(Box::new(drops(&[names]))),
                0,
            );
        }
        let outputs = outputs(&mut zero);
        let refused = outputs.iter().filter_map(|output| match output {
            Output::Send { message, .. } => match &message.body {
                Body::Refused(misfit) => Some(misfit),
                _ => None,
            },
            Output::Refused(misfit) => Some(misfit),
            _ => None,
        });
        let refused: Vec<&Misfit> = refused.collect();
        let started = outputs
            .iter()
            .any(|output| matches!(output, Output::Started(_)));
        assert_eq!((started, zero.is_over()), (is_known, !is_known));
        assert_eq!(refused.len(), if is_known { 0 } else { others + 1 });
        for misfit in refused {
            assert!(misfit.usage && !misfit.again, "{misfit:?}");
            assert!(
                misfit.text.ends_with("; did you mean \"counts\"?"),
                "{}",
                misfit.text
            );
        }
    }
}

#[test]
fn loads_reach_their_senders_and_ends_are_no_deaths() {
    let mut zero = running();
    let load = |sender| HandledLoad {
        sender,
        worker: 0,
        weight: 5,
        items: 1,
        turn_items: u64::MAX,
        in_flight_items_max: u64::MAX,
        congested: false,
        outbox_full: false,
    };
    let loads = vec![load(0), load(2)];
    say(&mut zero, 1, RUN, Body::Handled(loads), 0);
    let all = outputs(&mut zero);
    let to_two = Output::Send {
        to: 2,
        message: Message {
            run: RUN,
            body: Body::Handled(vec![load(2)]),
        },
    };
    assert_eq!(all, [Output::Event(Event::Handled(load(0))), to_two]);
    say(&mut zero, 1, RUN, Body::Ended, 10);
    zero.lost(1, "closed", 10);
    zero.notice(
        Notice::Lost {
            process: 1,
            cause: "closed".to_owned(),
        },
        10,
    );
    zero.notice(Notice::Ended, 20);
    zero.tick(5_000);
    let all = outputs(&mut zero);
    assert!(!all.iter().any(|output| matches!(output, Output::Event(_))));
    // The last one.
    say(&mut zero, 2, RUN, Body::Ended, 5_001);
    let all = outputs(&mut zero);
    assert_eq!(all.last(), Some(&Output::Event(Event::Ended)));
    zero.lost(2, "closed", 5_002);
    zero.tick(9_000);
    assert_eq!(outputs(&mut zero), []);
}

#[test]
fn a_death_after_the_end_of_process_0_is_one_of_the_run() {
    let mut zero = running();
    say(&mut zero, 1, RUN, Body::Ended, 10);
    zero.notice(Notice::Ended, 20);
    zero.lost(2, "killed", 30);
    zero.tick(300);
    assert_eq!(death(&mut zero), Some((2, "killed".to_owned(), vec![1])));
}

#[test]
fn a_run_that_was_stopped_ends_with_process_0() {
    for stopped_first in [true, false] {
        let mut zero = running();
        let mut ended = [Body::Stop, Body::Ended];
        if !stopped_first {
            ended.reverse();
        }
        for body in ended {
            match body {
                Body::Stop => say(&mut zero, 1, RUN, Body::Stop, 10),
                _ => zero.notice(Notice::Ended, 10),
            }
        }
        let all = outputs(&mut zero);
        assert_eq!(all.last(), Some(&Output::Event(Event::Ended)));
        zero.lost(2, "killed", 30);
        zero.tick(300);
        assert_eq!(death(&mut zero), None);
    }
}

#[test]
fn a_process_that_has_ended_misses_process_0_until_all_have() {
    let start = Start {
        run: RUN,
        cluster: 1,
        epoch: 0,
        keeps_prepared: false,
    };
    for (then, dies) in [
        (None, true),
        (Some(Body::Ended), false),
        (Some(Body::Stop), false),
    ] {
        let mut one = Participant::new(offer(), Times::default());
        one.connected(1, 0);
        for (run, body) in [(0, Some(Body::Start(start))), (RUN, then)] {
            if let Some(body) = body {
                one.received(1, Message { run, body }, 10);
            }
        }
        one.notice(Notice::Ended);
        assert!(one.has_ended());
        one.lost(1, "killed");
        let died = std::iter::from_fn(|| one.next_output())
            .any(|output| matches!(output, Output::Event(Event::Died { process: 0, .. })));
        assert_eq!(died, dies);
    }
}
