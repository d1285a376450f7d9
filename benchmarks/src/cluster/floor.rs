//! The same work by `timely` alone, and by a socket alone: what a flow cannot exceed.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::rc::Rc;
use std::sync::Mutex;
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_flow::metrics::latency_histogram;
use millstream_journal::clock::monotonic_ns;
use timely::WorkerConfig;
use timely::communication::allocator::ProcessBuilder;
use timely::communication::allocator::zero_copy::initialize::initialize_networking_from_sockets;
use timely::communication::{AllocatorBuilder, Hooks};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::operators::{Exchange, Input, Inspect, Probe};
use timely::dataflow::{InputHandle, ProbeHandle};
use timely::worker::Worker;

use super::role::{Fault, HOPS_PER_SECOND, Outcome, Role};
use crate::figures::Latency;

const BATCH: u64 = 1000;
/// Batches of each process that are on their way at once: 64,000 items, as in a flow.
const BATCHES_ON_THEIR_WAY: u64 = 64;
/// How long the other process has to start.
const LIMIT: Duration = Duration::from_secs(10);

#[expect(clippy::disallowed_methods, reason = "what is measured is a wait")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

/// A connection of the two processes.
fn connect(role: &Role) -> Result<UnixStream, Fault> {
    let path = role.folder.join("alone.sock");
    if role.process == 0 {
        return Ok(UnixListener::bind(path)?.accept()?.0);
    }
    let until = monotonic_ns() + LIMIT.as_nanos() as u64;
    loop {
        match UnixStream::connect(&path) {
            Ok(stream) => return Ok(stream),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused
                ) && monotonic_ns() < until =>
            {
                sleep(Duration::from_millis(2));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs one worker of `timely` in each of the two processes.
fn execute(
    role: &Role,
    life: impl Fn(&mut Worker) -> Outcome + Send + Sync + 'static,
) -> Result<Outcome, Fault> {
    let mut sockets = vec![None, None];
    sockets[1 - role.process] = Some(connect(role)?);
    let hooks = Hooks::default();
    let local = ProcessBuilder::new_typed_vector(1, hooks.refill.clone(), None);
    let (builders, threads) =
        initialize_networking_from_sockets(local, sockets, role.process, 1, hooks)?;
    let builders = builders.into_iter().map(AllocatorBuilder::Tcp).collect();
    let guards =
        timely::execute::execute_from(builders, Box::new(threads), WorkerConfig::default(), life)?;
    let mut outcomes = guards.join();
    let outcome = outcomes.pop().ok_or("no worker")??;
    Ok(Outcome {
        ended_ns: monotonic_ns(),
        ..outcome
    })
}

/// Small items in batches, spread over both processes, which sum them.
pub(super) fn exchange(role: &Role) -> Result<Outcome, Fault> {
    let each = role.items / 2;
    execute(role, move |worker| {
        let handled = Rc::new(Cell::new((0_u64, 0_u64)));
        let counts = Rc::clone(&handled);
        let mut input = InputHandle::<u64, CapacityContainerBuilder<Vec<u64>>>::new();
        let probe = ProbeHandle::new();
        worker.dataflow(|scope| {
            scope
                .input_from(&mut input)
                .exchange(|n: &u64| *n)
                .inspect(move |n: &u64| {
                    let (handled, sum) = counts.get();
                    counts.set((handled + 1, sum.wrapping_add(*n)));
                })
                .probe_with(&probe);
        });
        let began_ns = monotonic_ns();
        let mut next = 0;
        let mut round = 0;
        while next < each {
            for n in next..each.min(next + BATCH) {
                input.send(n);
            }
            next = each.min(next + BATCH);
            round += 1;
            input.advance_to(round);
            worker.step();
            while probe.less_than(&round.saturating_sub(BATCHES_ON_THEIR_WAY)) {
                worker.step_or_park(None);
            }
        }
        input.close();
        while !probe.done() {
            worker.step_or_park(None);
        }
        let (handled, sum) = handled.get();
        std::hint::black_box(sum);
        Outcome {
            began_ns,
            sent: each,
            handled,
            ..Outcome::default()
        }
    })
}

/// When item `n` of a process that began at `began_ns` is due.
fn due_ns(began_ns: u64, n: u64) -> u64 {
    began_ns + (n as f64 * 1e9 / HOPS_PER_SECOND) as u64
}

fn await_due(began_ns: u64, n: u64) {
    sleep(Duration::from_nanos(
        due_ns(began_ns, n).saturating_sub(monotonic_ns()),
    ));
}

/// An item at a time from process 0 to process 1.
pub(super) fn hop(role: &Role) -> Result<Outcome, Fault> {
    let items = if role.process == 0 { role.items } else { 0 };
    let shared = std::sync::Arc::new(Mutex::new(latency_histogram()));
    let seen = std::sync::Arc::clone(&shared);
    let outcome = execute(role, move |worker| {
        let ages = std::sync::Arc::clone(&shared);
        let mut input = InputHandle::<u64, CapacityContainerBuilder<Vec<u64>>>::new();
        let probe = ProbeHandle::new();
        worker.dataflow(|scope| {
            scope
                .input_from(&mut input)
                .exchange(|_: &u64| 1)
                .inspect(move |made: &u64| record(&ages, *made))
                .probe_with(&probe);
        });
        let began_ns = if items > 0 { monotonic_ns() } else { u64::MAX };
        for n in 0..items {
            await_due(began_ns, n);
            input.send(monotonic_ns());
            input.advance_to(n + 1);
            worker.step();
        }
        input.close();
        while !probe.done() {
            worker.step_or_park(None);
        }
        Outcome {
            began_ns,
            sent: items,
            ..Outcome::default()
        }
    })?;
    Ok(received(outcome, &seen))
}

/// An item at a time from process 0 to process 1, which waits in a read.
pub(super) fn socket_hop(role: &Role) -> Result<Outcome, Fault> {
    let mut stream = connect(role)?;
    let ages = Mutex::new(latency_histogram());
    let mut outcome = Outcome {
        began_ns: u64::MAX,
        ..Outcome::default()
    };
    if role.process == 0 {
        outcome.began_ns = monotonic_ns();
        for n in 0..role.items {
            await_due(outcome.began_ns, n);
            stream.write_all(&monotonic_ns().to_be_bytes())?;
        }
        outcome.sent = role.items;
    } else {
        let mut made = [0; 8];
        for _ in 0..role.items {
            stream.read_exact(&mut made)?;
            record(&ages, u64::from_be_bytes(made));
        }
    }
    outcome.ended_ns = monotonic_ns();
    Ok(received(outcome, &ages))
}

fn record(ages: &Mutex<Histogram<u64>>, made_ns: u64) {
    let age = monotonic_ns().saturating_sub(made_ns);
    if let Ok(mut ages) = ages.lock() {
        ages.saturating_record(age);
    }
}

/// Adds what a process has received.
fn received(outcome: Outcome, ages: &Mutex<Histogram<u64>>) -> Outcome {
    let ages = ages
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    Outcome {
        handled: ages.len(),
        latency: (!ages.is_empty()).then(|| Latency::of(&ages)),
        ..outcome
    }
}
