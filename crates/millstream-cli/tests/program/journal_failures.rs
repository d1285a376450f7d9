//! `millstream journal`: how it fails, and how it is ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use serde_json::Value;

use super::journal::{fresh, numbers};
use super::process::{command, feed, interrupt, millstream, printed, stderr};

#[test]
fn where_there_is_no_journal_nothing_is_made() {
    let (folder, path) = fresh();
    for verb in ["info", "cat", "tail", "verify", "export"] {
        let output = millstream(&["journal", verb, &path]);
        assert_eq!(output.status.code(), Some(1), "{verb}");
        assert_eq!(
            stderr(&output),
            format!("millstream journal {verb}: {path}: there is no journal here\n")
        );
    }
    let following = millstream(&["journal", "tail", "-f", &path]);
    assert_eq!(following.status.code(), Some(1));
    assert_eq!(folder.path().read_dir().unwrap().count(), 0);
}

#[test]
fn a_directory_of_something_else_is_refused() {
    let (folder, _) = fresh();
    std::fs::write(folder.path().join("photo.jpg"), "jpg").unwrap();
    let path = folder.path().to_str().unwrap();
    let output = feed(&["journal", "append", path], "line\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("not a journal: the directory holds \"photo.jpg\""),
        "{}",
        stderr(&output)
    );
}

/// The limit is that of the journal's segments, which is lower than that of the option.
#[test]
fn lines_before_one_that_is_too_long_are_appended_and_acknowledged() {
    let (_folder, path) = fresh();
    numbers(&path, 3);
    let long = "x".repeat(60_000);
    let output = feed(
        &["journal", "append", &path],
        format!("one\ntwo\n{long}\nfour\n"),
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"3\n4\n");
    let said = stderr(&output);
    assert!(
        said.contains("the frame at offset 8 is") && said.contains("over the limit of 57"),
        "{said}"
    );
    let found = printed(&millstream(&["journal", "cat", &path, "--body", "raw"]));
    assert_eq!(found, "0\n1\n2\none\ntwo\n");
}

#[test]
fn bad_usage_exits_2() {
    let (_folder, path) = fresh();
    for args in [
        &["cat", &path, "--since", "tomorrow"][..],
        &["append", &path, "--sync", "sometimes"],
        &["prune", &path],
        &["cat", &path, "--json", "--body", "hex"],
        &["append"],
        &[],
    ] {
        let output = millstream(&[&["journal"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    let size = feed(
        &["journal", "append", &path, "--segment-bytes", "1000"],
        "line\n",
    );
    assert_eq!(size.status.code(), Some(1));
    assert!(
        stderr(&size).contains("segment_bytes = 1000: a multiple of 65536"),
        "{}",
        stderr(&size)
    );
}

#[test]
fn a_torn_end_is_no_damage() {
    let (_folder, path) = fresh();
    numbers(&path, 100);
    // As after a loss of power: another boot, nothing was synced, and the last frame is not as it was written.
    let folder = std::path::Path::new(&path);
    std::fs::remove_file(folder.join("control")).unwrap();
    let file = folder.join("segment-0000000000.log");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[72..80].fill(0);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end] ^= 1;
    std::fs::write(&file, bytes).unwrap();

    let output = millstream(&["journal", "verify", &path, "--json"]);
    let report: Value = serde_json::from_str(&printed(&output)).unwrap();
    assert_eq!(report["damages"].as_array().unwrap().len(), 0);
    let torn = &report["torn"];
    assert_eq!(torn["path"].as_str(), file.to_str());
    let from = torn["offset"].as_u64().unwrap();
    let bytes = torn["bytes"].as_u64().unwrap();
    assert!((from..from + bytes).contains(&(end as u64)), "{report}");
    assert!(torn["records_max"].as_u64() >= Some(1), "{report}");
    let shown = printed(&millstream(&["journal", "verify", &path]));
    assert!(
        shown.contains(": torn at offset ") && shown.contains("99 sound records in "),
        "{shown}"
    );
    // The next opening to write does it.
    numbers(&path, 1);
    let after = printed(&millstream(&["journal", "verify", &path, "--json"]));
    let after: Value = serde_json::from_str(&after).unwrap();
    assert_eq!(
        (&after["torn"], &after["records"]),
        (&Value::Null, &100.into())
    );
}

#[test]
fn a_damaged_byte_is_named_by_file_and_offset() {
    let (_folder, path) = fresh();
    numbers(&path, 5_000);
    let sound = millstream(&["journal", "verify", &path]);
    assert!(
        printed(&sound).starts_with("5000 sound records in "),
        "{sound:?}"
    );

    // The first frame of the second segment: a header of 16 bytes, then the body.
    let file = std::path::Path::new(&path).join("segment-0000000001.log");
    let mut bytes = std::fs::read(&file).unwrap();
    let frame = 8192;
    bytes[frame + 16] ^= 1;
    std::fs::write(&file, bytes).unwrap();

    let output = millstream(&["journal", "verify", &path, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).ends_with(": 1 damage\n"),
        "{}",
        stderr(&output)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let damage = &report["damages"][0];
    assert_eq!(
        (&damage["offset"], damage["path"].as_str()),
        (&frame.into(), file.to_str())
    );
    let start = &damage["records"]["start"];
    let end = &damage["records"]["end"];
    assert!(start.as_u64() < end.as_u64(), "{report}");
    let shown = millstream(&["journal", "verify", &path]);
    let line = format!(
        "{}: damaged at offset {frame}: a frame does not match",
        file.display()
    );
    assert!(
        String::from_utf8_lossy(&shown.stdout).starts_with(&line),
        "{shown:?}"
    );

    let cat = millstream(&["journal", "cat", &path, "--body", "raw"]);
    assert_eq!(cat.status.code(), Some(1));
    assert!(stderr(&cat).contains(&line), "{}", stderr(&cat));
    let good = String::from_utf8(cat.stdout).unwrap();
    assert_eq!(good.lines().count() as u64, start.as_u64().unwrap());
}

#[test]
fn a_line_over_the_limit_is_named_and_those_before_it_are_kept() {
    let (_folder, path) = fresh();
    let mut input = b"good\n".to_vec();
    input.resize(17 << 20, b'x');
    let output = feed(&["journal", "append", &path], input);
    assert_eq!(
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).as_ref()
        ),
        (Some(1), "0\n")
    );
    assert!(
        stderr(&output).contains("standard input: the frame at offset 5 "),
        "{}",
        stderr(&output)
    );
}

#[test]
fn ctrl_c_ends_an_append_that_waits_for_input() {
    let (_folder, path) = fresh();
    let mut child = command(&["journal", "append", &path])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"line\n").unwrap();
    let mut acknowledged = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut acknowledged)
        .unwrap();
    assert_eq!(acknowledged, "0\n");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_output_has_lost_its_reader() {
    let (_folder, path) = fresh();
    numbers(&path, 100_000);
    for verb in ["cat", "export", "tail"] {
        let all = ["journal", verb, &path];
        let more: &[&str] = if verb == "tail" {
            &["-n", "100000"]
        } else {
            &[]
        };
        let mut child = command(&[&all, more].concat()).spawn().unwrap();
        let mut byte = [0];
        child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
        // The pipe is closed now, and cannot have held it all.
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), &*stderr(&output)),
            (Some(0), ""),
            "{verb}"
        );
    }
    // A tail that has nothing to print notices as well.
    let mut child = command(&["journal", "tail", "-f", "-n", "1", &path])
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
}
