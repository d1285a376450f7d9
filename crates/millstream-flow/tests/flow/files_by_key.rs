//! A sink with a file for each key.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::files::{self, WriteByKey};
use millstream_flow::testing::items;
use millstream_flow::{Flow, FlowError, Framing, Recovery};

use super::support::{failure, run};
use crate::recovery::run as run_saving;

/// Names and contents of the files in a directory.
fn read(dir: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    let files = entries.map(|entry| {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        (entry.file_name().into_string().unwrap(), text)
    });
    files.filter(|(name, _)| !name.starts_with('.')).collect()
}

fn flow(sink: WriteByKey, numbers: u64, keys: u64) -> Flow {
    let flow = Flow::new("by key");
    let key = move |n: &u64| format!("k/{}", n % keys);
    let sink = files::by_key(sink, key, |n: &u64, out: &mut Vec<u8>| {
        out.extend(n.to_string().bytes());
    });
    flow.source("n", items(0..numbers))
        .key_by(move |n| n % keys)
        .stateful("state", |_| (), |(), _, n| [n])
        .values()
        .sink("out", sink);
    flow
}

fn due(numbers: u64, keys: u64) -> BTreeMap<String, String> {
    let of_key = |key: u64| {
        (key..numbers)
            .step_by(keys as usize)
            .map(|n| format!("{n}\n"))
    };
    let name = |key| format!("k%2F{key}.txt");
    (0..keys.min(numbers))
        .map(|key| (name(key), of_key(key).collect()))
        .collect()
}

#[test]
fn each_key_has_its_file_with_any_number_of_open_ones() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    for (workers, open) in [(1, 100), (1, 3), (3, 1), (2, 64)] {
        // The directory is created anew: nothing of a run with more keys remains.
        for keys in [50, 7] {
            let sink = files::write_by_key(&out).suffix(".txt").max_open(open);
            run(&flow(sink, 3_000, keys), workers).unwrap();
            assert_eq!(
                read(&out),
                due(3_000, keys),
                "{workers} workers, {open} open"
            );
        }
    }
}

#[test]
fn a_crash_at_every_commit_does_not_change_the_results() {
    for (workers, restarted) in [(1, 1), (2, 3)] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let state = dir.path().join("state");
        let sink = files::write_by_key(&out).suffix(".txt").max_open(2);
        let flow = flow(sink, 400, 9);
        let mut crashes = 0;
        for attempt in 0.. {
            let moment = Crash::MOMENTS[attempt % 3];
            let workers = if attempt % 2 == 0 { workers } else { restarted };
            let recovery = Recovery::new(&state)
                .epoch(Duration::ZERO)
                .sync(attempt % 4 == 0);
            match run_saving(&flow, workers, recovery.crash(moment(2))) {
                Err(FlowError::Crashed(_)) => crashes += 1,
                ended => {
                    ended.unwrap();
                    break;
                }
            }
            // A killed process may have written a part of the next epoch.
            for name in read(&out).into_keys() {
                let path = out.join(name);
                let text = std::fs::read_to_string(&path).unwrap();
                std::fs::write(&path, text + "torn").unwrap();
            }
        }
        assert!(crashes > 10, "{crashes}");
        assert_eq!(read(&out), due(400, 9));
    }
}

#[test]
fn a_file_created_after_the_last_commit_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let state = dir.path().join("state");
    let build = |keys| flow(files::write_by_key(&out).suffix(".txt"), 40, keys);
    let recovery = Recovery::new(&state).epoch(Duration::ZERO);
    run_saving(&build(40), 1, recovery.clone().crash(Crash::Before(3))).unwrap_err();
    assert!(read(&out).len() > 10, "what came after the commit is there");
    // The keys are different now, so that those files would not be written again.
    run_saving(&build(1), 1, recovery).unwrap();
    let files = read(&out);
    let lines: usize = files.values().map(|text| text.lines().count()).sum();
    assert_eq!(lines, 40, "{files:?}");
}

