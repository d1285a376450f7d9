//! A panic in a user's function ends the flow with an error that names the step.

use std::sync::Arc;

use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::sink::{Sink, Token, Transactional, Writer};
use millstream_flow::testing::{Collected, items};
use millstream_flow::{
    Emit, Flow, FlowError, KeyContext, Logic, Options, Recovery, codec, generator,
};

use super::support::{address, finish, framed, listener, run, send};

fn panicked(flow: &Flow, workers: usize) -> (String, String) {
    match run(flow, workers) {
        Err(FlowError::Panicked { step, message }) => (step, message),
        other => panic!("{other:?}"),
    }
}

/// Panics at 5.
fn delicate(n: u64) -> u64 {
    assert!(n != 5, "five is too much");
    n
}

fn check(make: impl Fn(&Flow)) {
    for workers in 1..=3 {
        let flow = Flow::new("panic");
        make(&flow);
        let (step, message) = panicked(&flow, workers);
        assert_eq!(
            (step.as_str(), message.as_str()),
            ("delicate", "five is too much"),
            "{workers} workers"
        );
    }
}

fn endless(flow: &Flow) -> millstream_flow::Stream<u64> {
    flow.source("n", generator::from_fn(Some).partitions(2))
}

#[test]
fn in_a_step_after_the_source() {
    check(|flow| {
        endless(flow)
            .map(|n| n)
            .map(delicate)
            .named("delicate")
            .map(|n| n)
            .sink("out", Collected::new().sink());
    });
}

#[test]
fn in_a_state() {
    check(|flow| {
        endless(flow)
            .key_by(|n| *n)
            .stateful("delicate", |_| (), |(), _, n| [delicate(n)])
            .values()
            .sink("out", Collected::new().sink());
    });
}

#[test]
fn at_the_end_of_a_key() {
    struct AtEnd;
    impl Logic<u64, u64> for AtEnd {
        type Out = u64;
        fn on_item(&mut self, _: &u64, _: u64, _: &mut KeyContext<'_, u64>) {}
        fn on_end(&mut self, key: &u64, _: &mut KeyContext<'_, u64>) {
            delicate(*key);
        }
    }
    check(|flow| {
        flow.source("n", items(0..10u64))
            .key_by(|n| *n)
            .stateful_with("delicate", None, |_| AtEnd)
            .values()
            .sink("out", Collected::new().sink());
    });
}

#[test]
fn in_a_generator() {
    check(|flow| {
        flow.source("delicate", generator::from_fn(|n| Some(delicate(n))))
            .sink("out", Collected::new().sink());
    });
}

#[test]
fn in_a_branch_and_after_another_reader() {
    check(|flow| {
        let numbers = endless(flow);
        numbers.sink("copy", Collected::new().sink());
        let (yes, no) = numbers.branch(|n| delicate(*n).is_multiple_of(2));
        yes.named("delicate").sink("yes", Collected::new().sink());
        no.sink("no", Collected::new().sink());
    });
}

#[test]
fn while_the_other_workers_sleep() {
    for workers in 2..=3 {
        let (source, told) = listener();
        let flow = Flow::new("asleep");
        flow.source("in", codec::decode(source, codec::text))
            .key_by(|item| item.clone())
            .map(|item| delicate(item.len() as u64))
            .named("delicate")
            .count(Emit::End)
            .items()
            .sink("out", Collected::new().sink());
        let running = flow.start(Options::workers(workers)).unwrap();
        let to = address(&told);
        super::support::wait(150);
        send(to, &framed(&"u32".parse().unwrap(), ["a", "fives"]));
        let error = finish(running).unwrap_err().to_string();
        assert_eq!(error, "step \"delicate\" panicked: five is too much");
    }
}

/// A sink that panics when it is notified of a commit.
struct Unlucky(Collected<u64>);

impl Sink<Vec<u64>> for Unlucky {
    fn describe(&self) -> String {
        "unlucky".to_owned()
    }
    fn open(
        &self,
        worker: usize,
        control: &Arc<Control>,
    ) -> Result<Box<dyn Writer<Vec<u64>>>, Cause> {
        Sink::<Vec<u64>>::open(&self.0.sink(), worker, control)
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl Transactional for Unlucky {
    fn resume(&self, _: &[Token]) -> Result<Option<Token>, Cause> {
        Ok(None)
    }
    fn commit(&self, _: u64, _: &[Token]) -> Result<(), Cause> {
        panic!("thirteen")
    }
}

#[test]
fn in_the_commit_of_a_sink_the_flow_ends() {
    for workers in 1..=2 {
        let state = tempfile::tempdir().expect("a folder");
        let flow = Flow::new("panic");
        endless(&flow).sink("out", Unlucky(Collected::new()));
        let recovery = Recovery::new(state.path()).epoch(std::time::Duration::ZERO);
        match super::recovery::run(&flow, workers, recovery) {
            Err(FlowError::Panicked { step, message }) => {
                assert_eq!((step.as_str(), message.as_str()), ("commit", "thirteen"));
            }
            other => panic!("{other:?}"),
        }
    }
}
