//! `millstream journal export`, `import` and `copy`: records keep their bodies, times and numbers.

use serde_json::Value;

use super::journal::{fresh, numbers, raw};
use super::process::{feed, millstream, printed, stderr, text};

fn exported(path: &str) -> String {
    printed(&millstream(&["journal", "export", path]))
}

#[test]
fn what_is_exported_is_imported_as_it_was() {
    let (folder, path) = fresh();
    feed(
        &["journal", "append", &path, "--framing", "u8"],
        b"\x00\x02\xff\xfe\x05a\n\"b\\\x02\xc3\xbc",
    );
    let file = folder.path().join("orders.jsonl");
    let out = millstream(&["journal", "export", &path, "--out", text(&file)]);
    assert_eq!(printed(&out), "");
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!((lines.lines().count(), &lines), (4, &exported(&path)));

    let again = text(&folder.path().join("again")).to_owned();
    let said = printed(&millstream(&[
        "journal",
        "import",
        &again,
        "--in",
        text(&file),
    ]));
    assert_eq!(said, "4 records imported, the next one will be 4\n");
    assert_eq!(exported(&again), lines);
    // From standard input, on top of what is there: the numbers continue only with the option for it.
    let refused = feed(&["journal", "import", &again], &lines);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("line 1: it is record 0, and the journal's next one is 4"),
        "{}",
        stderr(&refused)
    );
    let said = printed(&feed(
        &["journal", "import", &again, "--renumber", "--json"],
        &lines,
    ));
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&report["records"], &report["next"]),
        (&4.into(), &8.into())
    );
}

#[test]
fn a_part_keeps_its_numbers_and_a_hole_is_noticed() {
    let (folder, path) = fresh();
    numbers(&path, 100);
    let part = printed(&millstream(&[
        "journal", "export", &path, "--from", "40", "--to", "60",
    ]));
    let again = text(&folder.path().join("again")).to_owned();
    printed(&feed(&["journal", "import", &again], &part));
    assert_eq!(exported(&again), part);
    let missing = millstream(&["journal", "cat", &again, "--from", "39"]);
    assert!(
        stderr(&missing).contains("record 39"),
        "{}",
        stderr(&missing)
    );

    let holed: String = part
        .lines()
        .filter(|line| !line.contains("\"sequence\":45,"))
        .map(|line| format!("{line}\n"))
        .collect();
    let third = text(&folder.path().join("third")).to_owned();
    let output = feed(&["journal", "import", &third], &holed);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("line 6: it is record 46, and the journal's next one is 45"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn lines_that_are_no_record_are_named() {
    let (_folder, path) = fresh();
    let good = "{\"text\": \"only a body\"}\n";
    let output = feed(&["journal", "import", &path], format!("{good}{good}{{\n"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "millstream journal import: line 3: EOF while parsing an object at column 1; the 2 records before it were imported\n"
    );
    assert_eq!(raw(&["cat", &path]), "only a body\nonly a body\n");
}

#[test]
fn a_copy_is_the_same_and_never_replaces() {
    let (folder, path) = fresh();
    numbers(&path, 10_000);
    printed(&millstream(&[
        "journal", "prune", &path, "--bytes", "128KiB",
    ]));
    let copy = text(&folder.path().join("copy")).to_owned();
    let said = printed(&millstream(&["journal", "copy", &path, &copy, "--json"]));
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&report["next"], &report["complete"]),
        (&10_000.into(), &true.into())
    );
    assert!(report["first"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(exported(&copy), exported(&path));
    printed(&millstream(&["journal", "verify", &copy]));

    let refused = millstream(&["journal", "copy", &path, &copy]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        stderr(&refused),
        format!("millstream journal copy: {copy}: a journal exists here already\n")
    );
}
