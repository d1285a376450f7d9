//! Dead letters in runs with recovery: each bad item is written once, wherever the flow was killed.

use std::path::Path;

use millstream_flow::testing::{Collected, items};
use millstream_flow::{DeadLetter, Flow, OnError, Options, codec, files};

use super::recovery::{crash_everywhere, lines};

fn bad(path: &Path) -> OnError {
    let encode = |letter: &DeadLetter, out: &mut Vec<u8>| {
        out.extend_from_slice(letter.item.as_deref().unwrap_or("?").as_bytes());
    };
    OnError::dead_letter(codec::encode(files::write(path), encode))
}

fn number(text: &str) -> Result<u32, std::num::ParseIntError> {
    text.parse()
}

fn texts() -> Vec<String> {
    let text = |n| match n % 3 {
        0 => format!("bad{n}"),
        _ => format!("{n}"),
    };
    (0..24).map(text).collect()
}

/// The bad items as they are written, sorted.
fn wanted(quote: &str) -> Vec<String> {
    let bad = texts().into_iter().filter(|text| text.starts_with("bad"));
    let mut bad: Vec<String> = bad.map(|text| format!("{quote}{text}{quote}")).collect();
    bad.sort();
    bad
}

fn sorted(path: &Path) -> Vec<String> {
    let mut lines = lines(path);
    lines.sort();
    lines
}

#[test]
fn dead_letters_of_steps_are_written_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = folder.path().join("one");
    let other = folder.path().join("other");
    let flow = Flow::new("letters");
    let all = flow.source("in", items(texts()).batch_size(1));
    all.try_map("map", bad(&one), |text| number(text))
        .sink("numbers", Collected::new().sink());
    all.key_by(|text| text.len())
        .try_stateful(
            "keyed",
            bad(&other),
            |_| 0u32,
            |sum, _, text| {
                *sum += number(text)?;
                Ok::<_, std::num::ParseIntError>([*sum])
            },
        )
        .values()
        .sink("sums", Collected::new().sink());
    let mut workers = [1, 3, 2].into_iter().cycle();
    let state = folder.path().join("state");
    let crashes = crash_everywhere(&flow, &state, 1, || workers.next().unwrap_or(1));
    assert!(crashes > 20, "{crashes} crashes");
    assert_eq!(sorted(&one), wanted("\""));
    assert_eq!(sorted(&other), wanted("\""));
}

#[test]
fn steps_that_share_a_sink_write_to_one_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad");
    let flow = Flow::new("letters");
    let on_error = bad(&path);
    let all = flow.source("in", items(texts()).batch_size(1));
    for name in ["first", "second"] {
        all.key_by(|text| text.len())
            .try_stateful(
                name,
                on_error.clone(),
                |_| 0u32,
                |sum, _, text| {
                    *sum += number(text)?;
                    Ok::<_, std::num::ParseIntError>([*sum])
                },
            )
            .values()
            .sink(&format!("{name} out"), Collected::new().sink());
    }
    let state = folder.path().join("state");
    // The first commit of a run with two workers may precede all input.
    assert!(crash_everywhere(&flow, &state, 2, || 2) > 10);
    let twice: Vec<String> = wanted("\"")
        .into_iter()
        .flat_map(|text| [text.clone(), text])
        .collect();
    assert_eq!(sorted(&path), twice);
}

#[test]
fn dead_letters_of_a_source_are_written_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("in");
    let path = folder.path().join("bad");
    std::fs::write(&input, texts().join("\n") + "\n").expect("a file");
    let flow = Flow::new("letters");
    let decode = |frame: &[u8]| {
        codec::text(frame)
            .map_err(|e| e.to_string())
            .and_then(|text| number(&text).map_err(|error| error.to_string()))
    };
    flow.source(
        "in",
        codec::decode(files::read([&input]), decode).on_error(bad(&path)),
    )
    .sink("numbers", Collected::new().sink());
    let state = folder.path().join("state");
    crash_everywhere(&flow, &state, 1, || 1);
    let found = lines(&path);
    assert_eq!(found.len(), 8);
    for (line, text) in found.iter().zip(texts().iter().step_by(3)) {
        assert!(
            line.contains(&format!("{text:?}")),
            "{line} is not of {text}"
        );
    }
}

/// A flow of two steps with dead letters, and a sink.
fn flow_of(one: OnError, other: OnError, out: &Path) -> Flow {
    let flow = Flow::new("letters");
    let all = flow.source("in", items(texts()));
    all.try_map("one", one, |text| number(text))
        .sink("numbers", Collected::new().sink());
    all.try_map("other", other, |text| number(text))
        .map(|number| number.to_string())
        .sink("out", codec::encode(files::write(out), codec::display));
    flow
}

#[test]
fn a_file_of_dead_letters_that_another_sink_writes_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad");
    let out = folder.path().join("out");
    let shared = bad(&path);
    for (one, other, expected) in [
        (
            bad(&path),
            bad(&path),
            Some(r#"sinks "one.dead_letters" and "other.dead_letters" both write"#),
        ),
        (
            OnError::Skip,
            bad(&out),
            Some(r#"sinks "other.dead_letters" and "out" both write"#),
        ),
        // One sink for both steps is no conflict.
        (shared.clone(), shared, None),
    ] {
        let outcome = flow_of(one, other, &out).run(Options::default());
        match (outcome, expected) {
            (Ok(_), None) => assert_eq!(lines(&path).len(), 2 * wanted("\"").len()),
            (Err(error), Some(expected)) => {
                assert!(format!("{error:?}").contains(expected), "{error}");
            }
            (outcome, _) => panic!("{expected:?}: {:?}", outcome.err()),
        }
    }
}
