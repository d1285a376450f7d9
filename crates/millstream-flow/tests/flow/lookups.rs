//! `enrich_cached`: how long answers are valid, how many are cached, and items without an answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_flow::Lookups;
use millstream_flow::testing::{Collected, VirtualClock, items};
use millstream_flow::{Flow, OnError, Options};

use super::support::failure;

/// Runs a flow of items `(seconds that pass before it, question)`. The n-th call, counted from 1, fails if
/// `fails(n)` and otherwise answers n. Returns the questions in the order of the calls, and the outputs.
fn answers(
    script: &[(u64, u32)],
    lookups: Lookups,
    fails: fn(usize) -> bool,
) -> (Vec<u32>, Vec<(u32, usize)>) {
    let flow = Flow::new("lookups");
    let out = Collected::new();
    let asked: Arc<Mutex<Vec<u32>>> = Arc::default();
    let clock = Arc::new(VirtualClock::starting_at(0));
    let told = Arc::clone(&asked);
    let moved = Arc::clone(&clock);
    flow.source("in", items(script.to_vec()))
        .enrich_cached(
            "answers",
            lookups,
            move |(seconds, question)| {
                moved.advance(Duration::from_secs(*seconds));
                *question
            },
            move |question| {
                let mut asked = told.lock().expect("no holder panics");
                asked.push(*question);
                if fails(asked.len()) {
                    Err(format!("{question} has no answer"))
                } else {
                    Ok(asked.len())
                }
            },
        )
        .map(|((_, question), answer)| (question, answer))
        .sink("out", out.sink());
    let by_clock = Options {
        clock: Some(clock),
        ..Options::default()
    };
    flow.run(by_clock).expect("it has all answers, or skips");
    let asked = asked.lock().expect("no holder panics").clone();
    (asked, out.take())
}

fn never(_: usize) -> bool {
    false
}

#[test]
fn an_answer_is_valid_until_it_expires() {
    let script = [(0, 7), (1, 7), (8, 7), (1, 7), (9, 7), (0, 8)];
    let lookups = Lookups::default().ttl(Duration::from_secs(10));
    let (asked, out) = answers(&script, lookups, never);
    assert_eq!(asked, [7, 7, 8]);
    assert_eq!(out, [(7, 1), (7, 1), (7, 1), (7, 2), (7, 2), (8, 3)]);
    let (asked, _) = answers(&script, Lookups::default(), never);
    assert_eq!(asked, [7, 8], "for good unless told otherwise");
}

#[test]
fn the_least_recently_used_answer_is_evicted() {
    let script = [1, 2, 1, 3, 1, 2].map(|question| (0, question));
    let (asked, _) = answers(&script, Lookups::default().size(2), never);
    assert_eq!(asked, [1, 2, 3, 2]);
}

#[test]
fn an_expired_answer_is_used_while_it_cannot_be_renewed() {
    let second = Duration::from_secs;
    let lookups = Lookups::default()
        .ttl(second(10))
        .stale(second(20))
        .retry(second(5));
    // Requested at 0; failed at 10 and 15, not requested in between; answered at 20.
    let script = [(0, 7), (10, 7), (4, 7), (1, 7), (5, 7)];
    let (asked, out) = answers(&script, lookups.clone(), |call| call == 2 || call == 3);
    assert_eq!(asked.len(), 4);
    assert_eq!(out, [(7, 1), (7, 1), (7, 1), (7, 1), (7, 4)]);
    // At 30 it has expired, and the item has no answer.
    let lookups = lookups.on_error(OnError::Skip);
    let (asked, out) = answers(&[(0, 7), (29, 7), (1, 7)], lookups, |call| call > 1);
    assert_eq!(
        asked.len(),
        2,
        "at 29 s it was asked, and at 30 s not before the pause is over"
    );
    assert_eq!(out, [(7, 1), (7, 1), (7, 1)]);
}

#[test]
fn an_item_without_an_answer_is_handled_by_the_policy() {
    let flow = Flow::new("lookups");
    flow.source("in", items(["a", "b"]))
        .key_by(|text| text.len())
        .enrich_cached(
            "price",
            Lookups::default(),
            |text| *text,
            |text| match *text {
                "a" => Ok(1),
                _ => Err("nobody knows"),
            },
        )
        .items()
        .sink("out", Collected::new().sink());
    assert_eq!(
        failure(&flow, 1),
        "step \"price\", key 1, item \"b\": nobody knows"
    );
}
