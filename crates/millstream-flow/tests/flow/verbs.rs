//! `stateful_batch` and `inspect_debug`.

use std::time::Duration;

use millstream_flow::testing::{Collected, items};
use millstream_flow::{Flow, FlowError, Recovery, codec, files};

use super::support::{in_own_process, run};
use crate::recovery::run as run_saving;

/// Emits how many values each call had, and the sum so far.
fn sums(out: &std::path::Path) -> Flow {
    let flow = Flow::new("sums");
    flow.source("in", items(0..90u64).batch_size(9))
        .key_by(|n| n % 4)
        .stateful_batch(
            "sum",
            |_| 0u64,
            |sum, _, values: Vec<u64>| {
                *sum += values.iter().sum::<u64>();
                Some((values.len(), *sum))
            },
        )
        .items()
        .map(|(key, (values, sum))| format!("{key} {values} {sum}"))
        .sink("out", codec::encode(files::write(out), codec::display));
    flow
}

#[test]
fn a_key_is_called_once_for_a_batch_and_resumed_with_its_state() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole");
    let out = dir.path().join("out");
    // With an epoch for each batch, batches are as large as the script says.
    let lockstep = |state: &str| Recovery::new(dir.path().join(state)).epoch(Duration::ZERO);
    run_saving(&sums(&whole), 1, lockstep("whole.state")).unwrap();
    let due = std::fs::read_to_string(&whole).unwrap();
    let first: Vec<&str> = due.lines().take(5).collect();
    assert_eq!(first, ["0 3 12", "1 2 6", "2 2 8", "3 2 10", "1 3 45"]);
    assert_eq!(due.lines().count(), 4 * 10);
    let flow = sums(&out);
    let mut crashes = 0;
    loop {
        match run_saving(&flow, 1, lockstep("state").crash_after(2)) {
            Err(FlowError::Crashed(_)) => crashes += 1,
            ended => {
                ended.unwrap();
                break;
            }
        }
    }
    assert!(crashes > 2, "{crashes}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), due);
}

#[test]
fn inspect_debug_writes_epoch_worker_and_item() {
    let output = in_own_process("verbs::shows_items");
    let said = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.starts_with("seen "))
        .collect();
    assert_eq!(
        lines,
        [
            "seen epoch=- worker=0: \"a\"",
            "seen epoch=- worker=0: \"b\""
        ]
    );
}

#[test]
#[ignore = "run by inspect_debug_writes_epoch_worker_and_item"]
fn shows_items() {
    let flow = Flow::new("debug");
    let out = Collected::new();
    flow.source("in", items(["a", "b"]))
        .inspect_debug("seen")
        .sink("out", out.sink());
    run(&flow, 1).unwrap();
    assert_eq!(out.take(), ["a", "b"]);
}
