//! The policies for an item on which a step fails: the flow fails, skips it, or writes it to a sink.

use std::fmt;

use millstream_flow::testing::{Collected, items};
use millstream_flow::{DeadLetter, Flow, Framing, OnError, Stream, codec, files};

use super::destination::Table;
use super::support::{FullDisk, address, failure, finish, framed, listener, run, send};

/// An error with a cause.
#[derive(Debug)]
struct NoPrice(std::num::ParseIntError);

impl fmt::Display for NoPrice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no price")
    }
}

impl std::error::Error for NoPrice {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

fn price(text: &str) -> Result<u64, NoPrice> {
    text.parse().map_err(NoPrice)
}

const TEXTS: [&str; 5] = ["1", "x", "3", "", "5"];
const WRONG_X: &str = "step \"price\", item \"x\": no price: invalid digit found in string";
const WRONG_EMPTY: &str =
    "step \"price\", item \"\": no price: cannot parse integer from empty string";

fn texts(flow: &Flow) -> Stream<String> {
    flow.source("texts", items(TEXTS.map(String::from)))
}

#[test]
fn fail_names_step_item_and_causes() {
    for workers in 1..=3 {
        let flow = Flow::new("prices");
        texts(&flow)
            .try_map("price", OnError::Fail, |text| price(text))
            .sink("out", Collected::new().sink());
        assert_eq!(failure(&flow, workers), WRONG_X);
    }
}

#[test]
fn fail_in_a_state_names_the_key() {
    for workers in 1..=3 {
        let flow = Flow::new("prices");
        texts(&flow)
            .key_by(|text| (text.clone(), 7))
            .try_stateful(
                "price",
                OnError::Fail,
                |_| 0,
                |sum, _, text| {
                    *sum += price(text)?;
                    Ok::<_, NoPrice>([*sum])
                },
            )
            .filter(|_| true)
            .items()
            .sink("out", Collected::new().sink());
        let text = failure(&flow, workers);
        // With several workers either of the two may be the first.
        assert!(
            text == "step \"price\", key (\"x\", 7), item \"x\": no price: invalid digit found in string"
                || text
                    == "step \"price\", key (\"\", 7), item \"\": no price: cannot parse integer from empty string",
            "{text}"
        );
    }
}

#[test]
fn a_long_item_is_shortened_in_the_message() {
    let flow = Flow::new("long");
    flow.source("texts", items(["y".repeat(5000)]))
        .try_map("price", OnError::Fail, |text| price(text))
        .sink("out", Collected::new().sink());
    let text = failure(&flow, 1);
    assert!(text.len() < 400, "{text}");
    assert!(text.contains("yyy... (5002 bytes): no price"), "{text}");
}

#[test]
fn skip_counts_and_continues() {
    for workers in 1..=3 {
        let flow = Flow::new("prices");
        let seen = Collected::new();
        texts(&flow)
            .try_map("price", OnError::Skip, |text| price(text))
            .sink("out", seen.sink());
        let report = run(&flow, workers).unwrap();
        assert_eq!(seen.take(), [1, 3, 5]);
        let step = report.step("price").unwrap();
        assert_eq!((step.skipped, step.items_in, step.items_out), (2, 5, 3));
    }
}

#[test]
fn skip_in_a_state_keeps_the_state() {
    for workers in 1..=3 {
        let flow = Flow::new("prices");
        let seen = Collected::new();
        texts(&flow)
            .key_by(|_| 1)
            .try_stateful(
                "price",
                OnError::Skip,
                |_| 0,
                |sum, _, text| {
                    *sum += price(text)?;
                    Ok::<_, NoPrice>(Some(*sum))
                },
            )
            .values()
            .sink("out", seen.sink());
        let report = run(&flow, workers).unwrap();
        assert_eq!(seen.take(), [1, 4, 9]);
        assert_eq!(report.step("price").unwrap().skipped, 2);
    }
}

fn letter(key: Option<&str>, item: &str, error: &str) -> DeadLetter {
    DeadLetter {
        step: "price".to_owned(),
        key: key.map(str::to_owned),
        item: Some(item.to_owned()),
        error: error.to_owned(),
    }
}

#[test]
fn dead_letters_are_written_and_counted() {
    for workers in 1..=3 {
        let flow = Flow::new("prices");
        let seen = Collected::new();
        let dead = Collected::new();
        texts(&flow)
            .try_map("price", OnError::dead_letter(dead.sink()), |text| {
                price(text)
            })
            .sink("out", seen.sink());
        let report = run(&flow, workers).unwrap();
        assert_eq!(seen.take(), [1, 3, 5]);
        let due = [
            letter(None, "\"x\"", WRONG_X),
            letter(None, "\"\"", WRONG_EMPTY),
        ];
        assert_eq!(dead.take(), due);
        assert_eq!(report.step("price").unwrap().skipped, 2);
    }
}

#[test]
fn dead_letters_of_a_state_carry_the_key() {
    let flow = Flow::new("prices");
    let dead = Collected::new();
    flow.source("texts", items(["1", "x"].map(String::from)))
        .key_by(|_| "k")
        .try_stateful(
            "price",
            OnError::dead_letter(dead.sink()),
            |_| (),
            |(), _, text| price(text).map(Some),
        )
        .values()
        .sink("out", Collected::new().sink());
    run(&flow, 2).unwrap();
    let error = "step \"price\", key \"k\", item \"x\": no price: invalid digit found in string";
    assert_eq!(dead.take(), [letter(Some("\"k\""), "\"x\"", error)]);
}

#[test]
fn dead_letters_go_to_a_file_as_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dead");
    let flow = Flow::new("prices");
    let sink = codec::encode(files::write(&path), codec::display::<DeadLetter>);
    texts(&flow)
        .try_map("price", OnError::dead_letter(sink), |text| price(text))
        .sink("out", Collected::new().sink());
    for workers in [1, 2] {
        run(&flow, workers).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{WRONG_X}\n{WRONG_EMPTY}\n"));
    }
}

