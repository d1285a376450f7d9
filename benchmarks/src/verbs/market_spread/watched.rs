//! What a page costs that is open: pairs of runs in turns, one without a page, and one whose page a client follows and
//! whose metrics another one reads each second.

use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use millstream_cli::failure::Failure;
use millstream_cli::stop::Stop;
use serde::Serialize;

use crate::market_spread::{Plan, Report, run, run_until};
use crate::program::Program;

/// The time between two readings of the metrics.
const SCRAPE: Duration = Duration::from_secs(1);
/// The name of the thread that serves the page.
const PAGE: &str = "page";
/// The time after which a client looks whether the run has ended.
const TICK: Duration = Duration::from_millis(100);

/// What was measured, by run.
#[derive(Default, Serialize)]
pub(super) struct Pairs {
    /// Messages per second without a page, and with one.
    pub(super) rates: Vec<[f64; 2]>,
    /// The p50 of the internal latency without a page, and with one; microseconds.
    pub(super) p50s_us: Vec<[f64; 2]>,
    /// The CPU time of the thread of the page, in percent of a core while messages were sent.
    pub(super) page_cpu_percents: Vec<f64>,
    /// The readings of the metrics, and the snapshots that the page received, in all runs with a page.
    pub(super) read: [usize; 2],
}

impl fmt::Display for Pairs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |pairs: &[[f64; 2]], index: usize| {
            median(pairs.iter().map(|pair| pair[index]).collect())
        };
        let ratio = |pairs: &[[f64; 2]]| {
            median(pairs.iter().map(|[without, with]| with / without).collect())
        };
        let rates = &self.rates;
        let p50s = &self.p50s_us;
        writeln!(
            f,
            "{} pairs in turns; the page received {} snapshots, the metrics were read {} times",
            rates.len(),
            self.read[1],
            self.read[0],
        )?;
        writeln!(
            f,
            "throughput: {:.3} M msg/s without a page, {:.3} with one; median of the ratios {:.4}",
            of(rates, 0) / 1e6,
            of(rates, 1) / 1e6,
            ratio(rates),
        )?;
        writeln!(
            f,
            "internal p50: {:.2} us without a page, {:.2} with one; median of the ratios {:.4}",
            of(p50s, 0),
            of(p50s, 1),
            ratio(p50s),
        )?;
        writeln!(
            f,
            "CPU of the thread of the page: {:.2} % of a core",
            median(self.page_cpu_percents.clone()),
        )
    }
}

/// Measures pairs of runs; the order within a pair alternates.
pub(super) fn pairs(
    stop: &Stop,
    plan: &Plan,
    program: &Program,
    count: u32,
) -> Result<Pairs, Failure> {
    let mut pairs = Pairs::default();
    for number in 0..count {
        let mut runs = [None, None];
        for index in [number % 2, 1 - number % 2] {
            let watched = index == 1;
            let Some(run) = one(stop, plan, program, watched, &mut pairs)? else {
                return Ok(pairs);
            };
            run.counts.agree()?;
            runs[usize::from(watched)] = Some(run);
        }
        if let [Some(without), Some(with)] = runs {
            pairs.rates.push([without.rate_reached, with.rate_reached]);
            pairs
                .p50s_us
                .push([without.internal.p50_us, with.internal.p50_us]);
        }
    }
    Ok(pairs)
}

fn one(
    stop: &Stop,
    plan: &Plan,
    program: &Program,
    watched: bool,
    pairs: &mut Pairs,
) -> Result<Option<Report>, Failure> {
    if !watched {
        return run_until(stop, plan, program, run);
    }
    let observer = millstream_observe::http("127.0.0.1:0").bind();
    let observer = Arc::new(observer.map_err(Failure::failed)?);
    let over = Arc::new(AtomicBool::new(false));
    let clients = clients(observer.address(), &over);
    let plan = Plan {
        observer: Some(observer),
        ..plan.clone()
    };
    let run = run_until(stop, &plan, program, run);
    let page_seconds = cpu_seconds_of_threads(PAGE).map_err(Failure::failed)?;
    over.store(true, Ordering::Relaxed);
    for (count, client) in pairs.read.iter_mut().zip(clients) {
        *count += client.join().unwrap_or(0);
    }
    if let Ok(Some(run)) = &run {
        let seconds = run.messages as f64 / run.rate_reached;
        pairs.page_cpu_percents.push(100.0 * page_seconds / seconds);
    }
    run
}

/// The CPU time of the threads of this process with a name; one that does not run is an error.
fn cpu_seconds_of_threads(name: &str) -> std::io::Result<f64> {
    let mut found = None;
    for thread in std::fs::read_dir("/proc/self/task")? {
        let thread = thread?.path();
        if std::fs::read_to_string(thread.join("comm"))?.trim_end() == name {
            let times = std::fs::read_to_string(thread.join("schedstat"))?;
            let ns = times.split(' ').next().unwrap_or_default();
            let ns: u64 = ns.parse().map_err(std::io::Error::other)?;
            *found.get_or_insert(0.0) += ns as f64 / 1e9;
        }
    }
    found.ok_or_else(|| std::io::Error::other(format!("no thread has the name {name}")))
}

/// The client that reads the metrics, and the one that follows the page.
fn clients(address: &str, over: &Arc<AtomicBool>) -> [JoinHandle<usize>; 2] {
    let start = |client: fn(&str, &AtomicBool) -> std::io::Result<usize>| {
        let address = address.to_owned();
        let over = Arc::clone(over);
        #[expect(clippy::disallowed_methods, reason = "a client of the page")]
        std::thread::spawn(move || client(&address, &over).unwrap_or(0))
    };
    [start(scrape), start(follow)]
}

fn scrape(address: &str, over: &AtomicBool) -> std::io::Result<usize> {
    let mut readings = 0;
    while !over.load(Ordering::Relaxed) {
        let mut client = TcpStream::connect(address)?;
        write!(
            client,
            "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        )?;
        std::io::copy(&mut client, &mut std::io::sink())?;
        readings += 1;
        for _ in 0..SCRAPE.as_millis() / TICK.as_millis() {
            if !over.load(Ordering::Relaxed) {
                std::thread::park_timeout(TICK);
            }
        }
    }
    Ok(readings)
}

fn follow(address: &str, over: &AtomicBool) -> std::io::Result<usize> {
    let mut client = TcpStream::connect(address)?;
    client.set_read_timeout(Some(TICK))?;
    write!(client, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    let mut snapshots = 0;
    let mut buffer = vec![0; 1 << 16];
    while !over.load(Ordering::Relaxed) {
        match client.read(&mut buffer) {
            Ok(0) => break,
            Ok(bytes) => {
                let text = &buffer[..bytes];
                snapshots += text.windows(6).filter(|part| part == b"data: ").count();
            }
            // The time of a read has passed.
            Err(_) => {}
        }
    }
    Ok(snapshots)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
