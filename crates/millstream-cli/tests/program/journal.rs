//! `millstream journal`: append, look, prune.

use std::time::Duration;

use serde_json::{Value, json};

use super::process::{command, feed, millstream, printed, stderr, text};

/// A directory and, as text, a path in it for a journal.
pub fn fresh() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = text(&folder.path().join("orders")).to_owned();
    (folder, path)
}

/// A journal with the records `0`, `1`, ... up to `count`.
pub fn numbers(path: &str, count: u64) {
    let lines: String = (0..count).map(|n| format!("{n}\n")).collect();
    let said = printed(&feed(
        &[
            "journal",
            "append",
            path,
            "--json",
            "--segment-bytes",
            "64KiB",
        ],
        lines,
    ));
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["records"], count);
}

pub fn raw(args: &[&str]) -> String {
    printed(&millstream(
        &[&["journal"], args, &["--body", "raw"]].concat(),
    ))
}

#[test]
fn lines_are_acknowledged_by_their_numbers_and_read_back() {
    let (_folder, path) = fresh();
    for (sync, numbers) in [
        ("never", "0\n1\n2\n"),
        ("always", "3\n4\n5\n"),
        ("50ms", "6\n7\n8\n"),
    ] {
        let output = feed(&["journal", "append", &path, "--sync", sync], "one\n\nlast");
        assert_eq!(printed(&output), numbers);
    }
    assert_eq!(raw(&["cat", &path, "-n", "3"]), "one\n\nlast\n");
    let shown = printed(&millstream(&["journal", "cat", &path]));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 9);
    let parts: Vec<&str> = lines[3].split(' ').collect();
    assert_eq!(parts[1..], ["3", "one"]);
    assert!(
        parts[0].starts_with("20") && parts[0].ends_with('Z'),
        "{shown}"
    );
    let quiet = feed(&["journal", "append", &path, "--quiet"], "ten\n");
    assert_eq!(printed(&quiet), "");
    let hex = printed(&millstream(&[
        "journal", "tail", &path, "-n", "1", "--body", "hex",
    ]));
    assert!(hex.ends_with(" 9 74656e\n"), "{hex}");
}

#[test]
fn frames_with_a_length_keep_any_byte() {
    let (_folder, path) = fresh();
    let output = feed(
        &["journal", "append", &path, "--framing", "u8"],
        b"\x03a\nb\x00\x02\xff\\",
    );
    assert_eq!(printed(&output), "0\n1\n2\n");
    let shown = printed(&millstream(&["journal", "cat", &path]));
    let bodies: Vec<&str> = shown
        .lines()
        .map(|line| line.splitn(3, ' ').nth(2).unwrap())
        .collect();
    assert_eq!(bodies, ["a\\nb", "", "\\xff\\\\"]);
    let lines = printed(&millstream(&["journal", "cat", &path, "--json"]));
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (
            &lines[0]["text"],
            &lines[2]["base64"],
            &lines[2]["sequence"]
        ),
        (&json!("a\nb"), &json!("/1w="), &json!(2))
    );
}

/// Each verb that takes a moment says what it took the words for.
#[test]
fn moments_are_read_from_words_and_shown_with_their_zone() {
    let (folder, path) = fresh();
    numbers(&path, 10);
    let copy = text(&folder.path().join("copy")).to_owned();
    for args in [
        &["cat", &path, "--since", "yesterday", "--body", "raw"][..],
        &["tail", &path, "--since", "yesterday", "--body", "raw"],
        &["export", &path, "--since", "yesterday"],
        &["copy", &path, &copy, "--since", "yesterday"],
    ] {
        let args = [&["journal"], args].concat();
        let output = command(&args).env("TZ", "EST5").output().unwrap();
        printed(&output);
        let said = stderr(&output);
        let line = said.lines().find(|line| line.starts_with("--since 20"));
        let line = line.unwrap_or_else(|| panic!("{args:?}: {said}"));
        assert!(line.contains("T00:00:00-05:00["), "{line}");
    }
    let until = ["journal", "cat", &path, "--until", "2 hours ago"];
    let output = command(&until).env("TZ", "UTC0").output().unwrap();
    assert_eq!(printed(&output), "");
    assert!(
        stderr(&output).starts_with("--until 20"),
        "{}",
        stderr(&output)
    );
    let exact = millstream(&["journal", "cat", &path, "--since", "2026-11-21T00:00:00Z"]);
    assert_eq!(printed(&exact).lines().count(), 10);
    assert_eq!(stderr(&exact), "");
    let both = ["journal", "tail", &path, "--since", "1h", "-n", "3"];
    assert_eq!(millstream(&both).status.code(), Some(2));
    assert_eq!(raw(&["tail", &path, "--since", "1h"]).lines().count(), 10);
}

