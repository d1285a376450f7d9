//! `millstream state`: what a flow has saved, looked into while it is at work and when it is not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_flow::testing::{Mark, script};
use millstream_flow::{Emit, Flow, FlowError, Options, Recovery, codec, files};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::process::{json, millstream, printed, stderr, text};

#[derive(Clone, Serialize, Deserialize)]
struct Account {
    balance: i64,
    by_day: BTreeMap<u8, i64>,
}

/// Counts words, and books to accounts with a key of two parts.
fn flow(out: &Path, marks: Vec<Mark<&'static str>>) -> Flow {
    let flow = Flow::new("books");
    flow.saves::<Account>();
    let words = flow.source("words", script([marks]).batch_size(1));
    let init = |_: &(&'static str, u64)| Account {
        balance: 0,
        by_day: BTreeMap::new(),
    };
    words
        .key_by(|word| (*word, word.len() as u64))
        .stateful("book", init, |account, _, word| {
            account.balance += 1;
            *account.by_day.entry(word.len() as u8).or_default() -= 1;
            None::<()>
        })
        .items()
        .map(|_| String::new())
        .sink(
            "nothing",
            codec::encode(files::write(out.with_extension("nothing")), codec::display),
        );
    words
        .key_by(|word| *word)
        .count(Emit::Each)
        .named("count")
        .items()
        .map(|(word, count)| format!("{word} {count}"))
        .sink("out", codec::encode(files::write(out), codec::display));
    flow
}

fn recovery(state: &Path) -> Options {
    let recovery = Recovery::new(state).epoch(Duration::ZERO).sync(false);
    Options {
        recovery: Some(recovery),
        ..Options::default()
    }
}

fn items(words: &[&'static str]) -> Vec<Mark<&'static str>> {
    words.iter().copied().map(Mark::Item).collect()
}

/// What a flow has saved that has come to its end: its folder, its state and its output.
fn saved() -> (tempfile::TempDir, String, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("state");
    let out = folder.path().join("out");
    let run = flow(&out, items(&["to", "be", "or", "not", "to", "be", "7"])).run(recovery(&dir));
    run.unwrap();
    let dir = text(&dir).to_owned();
    (folder, dir, out)
}

#[test]
fn state_is_summarised() {
    let (_folder, dir, out) = saved();
    let dir = &dir;
    let report = json(&millstream(&["state", "info", dir, "--json"]));
    assert_eq!(report["finished"], true);
    let keys = |place: usize| {
        (
            report["steps"][place]["name"].clone(),
            report["steps"][place]["keys"].clone(),
        )
    };
    assert_eq!(keys(0), (json!("book"), json!(5)));
    assert_eq!(keys(1), (json!("count"), json!(5)));
    assert_eq!(
        report["sources"],
        json!([{"name": "words", "partition": "0", "position": 7}])
    );
    let length = std::fs::metadata(&out).unwrap().len();
    let sinks = report["sinks"].as_array().unwrap();
    let of_out = sinks.iter().find(|sink| sink["name"] == "out").unwrap();
    assert_eq!(of_out["length"], length);
    let told = printed(&millstream(&["state", "info", dir]));
    assert!(
        told.contains("step       count: 5 key(s)") && told.contains("finished"),
        "{told}"
    );
}

#[test]
fn names_with_line_ends_stay_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("state");
    let flow = Flow::new("lines");
    flow.source("in", script([items(&["a", "b"])]))
        .key_by(|word| (word.len() as u64,))
        .count(Emit::Each)
        .named("two\nlines")
        .items()
        .sink("out", millstream_flow::testing::Collected::new().sink());
    flow.run(recovery(&dir)).unwrap();
    let told = printed(&millstream(&["state", "info", text(&dir)]));
    assert!(
        told.contains("\nstep       two\\nlines: 1 key(s)"),
        "{told}"
    );
    let got = |key| {
        printed(&millstream(&[
            "state",
            "get",
            text(&dir),
            "two\nlines",
            key,
        ]))
    };
    assert_eq!(got("(1,)"), "(1,): 2\n");
}

#[test]
fn keys_are_listed_shown_and_exported() {
    let (folder, dir, _) = saved();
    let dir = &*dir;
    let listed = |args: &[&str]| printed(&millstream(&[&["state", "keys", dir], args].concat()));
    assert_eq!(
        listed(&["count"]),
        "\"to\"\n\"be\"\n\"or\"\n\"not\"\n\"7\"\n"
    );
    assert_eq!(listed(&["count", "-n", "2"]), "\"to\"\n\"be\"\n");
    assert_eq!(listed(&["count", "--prefix", "o"]), "\"or\"\n");
    assert_eq!(listed(&["book", "--prefix", "(\"n"]), "(\"not\", 3)\n");
    let line: Value = serde_json::from_str(&listed(&["book", "-n", "1", "--json"])).unwrap();
    assert_eq!(
        (&line["key"], &line["written"]),
        (&json!(["to", 2]), &json!("messagepack"))
    );

    let got = |args: &[&str]| printed(&millstream(&[&["state", "get", dir], args].concat()));
    assert_eq!(got(&["count", "to"]), "\"to\": 2\n");
    assert_eq!(got(&["count", "7"]), "\"7\": 1\n");
    let account = "{\"balance\":2,\"by_day\":{\"2\":-2}}";
    assert_eq!(
        got(&["book", "(\"be\", 2)"]),
        format!("(\"be\", 2): {account}\n")
    );

    let exported = printed(&millstream(&["state", "export", dir]));
    assert_eq!(exported.lines().count(), 10);
    let file = folder.path().join("count.jsonl");
    let done = millstream(&[
        "state",
        "export",
        dir,
        "--step",
        "count",
        "--out",
        text(&file),
    ]);
    assert_eq!(printed(&done), "");
    let lines = std::fs::read_to_string(&file).unwrap();
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["step"], &first["key"], &first["state"]),
        (&json!("count"), &json!("to"), &json!(2))
    );
}

