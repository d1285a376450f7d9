//! JSON lines, and fields of CSV by name.

use std::collections::BTreeMap;

use millstream_flow::error::Cause;
use millstream_flow::testing::{Collected, items};
use millstream_flow::{Flow, OnError, csv, json_lines};
use serde_json::{Value, json};

use super::support::{failure, run};

#[test]
fn values_are_written_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("values.jsonl");
    let values = vec![
        json!({"a": 1, "b": [null, true]}),
        json!("gr\u{f6}\u{df}e \n"),
        json!(-1.5),
    ];
    let flow = Flow::new("write");
    flow.source("in", items(values.clone()))
        .sink("out", json_lines::write::<Value>(&path));
    run(&flow, 1).unwrap();
    let seen = Collected::new();
    let flow = Flow::new("read");
    flow.source("in", json_lines::directory::<Value>(dir.path(), "*.jsonl"))
        .sink("out", seen.sink());
    run(&flow, 1).unwrap();
    assert_eq!(seen.take(), values);
}

#[test]
fn a_bad_line_names_file_line_and_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("numbers.jsonl");
    std::fs::write(&path, "1\n22\n\"three\"\n4\n").unwrap();
    let seen = Collected::<u32>::new();
    let flow = Flow::new("read");
    flow.source("in", json_lines::read([&path]))
        .sink("out", seen.sink());
    let error = failure(&flow, 1);
    let place = format!("at offset 5 of {}, line 3: ", path.display());
    assert!(error.contains(&place), "{error}");
    let seen = Collected::<u32>::new();
    let flow = Flow::new("read");
    flow.source("in", json_lines::read([&path]).on_error(OnError::Skip))
        .sink("out", seen.sink());
    run(&flow, 1).unwrap();
    assert_eq!(seen.take(), [1, 22, 4]);
}

#[test]
fn an_item_that_is_no_json_fails_the_flow() {
    let dir = tempfile::tempdir().unwrap();
    let map = BTreeMap::from([((1_u32, 2_u32), 3_u32)]);
    let flow = Flow::new("write");
    flow.source("in", items(vec![map])).sink(
        "out",
        json_lines::write::<BTreeMap<(u32, u32), u32>>(dir.path().join("out")),
    );
    let error = failure(&flow, 1);
    assert!(error.contains("key must be a string"), "{error}");
}

#[test]
fn fields_of_csv_are_parsed_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("prices.csv");
    let read = |text: &str, name: &'static str| {
        std::fs::write(&path, text).unwrap();
        let seen = Collected::new();
        let flow = Flow::new("csv");
        let prices = csv::read([&path]).decode(move |row| -> Result<_, Cause> {
            Ok((row.text_of("name")?.to_owned(), row.parse::<u32>(name)?))
        });
        flow.source("in", prices).sink("out", seen.sink());
        run(&flow, 1)
            .map(|_| seen.take())
            .map_err(|error| format!("{error:?}"))
    };
    let due = vec![("tea".to_owned(), 3)];
    assert_eq!(read("price,name\n3,tea\n", "price").unwrap(), due);
    let error = read("name,price\ntea,3\nmilk,free\n", "price").unwrap_err();
    let place = "prices.csv, line 3, column 6: the field price has \"free\": invalid digit";
    assert!(error.contains(place), "{error}");
    let error = read("name,price\ntea,3\n", "cost").unwrap_err();
    let place = "line 2, column 1: there is no field with the name \"cost\"";
    assert!(error.contains(place), "{error}");
}
