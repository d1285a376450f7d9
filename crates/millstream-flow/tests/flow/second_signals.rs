//! Signals to a Rust program whose step is slow: the first ends the flow after the current item, the second
//! ends the process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use millstream_flow::testing::{Collected, items};
use millstream_flow::{Flow, Options};
use rustix::process::{Pid, Signal, kill_process};

use super::support::wait;

/// A flow of 1,000 items that prints each finished item, then waits `milliseconds`.
fn slow(milliseconds: u64) {
    let flow = Flow::new("slow");
    let out = Collected::new();
    flow.source("in", items(0..1000u64))
        .map(move |number| {
            let mut said = std::io::stdout().lock();
            writeln!(said, "did {number}").unwrap();
            drop(said);
            wait(milliseconds);
            number
        })
        .sink("out", out.sink());
    let options = Options {
        signals: true,
        ..Options::default()
    };
    flow.run(options).unwrap();
    let count = out.take().len();
    assert!((1..1000).contains(&count), "{count}");
}

#[test]
#[ignore = "run by a test below, as a process of its own"]
fn half_a_second() {
    slow(500);
}

#[test]
#[ignore = "run by a test below, as a process of its own"]
fn an_hour() {
    slow(3_600_000);
}

/// Starts this program with an ignored test; returns the process and its output when its step runs.
fn in_own_process(test: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.ends_with("did 0\n") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    (child, said)
}

/// Sends signals to a process and returns its exit status. Its output is read to the end meanwhile.
fn signalled(
    (mut child, mut said): (Child, BufReader<ChildStdout>),
    signals: &[Signal],
) -> ExitStatus {
    for signal in signals {
        kill_process(Pid::from_child(&child), *signal).unwrap();
        // The first signal must be handled before the second: two pending signals of one kind are one.
        wait(200);
    }
    std::io::copy(&mut said, &mut std::io::sink()).unwrap();
    child.wait().unwrap()
}

#[test]
fn the_first_signal_waits_for_the_current_item() {
    for signal in [Signal::INT, Signal::TERM] {
        let slow = in_own_process("second_signals::half_a_second");
        let end = signalled(slow, &[signal]);
        assert_eq!(end.code(), Some(0), "{signal:?}");
    }
}

#[test]
fn the_second_signal_ends_the_process_with_128_and_its_number() {
    for (signals, code) in [
        ([Signal::INT, Signal::INT], 130),
        ([Signal::TERM, Signal::TERM], 143),
        ([Signal::INT, Signal::TERM], 143),
        ([Signal::TERM, Signal::INT], 130),
    ] {
        // A process that waited for its step would not end within the hour.
        let slow = in_own_process("second_signals::an_hour");
        let end = signalled(slow, &signals);
        assert_eq!(end.code(), Some(code), "{signals:?}");
    }
}
