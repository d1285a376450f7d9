//! What a run of several processes refuses at its start.

use std::sync::Arc;

use millstream_flow::cluster::{Cluster, JoinStopped, Joined, Membership, Offer};
use millstream_flow::error::Cause;
use millstream_flow::testing::{Collected, items};
use millstream_flow::{Flow, Options, Rehearsal};

use super::hub::{Hub, finish, start};

fn flow() -> Flow {
    let flow = Flow::new("starts");
    flow.source("in", items([1u64, 2]))
        .redistribute()
        .sink("out", Collected::new().sink());
    flow
}

#[test]
fn processes_with_another_graph_do_not_meet() {
    let hub = Hub::new(2);
    let processes = start(&hub, 1, |process| {
        let flow = flow();
        if process == 1 {
            flow.source("other", items([1u64]))
                .sink("out 2", Collected::new().sink());
        }
        flow
    });
    for outcome in finish(processes) {
        let error = format!("{:?}", outcome.unwrap_err());
        assert!(error.contains("source \\\"other\\\""), "{error}");
        assert!(error.contains("edge \\\"in\\\" to"), "{error}");
    }
}

#[test]
fn items_without_a_codec_are_refused_before_the_others_are_met() {
    #[derive(Clone)]
    struct Own;
    let flow = Flow::new("own");
    flow.source("in", items([1u64]))
        .map(|_| Own)
        .redistribute()
        .sink("out", Collected::new().sink());
    let error = format!("{:?}", flow.run(Hub::new(2).options(0, 1)).unwrap_err());
    assert!(error.contains("cannot be sent as bytes"), "{error}");
}

#[test]
fn what_runs_on_one_process_only_is_refused() {
    let hub = Hub::new(2);
    let here = flow().run_here(hub.options(0, 1)).unwrap_err();
    assert!(here.to_string().contains("calling thread"), "{here}");
    let mut options = hub.options(0, 1);
    options.rehearsal = Some(Rehearsal::new().into());
    let rehearsed = flow().run(options).unwrap_err();
    assert!(rehearsed.to_string().contains("rehearsal"), "{rehearsed}");
    let beyond = flow().run(hub.options(2, 1)).unwrap_err();
    assert!(beyond.to_string().contains("process 2 of 2"), "{beyond}");
}

struct Stopped;

impl Cluster for Stopped {
    fn membership(&self) -> Membership {
        Membership {
            process: 0,
            processes: 2,
        }
    }
    fn join(&self, _: Offer, _: &dyn Fn() -> bool) -> Result<Joined, Cause> {
        Err(JoinStopped.into())
    }
}

#[test]
fn a_run_that_is_stopped_while_it_waits_for_others_ends_without_an_error() {
    let mut options = Options::workers(2);
    options.cluster = Some(Arc::new(Stopped));
    let report = flow().run(options).unwrap();
    assert_eq!(report.workers.len(), 2);
}