#[test]
fn a_file_shorter_than_its_commit_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let state = dir.path().join("state");
    let flow = flow(files::write_by_key(&out).suffix(".txt"), 400, 1);
    let recovery = Recovery::new(&state).epoch(Duration::ZERO);
    run_saving(&flow, 1, recovery.clone().crash(Crash::After(5))).unwrap_err();
    std::fs::write(out.join("k%2F0.txt"), "0\n").unwrap();
    let said = format!("{:?}", run_saving(&flow, 1, recovery.clone()).unwrap_err());
    assert!(
        said.contains("k%2F0.txt: it has 2 bytes, fewer than the "),
        "{said}"
    );
    for entry in std::fs::read_dir(&out).unwrap() {
        std::fs::remove_file(entry.unwrap().path()).unwrap();
    }
    let said = format!("{:?}", run_saving(&flow, 1, recovery).unwrap_err());
    assert!(said.contains("the index of its files is missing"), "{said}");
}

#[test]
fn a_directory_with_other_files_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("mine"), "precious").unwrap();
    let said = failure(&flow(files::write_by_key(dir.path()), 3, 3), 1);
    assert!(
        said.contains("holds \"mine\", which this sink did not write"),
        "{said}"
    );
    assert_eq!(read(dir.path()).len(), 1);
    let odd = dir.path().join("odd");
    let said = failure(&flow(files::write_by_key(odd).suffix("/x"), 3, 3), 1);
    assert!(said.contains("a suffix has at most 50 letters"), "{said}");
}

#[test]
fn the_index_is_rewritten_and_its_old_files_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let state = dir.path().join("state");
    let sink = files::write_by_key(&out).suffix(".txt");
    // 100 lines of 14 bytes for each of 200 batches of 100 items: four times the limit of the index.
    let flow = {
        let flow = Flow::new("by key");
        let key = |n: &u64| format!("{:09}", n % 100);
        let sink = files::by_key(sink, key, |n: &u64, out: &mut Vec<u8>| {
            out.extend(n.to_string().bytes());
        });
        flow.source("n", items(0..20_000u64).batch_size(100))
            .sink("out", sink);
        flow
    };
    for _ in 0..3 {
        let recovery = Recovery::new(&state).epoch(Duration::ZERO).sync(false);
        run_saving(&flow, 1, recovery.crash(Crash::Within(60))).unwrap_err();
        let indexes = std::fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let indexes = indexes.filter(|name| name.to_string_lossy().starts_with(".millstream"));
        assert!(indexes.count() <= 2);
    }
    let recovery = Recovery::new(&state).epoch(Duration::ZERO).sync(false);
    run_saving(&flow, 1, recovery).unwrap();
    let written = read(&out);
    assert_eq!(written.len(), 100);
    let expected: String = (0..200)
        .map(|turn| format!("{}\n", turn * 100 + 7))
        .collect();
    assert_eq!(written["000000007.txt"], expected);
    let named = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names = std::fs::read_dir(&out).unwrap().map(named);
    assert!(
        !names.any(|name| name == ".millstream-keys-0"),
        "the first index has gone"
    );
}

#[test]
fn each_file_has_the_preamble_and_raw_frames_are_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let sink = files::write_by_key(dir.path()).raw().preamble(b"head:");
    run(&flow(sink, 4, 2), 1).unwrap();
    let due = [("k%2F0", "head:02"), ("k%2F1", "head:13")];
    assert_eq!(
        read(dir.path()),
        due.map(|(a, b)| (a.into(), b.into())).into()
    );
    let sink = files::write_by_key(dir.path()).framing(Framing::U8);
    run(&flow(sink, 3, 1), 1).unwrap();
    assert_eq!(read(dir.path())["k%2F0"], "\u{1}0\u{1}1\u{1}2");
}
