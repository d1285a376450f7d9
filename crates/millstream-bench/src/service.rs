//! Typed calls over a journal, from one process to another: an order of 28 FIX fields, and a single integer.
//!
//! The publisher has a schedule and never waits for the consumer. Latency runs from the moment at which a call was due to the moment at which
//! the consumer's method has read every field into a digest. The consumer is this program again, with a hidden verb.

mod chronicle;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use hdrhistogram::Histogram;
use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options, Retention, Wait};
use millstream_wire::{Cause, Wire, interface};
use serde::{Deserialize, Serialize};

use self::chronicle::{Chronicle, Style};
use super::figures::{Latency, median_index};
use super::peers::{Program, interpreter};
use millstream_service::{Service, Settings, publisher};

/// FIX NewOrderSingle. Each name is that of the field; the tags are in the order of FIX 4.4.
#[derive(Debug, Wire)]
#[expect(missing_docs, reason = "FIX explains its fields")]
pub struct NewOrderSingle<'a> {
    pub sender_comp_id: &'a str,
    pub target_comp_id: &'a str,
    pub msg_seq_num: i64,
    pub sending_time: i64,
    pub poss_dup_flag: bool,
    pub cl_ord_id: &'a str,
    pub account: &'a str,
    pub settl_type: char,
    pub settl_date: i32,
    pub handl_inst: char,
    pub exec_inst: &'a str,
    pub min_qty: f64,
    pub max_floor: f64,
    pub ex_destination: &'a str,
    pub symbol: &'a str,
    pub security_id_source: char,
    pub security_id: &'a str,
    pub side: char,
    pub transact_time: i64,
    pub order_qty: f64,
    pub ord_type: char,
    pub price: f64,
    pub stop_px: f64,
    pub currency: &'a str,
    pub time_in_force: char,
    pub expire_time: i64,
    pub order_capacity: char,
    pub text: &'a str,
}

/// What the publisher calls.
#[interface]
pub trait Orders {
    /// An order, due at its sending time.
    fn new_order_single(&mut self, order: &NewOrderSingle<'_>);
    /// The smallest call: the time at which it was due.
    fn tick(&mut self, due_ns: i64);
    /// Nothing more comes.
    fn end(&mut self);
}

/// What is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The method with an order.
    Orders,
    /// The method with one integer.
    Ticks,
}

/// A measurement.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is called.
    pub what: What,
    /// Both ends are Python; orders only.
    pub python: bool,
    /// Calls per second; 0 for as many as go.
    pub rate: f64,
    /// Seconds that are measured.
    pub seconds: f64,
    /// Seconds before that.
    pub warm_up: f64,
    /// Take turns with Chronicle Queue; orders only.
    pub chronicle: bool,
    /// The folder in which the journal is made and removed again.
    pub folder: PathBuf,
}

impl Plan {
    fn name(&self) -> String {
        let what = match (self.what, self.python) {
            (What::Orders, false) => "orders of 28 fields",
            (_, true) => "orders, Python",
            (What::Ticks, false) => "one integer",
        };
        match self.rate {
            0.0 => format!("{what}, flat out"),
            rate => format!("{what}, {rate}/s"),
        }
    }
}

/// What a consumer has seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Consumed {
    /// From due to read, for the calls behind the warm-up.
    pub latency: Latency,
    /// Calls per second, from the first to the last of them.
    pub rate: f64,
    /// All calls, those of the warm-up too.
    pub received: u64,
    /// Of all fields of all calls.
    pub digest: u64,
}

/// What a publisher has sent, worked out again behind the run, so that it costs no time in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Sent {
    /// All calls.
    pub sent: u64,
    /// Of all fields of all calls, as the consumer takes it.
    pub digest: u64,
}

/// The runs of one of those who are compared.
#[derive(Debug, Clone, Serialize)]
struct Series {
    name: String,
    /// The median of each percentile.
    latency: Latency,
    /// The median of the calls per second.
    rate: f64,
    runs: Vec<Consumed>,
}

impl Series {
    fn of(name: String, runs: Vec<Consumed>) -> Self {
        let latencies: Vec<&Latency> = runs.iter().map(|run| &run.latency).collect();
        let rates: Vec<f64> = runs.iter().map(|run| run.rate).collect();
        Series {
            latency: Latency::median_of(&latencies),
            rate: rates.get(median_index(&rates)).copied().unwrap_or(0.0),
            name,
            runs,
        }
    }
}