#[test]
fn ranges_are_by_number_and_by_time() {
    let (_folder, path) = fresh();
    numbers(&path, 10);
    // Between the two appends at least a millisecond goes by, and the time of each is in the journal.
    std::thread::sleep(Duration::from_millis(2));
    feed(&["journal", "append", &path], "late 0\nlate 1\n");
    let late = printed(&millstream(&[
        "journal", "cat", &path, "--from", "10", "-n", "1",
    ]));
    let time = late.split(' ').next().unwrap();

    assert_eq!(raw(&["cat", &path, "--from", "3", "--to", "5"]), "3\n4\n");
    assert_eq!(raw(&["cat", &path, "--from", "3", "-n", "1"]), "3\n");
    assert_eq!(raw(&["cat", &path, "--from", "5", "--to", "3"]), "");
    assert_eq!(raw(&["cat", &path, "--since", time]), "late 0\nlate 1\n");
    let before = raw(&["cat", &path, "--until", time, "--from", "8"]);
    assert_eq!(before, "8\n9\n");
    assert_eq!(raw(&["cat", &path, "--since", "1h"]).lines().count(), 12);
    assert_eq!(raw(&["cat", &path, "--until", "1h"]), "");
    assert_eq!(raw(&["tail", &path, "-n", "2"]), "late 0\nlate 1\n");
    assert_eq!(raw(&["tail", &path, "--from", "11"]), "late 1\n");
    assert_eq!(raw(&["tail", &path]).lines().next(), Some("2"));
}

#[test]
fn info_describes_what_there_is() {
    let (_folder, path) = fresh();
    numbers(&path, 10_000);
    let info: Value =
        serde_json::from_slice(&millstream(&["journal", "info", &path, "--json"]).stdout).unwrap();
    assert_eq!(
        (
            &info["records"],
            &info["first"],
            &info["next"],
            &info["segment_bytes"]
        ),
        (&json!(10_000), &json!(0), &json!(10_000), &json!(65_536))
    );
    assert!(info["segments"].as_u64().unwrap() > 3, "{info}");
    assert_eq!(
        (&info["writers"], &info["cursors"]),
        (&json!([]), &json!([]))
    );
    assert!(info["first_time"].as_str() <= info["last_time"].as_str());
    assert!(info["first_time"].is_string(), "{info}");
    let shown = printed(&millstream(&["journal", "info", &path]));
    assert!(
        shown.contains("records    10000, from 0 to 9999"),
        "{shown}"
    );
}

#[test]
fn prune_removes_complete_segments_and_reports_it() {
    let (_folder, path) = fresh();
    numbers(&path, 10_000);
    let output = millstream(&["journal", "prune", &path, "--bytes", "128KiB", "--json"]);
    let report: Value = serde_json::from_str(&printed(&output)).unwrap();
    let first = report["first"].as_u64().unwrap();
    assert!(
        first > 0 && report["segments"].as_u64().unwrap() > 1,
        "{report}"
    );
    let kept = raw(&["cat", &path]);
    assert_eq!(kept.lines().next(), Some(&*first.to_string()));
    assert_eq!(kept.lines().count() as u64, 10_000 - first);
    let gone = millstream(&["journal", "cat", &path, "--from", "0"]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(
        stderr(&gone).ends_with(&format!(
            "record 0 has been pruned; the first one is {first}\n"
        )),
        "{}",
        stderr(&gone)
    );
}

#[test]
fn every_verb_has_help_with_an_example() {
    for verb in [
        "info", "cat", "tail", "append", "verify", "export", "import", "prune", "copy",
    ] {
        let help = printed(&millstream(&["journal", verb, "--help"]));
        let example = format!("\n  millstream journal {verb} ");
        assert!(
            help.contains("Example") && (help.contains(&example) || help.contains(" | millstream")),
            "{help}"
        );
    }
}
