//! A panic in a user's function ends the flow with an error that names the step.

use std::sync::Arc;
use std::time::Duration;

use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::sink::{Sink, Token, Transactional, Writer};
use millstream_flow::source::{Events, Next, Partition, Position, Source};
use millstream_flow::step::{Context, Step};
use millstream_flow::testing::{Collected, items};
use millstream_flow::{
    Emit, Failure, Flow, FlowError, KeyContext, Logic, Options, Recovery, codec, generator,
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
        let error = format!("{:?}", finish(running).unwrap_err());
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
        let recovery = Recovery::new(state.path()).epoch(Duration::ZERO);
        match super::recovery::run(&flow, workers, recovery) {
            Err(FlowError::Panicked { step, message }) => {
                assert_eq!((step.as_str(), message.as_str()), ("out", "thirteen"));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Where a source, sink or step panics.
#[derive(Clone, Copy, PartialEq)]
enum At {
    Partitions,
    Open,
    Position,
    Write,
    Close,
    Drop,
}

/// A source of numbers, and its partition.
struct Numbers(At);
struct NumbersPartition(At, u64);

impl Source<Vec<u64>> for Numbers {
    fn describe(&self) -> String {
        "numbers".to_owned()
    }
    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        assert!(self.0 != At::Partitions, "thirteen");
        Ok(vec!["0".to_owned(), "1".to_owned()])
    }
    fn open(
        &self,
        _: usize,
        _: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Vec<u64>>>, Cause> {
        assert!(self.0 != At::Open, "thirteen");
        Ok(Box::new(NumbersPartition(self.0, 0)))
    }
}

impl Partition<Vec<u64>> for NumbersPartition {
    fn next_batch(&mut self, batch: &mut Vec<u64>, _: &mut Events<'_>) -> Result<Next, Cause> {
        self.1 += 1;
        batch.push(self.1);
        Ok(if self.1 > 20 { Next::End } else { Next::Batch })
    }
    fn position(&self) -> Result<Position, Cause> {
        assert!(self.0 != At::Position, "thirteen");
        Ok(self.1.into())
    }
}

impl Drop for NumbersPartition {
    fn drop(&mut self) {
        assert!(self.0 != At::Drop, "thirteen");
    }
}

/// A sink, and its writer.
struct Drain(At);
struct DrainWriter(At);

impl Sink<Vec<u64>> for Drain {
    fn describe(&self) -> String {
        "drain".to_owned()
    }
    fn open(&self, _: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Vec<u64>>>, Cause> {
        assert!(self.0 != At::Open, "thirteen");
        Ok(Box::new(DrainWriter(self.0)))
    }
}

impl Writer<Vec<u64>> for DrainWriter {
    fn write_batch(&mut self, batch: &mut Vec<u64>) -> Result<(), Cause> {
        assert!(self.0 != At::Write, "thirteen");
        batch.clear();
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        assert!(self.0 != At::Close, "thirteen");
        Ok(None)
    }
}

impl Drop for DrainWriter {
    fn drop(&mut self) {
        assert!(self.0 != At::Drop, "thirteen");
    }
}

/// A step that passes items on.
struct Through(At);

impl Step<Vec<u64>, Vec<u64>> for Through {
    fn apply(
        &mut self,
        input: &mut Vec<u64>,
        output: &mut Vec<u64>,
        _: &mut Context,
    ) -> Result<(), Failure> {
        output.append(input);
        Ok(())
    }
}

impl Drop for Through {
    fn drop(&mut self) {
        assert!(self.0 != At::Drop, "thirteen");
    }
}

/// Checks that a run with a state directory or without ends with the panic of the step "delicate", and not by
/// unwinding.
fn check_thirteen(describe: impl Fn(&Flow)) {
    for (workers, saves) in [(1, false), (3, false), (1, true), (3, true)] {
        let state = tempfile::tempdir().expect("a folder");
        let flow = Flow::new("panic");
        describe(&flow);
        let mut options = Options::workers(workers);
        options.recovery = saves.then(|| Recovery::new(state.path()).epoch(Duration::ZERO));
        match flow.start(options).and_then(finish) {
            Err(FlowError::Panicked { step, message }) => {
                assert_eq!(
                    (step.as_str(), message.as_str()),
                    ("delicate", "thirteen"),
                    "{workers} workers, {saves}"
                );
            }
            other => panic!("{workers} workers, {saves}: {other:?}"),
        }
    }
}

#[test]
fn in_a_source_of_the_user() {
    for at in [At::Partitions, At::Open, At::Drop] {
        check_thirteen(|flow| {
            let numbers = flow.source("delicate", Numbers(at));
            numbers.map(|n| n).sink("out", Collected::new().sink());
        });
    }
}

#[test]
fn in_the_position_of_a_source() {
    let state = tempfile::tempdir().expect("a folder");
    let flow = Flow::new("panic");
    let numbers = flow.source("delicate", Numbers(At::Position));
    numbers.map(|n| n).sink("out", Collected::new().sink());
    let recovery = Recovery::new(state.path()).epoch(Duration::ZERO);
    let failed = super::recovery::run(&flow, 2, recovery).unwrap_err();
    assert_eq!(
        format!("{failed:?}"),
        "step \"delicate\" panicked: thirteen"
    );
}

#[test]
fn in_a_sink_of_the_user() {
    for at in [At::Open, At::Write, At::Close, At::Drop] {
        check_thirteen(|flow| {
            let numbers = flow.source("n", items(0..10u64)).map(|n| n);
            numbers.sink("out", Collected::new().sink());
            numbers.sink("delicate", Drain(at));
        });
    }
}

#[test]
fn in_the_making_and_dropping_of_a_step() {
    check_thirteen(|flow| {
        let numbers = flow.source("n", items(0..10u64));
        let through = numbers.step("through", "delicate", |_| {
            assert!(numbers_are_even(13), "thirteen");
            Ok(Through(At::Open))
        });
        through.sink("out", Collected::new().sink());
    });
    check_thirteen(|flow| {
        let numbers = flow.source("n", items(0..10u64));
        numbers
            .step("through", "delicate", |_| Ok(Through(At::Drop)))
            .sink("out", Collected::new().sink());
    });
}

fn numbers_are_even(number: u64) -> bool {
    number.is_multiple_of(2)
}

#[test]
fn several_drops_at_once_leave_the_process_running() {
    let flow = Flow::new("panic");
    let numbers = flow.source("source", Numbers(At::Drop));
    let through = numbers.step("through", "step", |_| Ok(Through(At::Drop)));
    through
        .map(delicate)
        .named("first")
        .sink("sink", Drain(At::Drop));
    let (step, message) = panicked(&flow, 2);
    assert_eq!(
        (step.as_str(), message.as_str()),
        ("first", "five is too much")
    );
}

#[test]
fn in_the_function_that_gets_the_metrics() {
    for workers in 1..=2 {
        let flow = Flow::new("panic");
        endless(&flow).sink("out", Collected::new().sink());
        let mut options = Options::workers(workers);
        options.on_metrics = Some((Duration::from_millis(10), Arc::new(|_| panic!("thirteen"))));
        let failed = flow.start(options).expect("it starts").wait().unwrap_err();
        assert_eq!(
            format!("{failed:?}"),
            "step \"on_metrics\" panicked: thirteen"
        );
    }
}