#[test]
fn what_is_missing_is_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("state");
    let out = folder.path().join("out");
    flow(&out, items(&["a"])).run(recovery(&dir)).unwrap();
    let dir = text(&dir);
    let none = text(folder.path());
    for (args, said) in [
        (
            &["info", none][..],
            "it is not the state directory of a flow",
        ),
        (
            &["keys", dir, "sum"],
            "no step \"sum\" has state; those that have are \"book\", \"count\"",
        ),
        (
            &["get", dir, "count", "b"],
            "step \"count\" has no state of key b",
        ),
        (&["export", dir, "--step", "x"], "no step \"x\""),
    ] {
        let output = millstream(&[&["state"], args].concat());
        let told = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(said) && told.lines().count() == 1, "{told}");
    }
    assert_eq!(
        millstream(&["state", "get", dir, "count"]).status.code(),
        Some(2)
    );
    // A damaged journal is named: here the first record of a step's state.
    let epochs = std::fs::read_dir(folder.path().join("state/epochs")).unwrap();
    for file in epochs.map(|entry| entry.unwrap().path()) {
        let Ok(mut bytes) = std::fs::read(&file) else {
            continue; // a folder
        };
        if let Some(at) = bytes.windows(5).position(|found| found == b"count") {
            bytes[at] ^= 1;
            std::fs::write(&file, bytes).unwrap();
        }
    }
    let told = stderr(&millstream(&["state", "info", dir]));
    assert!(
        told.contains("damaged at offset") && told.lines().count() == 1,
        "{told}"
    );
}

/// A flow at work goes on committing and pruning while others look.
#[test]
fn a_flow_at_work_is_not_disturbed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("state");
    let out = folder.path().join("out");
    let flow = Flow::new("busy");
    let numbers = millstream_flow::generator::from_fn(|n| Some(n % 997)).batch_size(512);
    flow.source("numbers", numbers)
        .key_by(|n| *n)
        .count(Emit::End)
        .named("count")
        .items()
        .map(|(number, count)| format!("{number} {count}"))
        .sink("out", codec::encode(files::write(&out), codec::display));
    let running = flow.start(recovery(&dir)).unwrap();
    let dir = text(&dir);
    let mut epochs = Vec::new();
    for _ in 0..1000 {
        let output = millstream(&["state", "info", dir, "--json"]);
        let early = [
            "committed nothing yet",
            "kept its state here",
            "there is no journal",
        ];
        if !output.status.success() && early.iter().any(|said| stderr(&output).contains(said)) {
            continue;
        }
        let report: Value = serde_json::from_str(&printed(&output)).unwrap();
        let epoch = report["epoch"].as_u64().unwrap();
        if epochs.last().is_none_or(|last| epoch > *last) && report["steps"][0]["keys"] == 997 {
            epochs.push(epoch);
            let got = printed(&millstream(&["state", "get", dir, "count", "996"]));
            assert!(got.starts_with("996: "), "{got}");
        }
        if epochs.len() == 5 {
            break;
        }
    }
    assert_eq!(epochs.len(), 5, "{epochs:?}");
    running.stop();
    match running.wait() {
        Ok(_) => {}
        Err(error @ FlowError::State { .. }) => panic!("somebody disturbed it: {error}"),
        Err(error) => panic!("{error}"),
    }
}
