//! Our two ends: publisher and consumer over a journal, in Rust or in Python.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options, Retention, Wait};
use millstream_service::{Service, Settings, publisher};
use millstream_wire::Cause;

use super::both::{Consumed, Sent, both};
use super::digest::Digest;
use super::order::{Maker, Orders};
use super::plan::{Plan, Times};
use crate::figures::Latency;
use crate::programs::{self, python_module};

pub(super) fn publish_and_consume(
    plan: &Plan,
    folder: &Path,
    stop: &AtomicBool,
) -> Result<Consumed, Cause> {
    let retention = Retention {
        bytes: Some(1 << 30),
        ..Retention::default()
    };
    let journal = Journal::open(folder, Options::default().with_retention(retention))?;
    let times = Times::after(monotonic_ns() + START_NS, plan);
    let path = folder.display().to_string();
    let (program, verb) = if plan.python {
        (python_module("service"), "consume")
    } else {
        (programs::this()?, "service-consumer")
    };
    let mut consumer = vec![verb.to_owned()];
    consumer.extend([path.clone(), times.measured_from.to_string()]);
    let publish = || {
        if !plan.python {
            return publish(plan, &journal, &times, stop);
        }
        let publisher = [
            "publish".to_owned(),
            path,
            times.from.to_string(),
            times.until.to_string(),
            plan.rate.to_string(),
        ];
        Ok(serde_json::from_value(program.run_json(&publisher, stop)?)?)
    };
    both(&program, &consumer, publish, stop)
}

/// Where calls come as fast as they go, one in so many is due at a moment of its own, and its latency taken: on either
/// side the clock takes as long as a third of a call.
const SAMPLE: u64 = 16;
/// Room for the samples of some seconds.
const SAMPLES: usize = 1 << 20;

/// How long the consumer has to start.
const START_NS: u64 = 1_000_000_000;

fn publish(
    plan: &Plan,
    journal: &Journal,
    times: &Times,
    stop: &AtomicBool,
) -> Result<Sent, Cause> {
    let mut out = publisher::<dyn Orders>(journal)?;
    let mut maker = Maker::new(plan.what);
    let gap = if plan.rate > 0.0 {
        1e9 / plan.rate
    } else {
        0.0
    };
    let mut number = 0u64;
    while monotonic_ns() < times.from {
        std::hint::spin_loop();
    }
    // Where calls come as fast as they go, when each sample was due: with these, all calls can be made again.
    let mut samples = Vec::with_capacity(if gap > 0.0 { 0 } else { SAMPLES });
    let mut due = 0;
    loop {
        if gap > 0.0 {
            due = times.from + (number as f64 * gap) as u64;
        } else if number.is_multiple_of(SAMPLE) {
            due = monotonic_ns();
            samples.push(due);
        }
        if due >= times.until || stop.load(Relaxed) {
            break;
        }
        while gap > 0.0 && monotonic_ns() < due {
            std::hint::spin_loop();
        }
        maker.call(&mut out, number, due);
        number += 1;
    }
    out.end();
    out.check()?;
    let mut digest = Digest::new(i64::MAX)?;
    for number in 0..number {
        let due = match samples.get((number / SAMPLE) as usize) {
            Some(due) => *due,
            None => times.from + (number as f64 * gap) as u64,
        };
        maker.call(&mut digest, number, due);
    }
    Ok(Sent {
        sent: number,
        digest: digest.digest,
    })
}

/// The consumer: reads the journal until the publisher has ended.
pub fn consume(folder: &Path, measured_from: u64, stop: &AtomicBool) -> Result<Consumed, Cause> {
    let journal = Journal::open(folder, Options::default())?;
    let digest = Digest::new(measured_from as i64)?;
    let settings = Settings {
        wait: Wait::Spin,
        rebuild: false,
        ..Settings::default()
    };
    let setup = Service::without_output().component(digest);
    let mut runner = setup.input::<dyn Orders>(&journal)?.start(settings)?;
    while !runner.component().ended && !stop.load(Relaxed) {
        runner.turn()?;
    }
    let digest = runner.component();
    let seconds = digest.last_ns.saturating_sub(digest.first_ns) as f64 / 1e9;
    Ok(Consumed {
        latency: Latency::of(&digest.histogram),
        rate: digest.calls.saturating_sub(1) as f64 / seconds.max(1e-9),
        received: digest.received,
        digest: digest.digest,
    })
}