/// What was measured: every figure the median of several runs.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    what: What,
    /// Whether both ends were Python.
    python: bool,
    /// Calls per second that were asked for; 0 for as many as go.
    asked: f64,
    #[serde(flatten)]
    ours: Series,
    /// What took turns with ours.
    others: Vec<Series>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Latency::heading())?;
        for series in std::iter::once(&self.ours).chain(&self.others) {
            write!(f, "\n{}", series.latency.row(&series.name))?;
        }
        for series in std::iter::once(&self.ours).chain(&self.others) {
            write!(f, "\n{}: consumed {:.0} calls/s", series.name, series.rate)?;
        }
        Ok(())
    }
}

/// Runs a measurement several times.
///
/// # Errors
/// A process or a journal that fails, in words.
pub fn run(plan: &Plan, runs: u32, stop: &AtomicBool) -> Result<Option<Figures>, String> {
    let chronicle = match plan.chronicle {
        true => Some(Chronicle::prepare()?),
        false => None,
    };
    let (mut ours, mut theirs) = (Vec::new(), Style::ALL.map(|_| Vec::new()));
    for _ in 0..runs {
        if stop.load(Relaxed) {
            break;
        }
        ours.push(in_folder(plan, |folder| {
            publish_and_consume(plan, folder, stop)
        })?);
        let Some(chronicle) = &chronicle else {
            continue;
        };
        for (style, runs) in Style::ALL.into_iter().zip(&mut theirs) {
            runs.push(in_folder(plan, |folder| {
                chronicle.publish_and_consume(plan, style, folder, stop)
            })?);
        }
    }
    if ours.is_empty() {
        return Ok(None);
    }
    let others = Style::ALL.into_iter().zip(theirs);
    let others = others.filter(|(_, runs)| !runs.is_empty());
    Ok(Some(Figures {
        what: plan.what,
        python: plan.python,
        asked: plan.rate,
        ours: Series::of(plan.name(), ours),
        others: others
            .map(|(style, runs)| Series::of(style.name().to_owned(), runs))
            .collect(),
    }))
}

/// Measures in a folder that is removed again: a measurement of many gigabytes leaves nothing behind.
fn in_folder(
    plan: &Plan,
    measure: impl FnOnce(&Path) -> Result<Consumed, Cause>,
) -> Result<Consumed, String> {
    let folder = plan
        .folder
        .join(format!("millstream-bench-service-{}", std::process::id()));
    let measured = measure(&folder);
    let removed = std::fs::remove_dir_all(&folder);
    let measured = measured.map_err(|cause| cause.to_string())?;
    removed.map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(measured)
}

/// The moments of one run, in ns of the monotonic clock.
struct Times {
    from: u64,
    measured_from: u64,
    until: u64,
}

impl Times {
    fn after(from: u64, plan: &Plan) -> Self {
        let measured_from = from + (plan.warm_up * 1e9) as u64;
        let until = measured_from + (plan.seconds * 1e9) as u64;
        Times {
            from,
            measured_from,
            until,
        }
    }
}

fn publish_and_consume(plan: &Plan, folder: &Path, stop: &AtomicBool) -> Result<Consumed, Cause> {
    let retention = Retention {
        bytes: Some(1 << 30),
        ..Retention::default()
    };
    let journal = Journal::open(folder, Options::default().with_retention(retention))?;
    let times = Times::after(monotonic_ns() + START_NS, plan);
    let path = folder.display().to_string();
    let (program, verb) = match plan.python {
        true => (
            // With texts whose hashes are the same in both processes.
            Program::of(vec![
                "env".into(),
                "PYTHONHASHSEED=0".into(),
                interpreter(),
                "-m".into(),
                "millstream._service_bench".into(),
            ]),
            &["consume"][..],
        ),
        false => (Program::this()?, &["bench", "service-consumer"][..]),
    };
    let mut consumer: Vec<String> = verb.iter().map(|word| (*word).to_owned()).collect();
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

/// Publishes on this thread while the consumer, a process of its own, takes what comes.
fn both(
    program: &Program,
    consumer: &[String],
    publish: impl FnOnce() -> Result<Sent, Cause>,
    stop: &AtomicBool,
) -> Result<Consumed, Cause> {
    let failed = AtomicBool::new(false);
    // A consumer that is never told the end would wait for ever.
    let ended = || stop.load(Relaxed) || failed.load(Relaxed);
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| program.run_json_until(consumer, ended));
        let published = publish();
        failed.store(published.is_err(), Relaxed);
        let consumed = consumer
            .join()
            .map_err(|_| "the consumer's thread panicked")?;
        let sent = published?;
        compared(sent, serde_json::from_value(consumed?)?, stop)
    })
}

