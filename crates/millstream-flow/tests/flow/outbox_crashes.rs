//! Crashes around each commit and each delivery: nothing is lost, and nothing is twice in a destination that
//! remembers its position.

use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::outbox::DeliveryError;
use millstream_flow::{Emit, Flow, FlowError, codec, testing};

use crate::destination::{Point, Table, copy, numbers, recovery, run};
use crate::support::Random;

/// A flow with state, whose output depends on all that came before it.
fn counts(table: &Table) -> Flow {
    let flow = Flow::new("counts");
    flow.source(
        "words",
        testing::items((0..28u32).map(|n| n % 5)).batch_size(4),
    )
    .key_by(|word| *word)
    .count(Emit::Each)
    .items()
    .map(|(word, count)| format!("{word} {count}"))
    .sink("out", codec::encode(table.outbox(), codec::display));
    flow
}

fn expected() -> Vec<String> {
    let mut rows: Vec<String> = (0..28)
        .map(|n| format!("{} {}", n % 5, n / 5 + 1))
        .collect();
    rows.sort();
    rows
}

/// Runs until the end, where the n-th run crashes at the point that `crash` returns. Returns the number of crashes.
pub fn crash(
    flow: &Flow,
    mut workers: impl FnMut() -> usize,
    at: impl Fn(u64) -> Option<Crash>,
) -> u64 {
    let state = tempfile::tempdir().expect("a folder");
    for crashes in 0..1000 {
        let recovery = recovery(state.path()).epoch(Duration::ZERO);
        let recovery = match at(crashes) {
            Some(at) => recovery.crash(at),
            None => recovery,
        };
        match run(flow, workers(), recovery) {
            Ok(_) => return crashes,
            Err(FlowError::Crashed(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("it gets nowhere");
}

#[test]
fn a_crash_around_any_commit_loses_nothing() {
    for (remembers, workers) in [(true, 3), (false, 1)] {
        for moment in Crash::MOMENTS {
            for commit in 1.. {
                let table = Table::new(remembers);
                let crashes = crash(
                    &counts(&table),
                    || workers,
                    |run| (run == 0).then_some(moment(commit)),
                );
                assert_eq!(table.sorted(), expected(), "{}", moment(commit));
                if crashes == 0 {
                    assert!(commit > 4, "{commit}");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_crash_of_each_run_with_changing_workers_loses_nothing() {
    for (seed, remembers) in [(1, true), (2, false), (3, true)] {
        let table = Table::new(remembers);
        let mut random = Random::new(seed);
        let workers = || 1 + random.below(3) as usize;
        let crashes = crash(&counts(&table), workers, |_| Some(Crash::After(1)));
        assert!(crashes > 4, "{crashes}");
        assert_eq!(table.sorted(), expected());
    }
}

#[test]
fn a_crash_around_any_delivery_loses_nothing() {
    for remembers in [true, false] {
        for moment in [Point::Connect, Point::Before, Point::After] {
            for n in 1.. {
                let state = tempfile::tempdir().expect("a folder");
                let table = Table::new(remembers);
                let at = moment(n);
                // The process dies with its connection: a run that fails at once stands for it.
                table.fails(move |point| (point == at).then(|| DeliveryError::fatal("killed")));
                let flow = copy(60, table.outbox());
                let first = run(&flow, 1, recovery(state.path()));
                if first.is_err() {
                    table.heals();
                    run(&flow, 1, recovery(state.path())).expect("it resumes");
                }
                assert_eq!(table.sorted(), numbers(60), "{at:?}");
                if first.is_ok() {
                    assert!(n > 1, "{at:?}");
                    break;
                }
            }
        }
    }
}
