//! `millstream journal cat` and `tail` on the journals of services: records as calls.

use std::path::Path;

use millstream_journal::{Journal, Options, Writer};
use millstream_service::publisher;
use millstream_wire::{Call, InputName, Interface, Lineage, Note, Schema, Value};
use serde_json::json;

use super::journal::{fresh, raw};
use super::process::{feed, millstream, printed, stderr, text};

#[millstream_wire::interface]
trait Orders {
    fn place(&mut self, symbol: &str, price: f64, tags: Vec<u32>);
    fn cancel(&mut self, id: u64);
}

/// A journal in which record 0 tells the schema, and each other one cancels the order of its number.
fn cancelled(path: &str, segment_bytes: u64, count: u64) {
    let options = Options::default().with_segment_bytes(segment_bytes);
    let journal = Journal::open(path, options).unwrap();
    let mut orders = publisher::<dyn Orders>(&journal).unwrap();
    (1..=count).for_each(|id| orders.cancel(id));
}

fn schema() -> Schema {
    <dyn Orders as Interface>::schema().unwrap()
}

fn call(method: &str, arguments: &[(&str, Value)]) -> Call {
    let named = |(name, value): &(&str, Value)| ((*name).to_owned(), value.clone());
    Call {
        at: None,
        method: method.to_owned(),
        arguments: arguments.iter().map(named).collect(),
    }
}

fn writer(path: &str) -> Writer {
    let journal = Journal::open(Path::new(path), Options::default()).unwrap();
    journal.writer().unwrap()
}

fn shown(args: &[&str]) -> String {
    printed(&millstream(&[&["journal"], args].concat()))
}

/// Lines without their times.
fn untimed(lines: &str) -> Vec<&str> {
    lines
        .lines()
        .map(|line| line.split_once(' ').unwrap().1)
        .collect()
}

#[test]
fn bodies_are_calls_once_the_journal_has_their_schema() {
    let (_folder, path) = fresh();
    let journal = Journal::open(&path, Options::default()).unwrap();
    journal.writer().unwrap().append(b"before").unwrap();
    let mut orders = publisher::<dyn Orders>(&journal).unwrap();
    orders.place("VOD \"L\"", 72.5, vec![1, 2]);
    orders.cancel(7);
    journal.writer().unwrap().append(b"behind").unwrap();
    for verb in ["cat", "tail"] {
        assert_eq!(
            untimed(&shown(&[verb, &path])),
            [
                "0 before",
                "1 # interface Orders, version 1: place(symbol: str, price: f64, tags: List<u32>), cancel(id: u64)",
                "2 place(symbol=\"VOD \\\"L\\\"\", price=72.5, tags=[1,2])",
                "3 cancel(id=7)",
                "4 behind",
            ],
            "{verb}"
        );
    }
    let lines = shown(&["cat", &path, "--json"]);
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["text"], "before");
    assert_eq!(lines[1]["interface"], "Orders");
    assert_eq!(lines[2]["method"], "place");
    let arguments = json!({"symbol": "VOD \"L\"", "price": 72.5, "tags": [1, 2]});
    assert_eq!(lines[2]["arguments"], arguments);
    assert_eq!(lines[2]["base64"], serde_json::Value::Null);

    // Asked for as they are, bodies stay as they are.
    let text = shown(&["cat", &path, "--from", "3", "-n", "1", "--body", "text"]);
    assert!(text.contains(" 3 \\xc0"), "{text}");
    assert!(raw(&["cat", &path, "-n", "1"]).starts_with("before"));
    let lines = shown(&["cat", &path, "--json", "--body", "text"]);
    assert!(lines.contains("\"base64\"") && !lines.contains("\"method\""));
    assert_eq!(lines, shown(&["export", &path]));
}

#[test]
fn a_range_after_the_schema_is_read_by_it() {
    let (folder, path) = fresh();
    cancelled(&path, 1 << 20, 20_000);
    // One segment holds all, and has the schema once. In segments of another size it is far before most calls.
    let lines = shown(&["export", &path]);
    let small = text(&folder.path().join("small")).to_owned();
    printed(&feed(
        &["journal", "import", &small, "--segment-bytes", "64KiB"],
        lines,
    ));
    for path in [&path, &small] {
        let one = shown(&["cat", path, "--from", "15000", "-n", "1", "--body", "calls"]);
        assert_eq!(untimed(&one), ["15000 cancel(id=15000)"]);
        let last = shown(&["tail", path, "-n", "2"]);
        assert_eq!(
            untimed(&last),
            ["19999 cancel(id=19999)", "20000 cancel(id=20000)"]
        );
        assert!(!shown(&["cat", path, "--body", "calls"]).contains("not decoded"));
    }
}