/// What the consumer has seen, if that is what was sent; a run that was stopped may end in the middle.
fn compared(sent: Sent, consumed: Consumed, stop: &AtomicBool) -> Result<Consumed, Cause> {
    let received = Sent {
        sent: consumed.received,
        digest: consumed.digest,
    };
    if stop.load(Relaxed) {
        return Ok(consumed);
    }
    if sent.sent == 0 {
        return Err("the run does not count: the publisher has started too late".into());
    }
    if sent == received {
        return Ok(consumed);
    }
    Err(format!(
        "the run does not count: {} calls with the digest {:016x} were sent, {} with {:016x} received",
        sent.sent, sent.digest, received.sent, received.digest
    )
    .into())
}

/// Where calls come as fast as they go, one in so many is due at a moment of its own, and its latency taken: on either side the clock
/// takes as long as a third of a call.
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

/// Makes the calls, with memory that is used again.
struct Maker {
    what: What,
    id: [u8; 17],
    account: [u8; 10],
}

const SYMBOLS: [&str; 8] = [
    "VOD.L", "BP.L", "HSBA.L", "AZN.L", "SHEL.L", "ULVR.L", "GSK.L", "RIO.L",
];

impl Maker {
    fn new(what: What) -> Self {
        Self {
            what,
            id: *b"20261121-00000000",
            account: *b"ACCT-00000",
        }
    }

    #[inline]
    fn call(&mut self, out: &mut impl Orders, number: u64, due: u64) {
        if self.what == What::Ticks {
            return out.tick(due as i64);
        }
        write_digits(&mut self.id[9..], number);
        write_digits(&mut self.account[7..], number);
        out.new_order_single(&NewOrderSingle {
            sender_comp_id: "CLIENT01",
            target_comp_id: "EXCHANGE",
            msg_seq_num: number as i64,
            sending_time: due as i64,
            poss_dup_flag: false,
            cl_ord_id: std::str::from_utf8(&self.id).unwrap_or_default(),
            account: std::str::from_utf8(&self.account).unwrap_or_default(),
            settl_type: '0',
            settl_date: 20_261_123,
            handl_inst: '1',
            exec_inst: "G",
            min_qty: 100.0,
            max_floor: 500.0,
            ex_destination: "XLON",
            symbol: SYMBOLS[number as usize % SYMBOLS.len()],
            security_id_source: '4',
            security_id: "GB00BH4HKS39",
            side: if number.is_multiple_of(2) { '1' } else { '2' },
            transact_time: due as i64,
            order_qty: (100 + number % 900) as f64,
            ord_type: '2',
            price: 72.0 + (number % 100) as f64 / 100.0,
            stop_px: 0.0,
            currency: "GBP",
            time_in_force: '0',
            expire_time: due as i64 + 86_400_000_000_000,
            order_capacity: 'A',
            text: "algo=VWAP;parent=0000042",
        });
    }
}

/// Writes the last digits of a number. The formatting of the standard library takes as long as all the rest of a call.
#[inline]
fn write_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The component of the consumer.
struct Digest {
    measured_from: i64,
    histogram: Histogram<u64>,
    /// Calls from the first one measured on.
    calls: u64,
    last_due_ns: i64,
    first_ns: u64,
    last_ns: u64,
    received: u64,
    digest: u64,
    ended: bool,
}