#[test]
fn a_dead_letter_sink_that_fails_fails_the_flow() {
    for workers in 1..=3 {
        let flow = Flow::new("prices");
        texts(&flow)
            .try_map("price", OnError::dead_letter(FullDisk), |text| price(text))
            .sink("out", Collected::new().sink());
        assert_eq!(
            failure(&flow, workers),
            "step \"price\": the dead letter could not be written: the disk is full"
        );
    }
}

#[test]
fn a_dead_letter_sink_that_cannot_be_opened_fails_the_flow() {
    let flow = Flow::new("prices");
    let sink = codec::encode(files::write("/dev/null/dead"), codec::display::<DeadLetter>);
    texts(&flow)
        .try_map("price", OnError::dead_letter(sink), |text| price(text))
        .sink("out", Collected::new().sink());
    let text = failure(&flow, 1);
    assert!(
        text.starts_with("dead letters of \"price\" (file /dev/null/dead, lines): "),
        "{text}"
    );
}

/// A flow that decodes its input.
fn decoded(on_error: OnError) -> Result<(u64, Vec<u64>), String> {
    let (source, told) = listener();
    let flow = Flow::new("decoded");
    let seen = Collected::new();
    let decode = |frame: &[u8]| {
        let text = std::str::from_utf8(frame).map_err(|error| error.to_string())?;
        text.parse::<u64>().map_err(|error| error.to_string())
    };
    let source = source.framing(Framing::U8).connections(1);
    flow.source("in", codec::decode(source, decode).on_error(on_error))
        .sink("out", seen.sink());
    let running = flow.start(millstream_flow::Options::workers(2)).unwrap();
    send(address(&told), &framed(&Framing::U8, ["7", "seven", "77"]));
    finish(running)
        .map(|report| (report.step("in").unwrap().skipped, seen.take()))
        .map_err(|error| format!("{error:?}"))
}

const POISON: &str =
    "step \"in\", item frame of 5 bytes at offset 3: \"seven\": invalid digit found in string";

#[test]
fn a_poison_frame_fails_the_flow_with_its_offset() {
    assert_eq!(decoded(OnError::Fail).unwrap_err(), POISON);
}

#[test]
fn a_poison_frame_is_skipped_or_written() {
    assert_eq!(decoded(OnError::Skip).unwrap(), (1, vec![7, 77]));
    let dead = Collected::new();
    let outcome = decoded(OnError::dead_letter(dead.sink()));
    assert_eq!(outcome.unwrap(), (1, vec![7, 77]));
    let letters = dead.take();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].error, POISON);
    assert_eq!(letters[0].step, "in");
}

#[test]
fn a_poison_frame_and_a_full_disk() {
    assert_eq!(
        decoded(OnError::dead_letter(FullDisk)).unwrap_err(),
        "step \"in\": the dead letter could not be written: the disk is full"
    );
}

/// An encoder of single bytes, which has written a part of the frame when it fails.
fn byte(number: &i64, out: &mut Vec<u8>) -> Result<(), std::num::TryFromIntError> {
    out.extend_from_slice(b"part");
    let byte = u8::try_from(*number)?;
    out.truncate(out.len() - 4);
    out.push(byte);
    Ok(())
}

#[test]
fn an_item_that_cannot_be_encoded_is_handled_by_the_policy_of_the_sink() {
    let dir = tempfile::tempdir().unwrap();
    for (workers, is_skipped) in [(1, true), (3, true), (2, false)] {
        let path = dir.path().join(format!("{workers}"));
        let flow = Flow::new("letters");
        let dead = Collected::new();
        let on_error = if is_skipped {
            OnError::dead_letter(dead.sink())
        } else {
            OnError::Fail
        };
        flow.source("in", items([65_i64, 1000, 67, -1])).try_sink(
            "out",
            on_error,
            codec::encode(files::write(&path), byte),
        );
        let error =
            "step \"out.encode\", item 1000: out of range integral type conversion attempted";
        if !is_skipped {
            assert_eq!(failure(&flow, workers), error);
            continue;
        }
        run(&flow, workers).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"A\nC\n");
        let letters = dead.take();
        assert_eq!(letters[0].error, error);
        let dead: Vec<_> = letters
            .iter()
            .map(|letter| letter.item.as_deref())
            .collect();
        assert_eq!(dead, [Some("1000"), Some("-1")]);
    }
}

#[test]
fn an_item_that_is_too_large_for_the_destination_is_handled_by_the_policy_of_the_sink() {
    let table = Table::new(true);
    let dead = Collected::new();
    let flow = Flow::new("rows");
    let rows = ["a".to_owned(), "b".repeat((2 << 20) + 1), "c".to_owned()];
    let sink = codec::encode(table.outbox(), codec::display);
    flow.source("in", items(rows))
        .try_sink("out", OnError::dead_letter(dead.sink()), sink);
    run(&flow, 2).unwrap();
    assert_eq!(table.sorted(), ["a", "c"]);
    let error = &dead.take()[0].error;
    assert!(
        error.ends_with("a record of 2097153 bytes is too large for table t, which takes 2097152"),
        "{error}"
    );
}