#[test]
fn a_journal_without_its_schema_is_shown_as_it_is() {
    let (folder, path) = fresh();
    cancelled(&path, 1 << 20, 5);
    let part = text(&folder.path().join("part")).to_owned();
    shown(&["copy", &path, &part, "--from", "3"]);
    let bodies = shown(&["cat", &part]);
    assert_eq!(bodies, shown(&["cat", &part, "--body", "text"]));
    let output = millstream(&["journal", "cat", &part, "--body", "calls"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.starts_with(
            "millstream journal cat: record 3 could not be decoded: the journal has no schema 0x"
        ) && said.ends_with(" (and 2 other records)\n"),
        "{said}"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 3);
}

#[test]
fn a_record_that_does_not_fit_is_shown_raw_and_named() {
    let (_folder, path) = fresh();
    cancelled(&path, 1 << 20, 1);
    let writer = writer(&path);
    let place = [
        ("symbol", Value::Str("VOD.L".to_owned())),
        ("price", Value::F64(1.0)),
        ("tags", Value::List(vec![Value::Int(1)])),
    ];
    let mut body = call("place", &place).to_bytes(&schema(), None).unwrap();
    // The last byte is the only tag: a string of no letters where the schema has a number.
    *body.last_mut().unwrap() = 0xa0;
    writer.append(&body).unwrap();
    let cancel = call("cancel", &[("id", Value::Int(3))]);
    writer
        .append(&cancel.to_bytes(&schema(), None).unwrap())
        .unwrap();

    let check = |lines: &str| {
        let lines = untimed(lines);
        assert!(lines[2].starts_with("2 \\xc0"), "{lines:?}");
        assert!(
            lines[2].contains("  # not decoded: place.tags[0]: byte "),
            "{lines:?}"
        );
        assert_eq!(lines[3], "3 cancel(id=3)");
    };
    check(&shown(&["cat", &path]));
    let asked = millstream(&["journal", "cat", &path, "--body", "calls"]);
    assert_eq!(asked.status.code(), Some(1));
    check(&String::from_utf8_lossy(&asked.stdout));
    let said = stderr(&asked);
    assert!(
        said.starts_with("millstream journal cat: record 2 could not be decoded: place.tags[0]: ")
            && said.ends_with(": expected an integer, found a string\n"),
        "{said}"
    );
    let line = shown(&["cat", &path, "--from", "2", "-n", "1", "--json"]);
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert!(line["base64"].is_string(), "{line}");
    assert!(
        line["not_decoded"]
            .as_str()
            .unwrap()
            .starts_with("place.tags[0]: "),
        "{line}"
    );
}

#[test]
fn a_text_is_no_call() {
    let (_folder, path) = fresh();
    feed(&["journal", "append", &path], "one\ntwo\n");
    let output = millstream(&["journal", "tail", &path, "--body", "calls"]);
    assert_eq!(output.status.code(), Some(1));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        untimed(&lines)[1].starts_with("1 two  # not decoded: "),
        "{lines}"
    );
    assert!(
        stderr(&output).ends_with(" (and 1 other record)\n"),
        "{output:?}"
    );
}

#[test]
fn an_effect_names_its_record() {
    let (_folder, path) = fresh();
    let writer = writer(&path);
    let input = |name: &str| Note::Input {
        number: 0,
        input: InputName {
            path: name.to_owned(),
            identity: 7,
        },
    };
    let lineage = |sequence| {
        Some(Lineage {
            input: 0,
            sequence,
            checksum: 9,
        })
    };
    let cancel = call("cancel", &[("id", Value::Int(1))]);
    for body in [
        Note::Schema(schema()).to_bytes().unwrap(),
        input("old").to_bytes().unwrap(),
        cancel.to_bytes(&schema(), lineage(4)).unwrap(),
        input("new").to_bytes().unwrap(),
        cancel.to_bytes(&schema(), lineage(5)).unwrap(),
    ] {
        writer.append(&body).unwrap();
    }
    let lines = shown(&["cat", &path, "--from", "1"]);
    let expected = [
        "1 # input 0: old",
        "2 cancel(id=1) <- old, record 4",
        "3 # input 0: new",
        "4 cancel(id=1) <- new, record 5",
    ];
    assert_eq!(untimed(&lines), expected);
    // The last note before the range applies.
    assert_eq!(untimed(&shown(&["tail", &path, "-n", "1"])), expected[3..]);
    let line = shown(&["tail", &path, "-n", "1", "--json"]);
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["effect_of"], json!({"journal": "new", "sequence": 5}));
}

#[test]
fn calls_are_exported_as_the_documents_of_a_test() {
    let (_folder, path) = fresh();
    cancelled(&path, 1 << 20, 3);
    let text = shown(&["export", &path, "--yaml", "--from", "0", "--to", "3"]);
    let documents: Vec<&str> = text.split("---\n").collect();
    assert_eq!(documents.len(), 2, "{text}");
    for (id, document) in (1..).zip(documents) {
        let [record, at, call] = document.lines().collect::<Vec<_>>()[..] else {
            panic!("{document}");
        };
        assert_eq!(record, format!("# record {id}"));
        assert!(at.starts_with("at: 20") && at.ends_with('Z'), "{at}");
        assert_eq!(call, format!("cancel: {id}"));
    }

    writer(&path).append(b"no call").unwrap();
    let output = millstream(&["journal", "export", &path, "--yaml"]);
    assert_eq!(output.status.code(), Some(1));
    let told = stderr(&output);
    assert!(told.contains(&format!("{path}, record 4: ")), "{told}");
    let exported = String::from_utf8_lossy(&output.stdout);
    assert_eq!(exported.matches("cancel: ").count(), 3);
}
