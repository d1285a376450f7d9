//! Another number of processes or workers, in the middle of windows and joins.

use std::path::Path;
use std::time::Duration;

use millstream_flow::checkpoint::{Crash, Saved, process_dir, rescale};
use millstream_flow::{Flow, FlowError, Options};

use super::hub::{Hub, finish, start_with, until};
use super::state::{crash, durable_flow, expected, flow, outputs, recovery, write_input};

/// The epoch of the last commit of a state.
fn epoch(dir: &Path, processes: usize) -> u64 {
    let state = dir.join("state");
    let state = match processes {
        1 => state,
        _ => process_dir(&state, 0),
    };
    let saved = Saved::open(&state).ok();
    saved
        .and_then(|saved| saved.commit().map(|commit| commit.epoch))
        .unwrap_or(0)
}

/// Runs until `epochs` more epochs are committed, or the flow has ended; `epochs` of 0 means to its end.
fn run(dir: &Path, processes: usize, workers: usize, epochs: u64) {
    run_flow(flow, dir, (processes, workers), epochs);
}

fn run_flow(
    flow: fn(&Path) -> Flow,
    dir: &Path,
    (processes, workers): (usize, usize),
    epochs: u64,
) {
    let wanted = match epochs {
        0 => u64::MAX,
        epochs => epoch(dir, processes) + epochs,
    };
    if processes == 1 {
        let mut options = Options::workers(workers);
        options.recovery = Some(recovery(dir));
        let running = flow(dir).start(options).unwrap();
        until("there are epochs", || {
            epoch(dir, 1) >= wanted || running.ended_within(Duration::ZERO)
        });
        running.stop();
        running.wait().unwrap();
        return;
    }
    let hub = Hub::new(processes);
    let own = dir.to_owned();
    let processes_of = start_with(&hub, workers, |_| Some(recovery(dir)), move |_| flow(&own));
    until("there are epochs", || {
        epoch(dir, processes) >= wanted || processes_of.iter().all(|process| process.is_finished())
    });
    hub.stop();
    for outcome in finish(processes_of) {
        outcome.unwrap();
    }
}

#[test]
fn a_flow_continues_on_another_number_of_processes() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let state = dir.path().join("state");
    let mut from = 1;
    run(dir.path(), 1, 1, 4);
    for (to, workers) in [(4, 1), (2, 2), (3, 1), (1, 2), (2, 1)] {
        let done = rescale(&state, to, Some(workers), false).unwrap();
        assert_eq!(
            (done.from, done.processes, done.workers),
            (from, to, workers)
        );
        assert!(done.keys > 0);
        run(dir.path(), to, workers, 4);
        from = to;
    }
    run(dir.path(), 2, 1, 0);
    assert_eq!(outputs(dir.path()), expected());
}

#[test]
fn the_partitions_of_a_durable_source_move() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let state = dir.path().join("state");
    run_flow(durable_flow, dir.path(), (1, 1), 4);
    for to in [3, 2] {
        rescale(&state, to, None, false).unwrap();
        run_flow(durable_flow, dir.path(), (to, 1), 4);
    }
    run_flow(durable_flow, dir.path(), (2, 1), 0);
    assert_eq!(outputs(dir.path()), expected());
}

#[test]
fn a_state_is_divided_twice_without_a_run_in_between() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let state = dir.path().join("state");
    run(dir.path(), 2, 1, 4);
    for to in [3, 1, 4, 2] {
        rescale(&state, to, None, false).unwrap();
    }
    run(dir.path(), 2, 1, 0);
    assert_eq!(outputs(dir.path()), expected());
}

#[test]
fn a_state_is_divided_after_a_crash_at_any_point_of_a_commit() {
    let expected = expected();
    for crashed in [0, 1] {
        for moment in Crash::SHARED_MOMENTS {
            let dir = tempfile::tempdir().unwrap();
            write_input(dir.path());
            let state = dir.path().join("state");
            for (processes, commit) in [(2, 3), (3, 2)] {
                crash(dir.path(), processes, 1, (crashed, moment(commit)));
                let done = rescale(&state, processes + 1, None, false).unwrap();
                assert!(done.with_output.is_empty());
            }
            // Fewer: what a killed process has written after its last commit would stay.
            crash(dir.path(), 4, 1, (crashed, moment(2)));
            let error = format!("{:?}", rescale(&state, 2, None, false).unwrap_err());
            assert!(error.contains("--leave-output"), "{error}");
            assert_eq!(rescale(&state, 2, None, true).unwrap().with_output, [2, 3]);
            rescale(&state, 4, None, false).unwrap();
            run(dir.path(), 4, 1, 0);
            let name = format!("process {crashed}, {}", moment(1));
            assert_eq!(outputs(dir.path()), expected, "{name}");
        }
    }
}

#[test]
fn what_is_not_one_complete_state_is_not_divided() {
    let dir = tempfile::tempdir().unwrap();
    write_input(dir.path());
    let state = dir.path().join("state");
    let refused = |wanted: &str| {
        let error: FlowError = rescale(&state, 3, None, false).unwrap_err();
        assert!(format!("{error:?}").contains(wanted), "{error}");
    };
    refused("not the state directory");
    run(dir.path(), 2, 1, 4);
    let moved = dir.path().join("elsewhere");
    std::fs::rename(process_dir(&state, 1), &moved).unwrap();
    refused("p1 is missing");
    std::fs::rename(&moved, process_dir(&state, 1)).unwrap();
    rescale(&state, 3, None, false).unwrap();
}
