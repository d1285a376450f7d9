//! One look at a service, and what is remembered until the next.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use millstream_journal::clock::wall_ns;
use millstream_journal::{Error, chain};
use millstream_service::{LongCall, Reading};

use super::calls::Contents;
use super::service::ServiceOf;
use crate::sections::service_figures::{
    CallSnapshot, HopSnapshot, INPUTS_MAX, InputSnapshot, MethodSnapshot, ServiceSnapshot,
    ServiceState,
};
use crate::stacks::{StackOf, Stacks};

/// The number of records of an input whose methods are read at each look.
const SAMPLE_MAX: u64 = 2_000;
/// The number of records of the output whose latency is measured.
const LATENCY_RECORDS: u64 = 500;
/// The number of looks from one measurement of latency to the next.
const LATENCY_EVERY: u64 = 5;
/// The number of lines of calls, outputs and dead letters.
const LINES: u64 = 10;
/// The age of an unread record with which a service does not keep up.
const LAG_SECONDS: f64 = 5.0;

/// What is remembered of a service.
#[derive(Default)]
pub(super) struct Look {
    stacks: Option<Stacks>,
    number: u64,
    at: Option<Instant>,
    calls: u64,
    output_next: u64,
    positions: Vec<u64>,
    methods: BTreeMap<String, u64>,
    hops: Vec<HopSnapshot>,
}

impl Look {
    pub(super) fn new(stacks: Option<StackOf>) -> Self {
        Look {
            stacks: stacks.map(Stacks::new),
            ..Look::default()
        }
    }

    pub(super) fn at(&mut self, service: &ServiceOf) -> ServiceSnapshot {
        let Reading {
            report,
            positions,
            call,
            busy,
            ..
        } = (service.progress)();
        let now = crate::now();
        let before = self.at.replace(now);
        let seconds = before.map(|before| (now - before).as_secs_f64().max(1e-3));
        let rate = |now: u64, then: u64| {
            seconds.map_or(0.0, |seconds| now.saturating_sub(then) as f64 / seconds)
        };
        let mut snapshot = ServiceSnapshot {
            name: service.name.clone(),
            calls: report.calls,
            ticks: report.ticks,
            skipped: report.skipped,
            dead_letters: report.dead_letters,
            busy,
            call_rate: Some(rate(report.calls, self.calls)),
            output: service.output.as_deref().map(last_part),
            ..ServiceSnapshot::default()
        };
        self.calls = report.calls;
        let Some(positions) = positions else {
            snapshot.state = ServiceState::Starting;
            return snapshot;
        };
        let read = self.journals(service, &positions, &mut snapshot, rate);
        self.number += 1;
        self.positions = positions;
        match read {
            Ok(sampled) => {
                let rate = snapshot.call_rate.unwrap_or(0.0);
                snapshot.methods = self.methods(&sampled, rate);
            }
            Err(error) => snapshot.error = Some(chain(&error).to_string()),
        }
        snapshot.hops = self.hops.clone();
        snapshot.call = self.call(service, call);
        if snapshot.call.is_some() {
            (snapshot.call_rate, snapshot.output_rate) = (None, None);
        }
        snapshot.state = state(&snapshot);
        snapshot
    }

    /// Reads what is new in the journals. Returns the calls that were read, by method.
    fn journals(
        &mut self,
        service: &ServiceOf,
        positions: &[u64],
        snapshot: &mut ServiceSnapshot,
        rate: impl Fn(u64, u64) -> f64,
    ) -> Result<BTreeMap<String, u64>, Error> {
        let mut sampled = BTreeMap::new();
        let inputs = service.inputs.iter().zip(positions).enumerate();
        for (index, (path, position)) in inputs.take(INPUTS_MAX) {
            let since = self.positions.get(index).copied();
            let last_calls = &mut snapshot.last_calls;
            let input = input(path, *position, since, &mut sampled, last_calls)?;
            snapshot.inputs.push(input);
        }
        if let Some(path) = service.output.as_deref().filter(|path| path.exists()) {
            let mut reading = Contents::open(path)?;
            let next = reading.journal.next()?;
            if self.number > 0 {
                snapshot.output_rate = Some(rate(next, self.output_next));
            }
            self.output_next = next;
            snapshot.output_next = next;
            snapshot.last_outputs = reading.lines(next, LINES)?;
            if self.number.is_multiple_of(LATENCY_EVERY) {
                // Journals upstream that are pruned or elsewhere have no latencies.
                self.hops = hops(path, next).unwrap_or_default();
            }
        }
        if let Some(path) = service.dead_letters.as_deref().filter(|path| path.exists()) {
            let mut reading = Contents::open(path)?;
            let next = reading.journal.next()?;
            snapshot.last_dead_letters = reading.lines(next, LINES)?;
        }
        Ok(sampled)
    }

