//! Word count beside the same written by hand for `timely`.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use millstream_flow::testing::Collected;
use millstream_flow::{Emit, Flow, Options, files};
use millstream_journal::clock::monotonic_ns;
use serde::Serialize;
use timely::Config;
use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::Exchange;
use timely::dataflow::operators::vec::Map;
use timely::dataflow::operators::{Inspect, Operator, Probe};
use timely::dataflow::{InputHandle, ProbeHandle};
use timely::worker::Worker;

use super::cases::median;

const LINES: u64 = 1_000_000;
const WORDS_IN_LINE: u64 = 10;
const VOCABULARY: u64 = 20_000;
/// The lines of a round in `timely`, and how many rounds are on their way.
const BATCH: u64 = 1000;
const ROUNDS: u64 = 8;

type Fault = Box<dyn std::error::Error + Send + Sync>;
type Counts = Vec<(String, u64)>;

/// What a word count costs with so many workers.
#[derive(Clone, Debug, Serialize)]
pub struct WordCount {
    /// Of the flow and of the dataflow alike.
    pub workers: usize,
    /// Words in a second of the flow: the median of the runs.
    pub flow: f64,
    /// Words in a second of the dataflow by hand: the median of the runs.
    pub timely: f64,
    /// The time of the flow over that of the dataflow: the median of the pairs of runs.
    pub ratio: f64,
}

/// Counts the words of a file by a flow and by hand, in turns, with one worker and with two.
///
/// # Errors
/// A run fails, or the counts of the two differ.
pub(super) fn counts(runs: u32, folder: &Path) -> Result<Vec<WordCount>, Fault> {
    let book = folder.join(format!("millstream-bench-{}.txt", std::process::id()));
    write_book(&book)?;
    let measured = [1, 2]
        .into_iter()
        .map(|workers| beside(&book, workers, runs));
    let measured = measured.collect();
    std::fs::remove_file(&book)?;
    measured
}

/// Lines of words, of which few are frequent and most are rare.
fn write_book(path: &Path) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let mut x = 1_u64;
    for _ in 0..LINES {
        for _ in 0..WORDS_IN_LINE {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (x >> 40) as f64 / f64::from(1 << 24);
            let rank = (VOCABULARY as f64).powf(uniform) as u64;
            write!(out, "word{rank} ")?;
        }
        writeln!(out)?;
    }
    out.flush()
}

fn beside(book: &Path, workers: usize, runs: u32) -> Result<WordCount, Fault> {
    let mut flow = Vec::new();
    let mut timely = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..runs {
        let (ours, counted) = timed(|| by_flow(book, workers))?;
        let (theirs, expected) = timed(|| by_timely(book, workers))?;
        if counted != expected {
            return Err("the flow and the dataflow by hand have counted other words".into());
        }
        ratios.push(ours / theirs);
        flow.push((LINES * WORDS_IN_LINE) as f64 / ours);
        timely.push((LINES * WORDS_IN_LINE) as f64 / theirs);
    }
    Ok(WordCount {
        workers,
        flow: median(&flow),
        timely: median(&timely),
        ratio: median(&ratios),
    })
}

/// The seconds of a run, and its counts in their order.
fn timed(run: impl FnOnce() -> Result<Counts, Fault>) -> Result<(f64, Counts), Fault> {
    let began = monotonic_ns();
    let mut counts = run()?;
    let seconds = (monotonic_ns() - began) as f64 / 1e9;
    counts.sort_unstable();
    Ok((seconds, counts))
}

fn by_flow(book: &Path, workers: usize) -> Result<Counts, Fault> {
    let flow = Flow::new("words");
    let counts = Collected::new();
    flow.source("lines", files::lines(book))
        .flat_map(|line: String| {
            let words = line.split_whitespace();
            words.map(|word| (word.to_owned(), ())).collect::<Vec<_>>()
        })
        .into_keyed()
        .count(Emit::End)
        .items()
        .sink("out", counts.sink());
    flow.run(Options::workers(workers))?;
    Ok(counts.take())
}

fn by_timely(book: &Path, workers: usize) -> Result<Counts, Fault> {
    let found = Arc::new(Mutex::new(Counts::new()));
    let book = book.to_owned();
    let out = Arc::clone(&found);
    let guards = timely::execute(Config::process(workers), move |worker| {
        count_by_hand(worker, &book, Arc::clone(&out))
    })?;
    for ended in guards.join() {
        ended??;
    }
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut found))
}

fn count_by_hand(
    worker: &mut Worker,
    book: &Path,
    found: Arc<Mutex<Counts>>,
) -> std::io::Result<()> {
    let mut input = InputHandle::<u64, CapacityContainerBuilder<Vec<String>>>::new();
    let probe = ProbeHandle::new();
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let by_word = Exchange::new(move |word: &String| hasher.hash_one(word));
    worker.dataflow(|scope| {
        input
            .to_stream(scope)
            .flat_map(|line: String| {
                let words = line.split_whitespace();
                words.map(str::to_owned).collect::<Vec<_>>()
            })
            .unary_frontier(by_word, "count", |_, _| {
                let (mut counts, mut last) = (HashMap::<String, u64>::new(), None);
                move |(input, frontier), output| {
                    input.for_each_stamp(|capability, batches| {
                        if let Some(capability) = capability.retain_least(output.output_index()) {
                            last = Some(capability);
                        }
                        for word in batches.flat_map(std::mem::take) {
                            *counts.entry(word).or_default() += 1;
                        }
                    });
                    if frontier.is_empty()
                        && let Some(last) = last.take()
                    {
                        output.session(&last).give_iterator(counts.drain());
                    }
                }
            })
            .container::<Vec<_>>()
            .inspect(move |count: &(String, u64)| {
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.push(count.clone());
            })
            .probe_with(&probe);
    });
    if worker.index() == 0 {
        let mut round = 0;
        for (number, line) in (1..).zip(BufReader::new(File::open(book)?).lines()) {
            input.send(line?);
            if number % BATCH == 0 {
                round += 1;
                input.advance_to(round);
                worker.step();
                while probe.less_than(&round.saturating_sub(ROUNDS)) {
                    worker.step_or_park(None);
                }
            }
        }
    }
    input.close();
    while !probe.done() {
        worker.step_or_park(None);
    }
    Ok(())
}