impl Digest {
    fn new(measured_from: i64) -> Result<Self, Cause> {
        Ok(Digest {
            measured_from,
            histogram: Histogram::new_with_bounds(1, 100_000_000_000, 3)?,
            calls: 0,
            last_due_ns: 0,
            first_ns: 0,
            last_ns: 0,
            received: 0,
            digest: 0,
            ended: false,
        })
    }

    #[inline]
    fn add(&mut self, value: u64) {
        self.digest = self.digest.rotate_left(5) ^ value;
    }

    #[inline]
    fn add_str(&mut self, text: &str) {
        let ends = text.as_bytes().first().zip(text.as_bytes().last());
        let ends = ends.map_or(0, |(first, last)| u64::from(*first) << 8 | u64::from(*last));
        self.add(ends ^ (text.len() as u64) << 16);
    }

    #[inline]
    fn read(&mut self, due_ns: i64) {
        self.received += 1;
        if due_ns < self.measured_from {
            return;
        }
        self.calls += 1;
        if due_ns == self.last_due_ns {
            return;
        }
        self.last_due_ns = due_ns;
        let now = monotonic_ns();
        if self.first_ns == 0 {
            self.first_ns = now;
        }
        self.last_ns = now;
        self.histogram
            .saturating_record(now.saturating_sub(due_ns as u64));
    }
}

impl Orders for Digest {
    fn new_order_single(&mut self, order: &NewOrderSingle<'_>) {
        for text in [
            order.sender_comp_id,
            order.target_comp_id,
            order.cl_ord_id,
            order.account,
            order.exec_inst,
            order.ex_destination,
            order.symbol,
            order.security_id,
            order.currency,
            order.text,
        ] {
            self.add_str(text);
        }
        for char in [
            order.settl_type,
            order.handl_inst,
            order.security_id_source,
            order.side,
            order.ord_type,
            order.time_in_force,
            order.order_capacity,
        ] {
            self.add(char.into());
        }
        for number in [
            order.min_qty,
            order.max_floor,
            order.order_qty,
            order.price,
            order.stop_px,
        ] {
            self.add(number.to_bits());
        }
        for number in [
            order.msg_seq_num,
            order.sending_time,
            order.transact_time,
            order.expire_time,
        ] {
            self.add(number as u64);
        }
        self.add(order.settl_date as u64);
        self.add(order.poss_dup_flag.into());
        self.read(order.sending_time);
    }

    fn tick(&mut self, due_ns: i64) {
        self.add(due_ns as u64);
        self.read(due_ns);
    }

    fn end(&mut self) {
        self.ended = true;
    }
}

/// The consumer: reads the journal until the publisher has ended.
///
/// # Errors
/// The journal or a record of it cannot be read.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn consumed(received: u64, digest: u64) -> Consumed {
        let histogram = Histogram::new(3).unwrap();
        Consumed {
            latency: Latency::of(&histogram),
            rate: 0.0,
            received,
            digest,
        }
    }

    #[test]
    fn a_run_counts_only_if_what_was_sent_was_received() {
        let sent = Sent { sent: 3, digest: 7 };
        let stop = AtomicBool::new(false);
        assert!(compared(sent, consumed(3, 7), &stop).is_ok());
        for (received, digest) in [(2, 7), (3, 6)] {
            let error = compared(sent, consumed(received, digest), &stop).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with("the run does not count: 3 calls")
            );
        }
        let nothing = Sent { sent: 0, digest: 0 };
        assert!(compared(nothing, consumed(0, 0), &stop).is_err());
        stop.store(true, Relaxed);
        assert!(compared(sent, consumed(2, 6), &stop).is_ok());
    }

    #[test]
    fn the_digest_of_what_is_made_again_sees_each_field_of_each_call() {
        let of = |numbers: &[u64], due| {
            let mut digest = Digest::new(i64::MAX).unwrap();
            let mut maker = Maker::new(What::Orders);
            for number in numbers {
                maker.call(&mut digest, *number, due);
            }
            (digest.received, digest.digest)
        };
        assert_eq!(of(&[1, 2, 3], 5), of(&[1, 2, 3], 5));
        for other in [
            of(&[1, 2], 5),
            of(&[1, 3, 2], 5),
            of(&[1, 2, 4], 5),
            of(&[1, 2, 3], 6),
        ] {
            assert_ne!(of(&[1, 2, 3], 5), other);
        }
    }
}