    /// The call that the service has been in for seconds, with what is known of it here.
    fn call(&mut self, service: &ServiceOf, call: Option<LongCall>) -> Option<CallSnapshot> {
        let thread = call.as_ref().map(|call| call.thread);
        let stack = self.stacks.as_mut().and_then(|stacks| stacks.of(0, thread));
        let call = call?;
        let input = service.inputs.get(call.input);
        Some(CallSnapshot {
            method: input.and_then(|path| Contents::open(path).ok()?.method(call.record)),
            input: input.map_or_else(|| "timers".to_owned(), |path| last_part(path)),
            record: call.record,
            seconds: call.seconds,
            stack: call.stack.or(stack),
        })
    }

    /// The rate of all calls, divided as the calls that were read.
    fn methods(&mut self, sampled: &BTreeMap<String, u64>, call_rate: f64) -> Vec<MethodSnapshot> {
        for (name, count) in sampled {
            *self.methods.entry(name.clone()).or_default() += count;
        }
        let all: u64 = sampled.values().sum();
        let methods = self.methods.iter().take(INPUTS_MAX);
        methods
            .map(|(name, calls)| MethodSnapshot {
                name: name.clone(),
                rate: sampled
                    .get(name)
                    .map_or(0.0, |count| call_rate * *count as f64 / all.max(1) as f64),
                calls: *calls,
            })
            .collect()
    }
}

fn input(
    path: &Path,
    position: u64,
    since: Option<u64>,
    sampled: &mut BTreeMap<String, u64>,
    last_calls: &mut Vec<String>,
) -> Result<InputSnapshot, Error> {
    let mut reading = Contents::open(path)?;
    let next = reading.journal.next()?;
    let from = since.unwrap_or(0).max(position.saturating_sub(SAMPLE_MAX));
    for (method, count) in reading.methods(from, position)? {
        *sampled.entry(method).or_default() += count;
    }
    last_calls.extend(reading.lines(position, LINES)?);
    let lag_records = next.saturating_sub(position);
    let mut lag_seconds = 0.0;
    if lag_records > 0 {
        let mut reader = reading.journal.reader()?;
        if reader.seek(position).is_ok()
            && let Ok(Some(at_ns)) = reader.peek_time()
        {
            lag_seconds = wall_ns().saturating_sub(at_ns) as f64 / 1e9;
        }
    }
    Ok(InputSnapshot {
        name: last_part(path),
        position,
        lag_records,
        lag_seconds,
    })
}

fn hops(output: &Path, next: u64) -> Result<Vec<HopSnapshot>, millstream_service::ServiceError> {
    let first = next.saturating_sub(LATENCY_RECORDS);
    let measured = millstream_service::latency(output, first, None, &[])?;
    let hops = measured.hops.into_iter().map(|hop| HopSnapshot {
        from: last_part(Path::new(&hop.from)),
        to: last_part(Path::new(&hop.to)),
        part: hop.part.into(),
        p50_seconds: hop.p50_us / 1e6,
        p99_seconds: hop.p99_us / 1e6,
        max_seconds: hop.max_us / 1e6,
    });
    Ok(hops.collect())
}

fn state(service: &ServiceSnapshot) -> ServiceState {
    if service.call.is_some() {
        return ServiceState::Stuck;
    }
    let mut inputs = service.inputs.iter();
    if inputs.any(|input| input.lag_seconds >= LAG_SECONDS) {
        return ServiceState::Lagging;
    }
    ServiceState::Good
}

pub(super) fn last_part(path: &Path) -> String {
    let part = path.file_name().unwrap_or(path.as_os_str());
    part.to_string_lossy().into_owned()
}
