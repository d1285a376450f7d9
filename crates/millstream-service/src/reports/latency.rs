//! Latencies of the calls in a journal, hop by hop, from the recorded times and lineage.
//!
//! A record has the time at which it was appended, and a service's output the input that it is an effect of. So each
//! hop is measured from an input's record to the output's, and has two parts, *publish to take* and *take to output*. A
//! service with several inputs or timers records each input as it takes it, in its
//! [schedule](crate::recorded::schedule). One with one input and no timer measures the
//! [take](Take) of some of its calls, each of which counts for the number of calls in its record; there *publish to output* covers all calls.
//!
//! Times are those of the machine's clock, not of a monotonic one: an effect before its cause is counted, with a
//! latency of 0.

mod takes;
mod times;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;
use millstream_journal::{Error as JournalError, Journal, Options, Reader};
use millstream_wire::{InputName, Lineage, Note, Record, Take};
use serde::Serialize;

use self::takes::Takes;
pub use self::times::{CallTimes, call_times};
use crate::error::ServiceError;
use crate::inputs::calls::Calls;
use crate::reports::history::find;

/// The latencies of messages, by hop, and from their origin to the journal.
#[derive(Debug, Serialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Latencies {
    /// Calls of the range.
    pub calls: u64,
    /// Calls of the range that are no effects of others: external calls.
    pub origins: u64,
    /// Calls whose cause has been pruned.
    pub pruned: u64,
    /// Effects that are older than their cause, as the clock was set back in between.
    pub backwards: u64,
    /// Each hop, those near the origin first.
    pub hops: Vec<HopLatency>,
}

/// The latency of one hop.
#[derive(Debug, Serialize)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct HopLatency {
    /// The journal that the hop begins in.
    pub from: String,
    /// The journal that it ends in.
    pub to: String,
    /// `publish to take`, `take to output`, `publish to output`, or `origin to output`, which is all hops together.
    pub part: &'static str,
    /// The number of messages.
    pub count: u64,
    /// How many of them were measured: each counts once, or for several that followed each other without a pause.
    pub measured: u64,
    /// Percentiles, in microseconds.
    pub p50_us: f64,
    /// As `p50_us`.
    pub p90_us: f64,
    /// As `p50_us`.
    pub p99_us: f64,
    /// As `p50_us`.
    pub p999_us: f64,
    /// The longest, in microseconds.
    pub max_us: f64,
}

/// Measures the calls of the journal from the record `first` up to and including `last`. The journals upstream are read
/// in parallel, each from front to back, so that memory does not grow with the range; they are looked for as by
/// [`history`](crate::history()), in `folders` too.
///
/// ```
/// use millstream_journal::{Journal, Options};
/// use millstream_service::{latency, publisher};
///
/// #[millstream_wire::interface]
/// trait Orders {
///     fn place(&mut self, symbol: &str);
/// }
///
/// # fn main() -> Result<(), millstream_wire::Cause> {
/// # let folder = tempfile::tempdir()?;
/// let orders = Journal::open(folder.path(), Options::default())?;
/// publisher::<dyn Orders>(&orders)?.place("VOD.L");
/// let found = latency(folder.path(), 0, None, &[])?;
/// assert_eq!((found.calls, found.origins, found.hops.len()), (1, 1, 0));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// A journal upstream is missing or damaged.
#[doc(hidden)] // For the other crates of Millstream.
pub fn latency(
    journal: &Path,
    first: u64,
    last: Option<u64>,
    folders: &[PathBuf],
) -> Result<Latencies, ServiceError> {
    let mut measurement = Measurement {
        folders,
        ..Measurement::default()
    };
    let root = measurement.node(journal.to_owned())?;
    for sequence in measurement.range(root, first, last)? {
        measurement.trace(root, sequence)?;
    }
    Ok(measurement.latencies())
}

/// A reader reads up to this many records instead of seeking past them.
const NEAR: u64 = 64;

/// A journal in the chain of causes.
struct Node {
    path: PathBuf,
    journal: Journal,
    reader: Reader,
    calls: Calls,
    /// The nodes of the inputs in lineages, as the notes name them that were read last.
    inputs: HashMap<u32, (usize, InputName)>,
    /// When the service that writes this journal took its inputs.
    takes: Option<Takes>,
    /// The record that was read last.
    last: Option<(u64, Event)>,
}

impl Node {
    /// Moves to a record. Records skipped on the way forward may hold new names of inputs; after a longer seek they are
    /// looked up again.
    fn go_to(&mut self, sequence: u64) -> Result<(), ServiceError> {
        let at = self.reader.position();
        if at == sequence {
            return Ok(());
        }
        if at > sequence || sequence - at > NEAR {
            self.calls = Calls::of(&self.journal);
            self.inputs.clear();
            return Ok(());
        }
        while self.reader.position() < sequence
            && let Some(record) = self.reader.next()?
        {
            let at = record.sequence;
            if let Ok(Record::Note(note)) = Record::read(record.body)
                && let Ok(Note::Input { .. }) = self.calls.learn(at, note)
            {
                self.inputs.clear();
            }
        }
        Ok(())
    }
}

/// A record: when it was written, and its cause.
#[derive(Clone, Copy)]
struct Event {
    time_ns: u64,
    is_call: bool,
    cause: Option<(usize, u32, u64)>,
    /// When its cause was taken.
    take: Option<Take>,
    /// Whether its hops have been measured.
    traced: bool,
}

/// The key of a part of a hop: the distance from the journal, the two nodes, and the name of the part.
type InputPosition = (usize, usize, usize, &'static str);

#[derive(Default)]
struct Measurement<'a> {
    /// The directories in which moved journals are looked for.
    folders: &'a [PathBuf],
    nodes: Vec<Node>,
    histograms: Vec<(InputPosition, Histogram<u64>, u64)>,
    calls: u64,
    origins: u64,
    pruned: u64,
    backwards: u64,
}

impl Measurement<'_> {
    fn node(&mut self, path: PathBuf) -> Result<usize, ServiceError> {
        if let Some(at) = self.nodes.iter().position(|node| node.path == path) {
            return Ok(at);
        }
        let journal = Journal::open(&path, Options::read_only())?;
        self.nodes.push(Node {
            reader: journal.reader()?,
            calls: Calls::of(&journal),
            inputs: HashMap::new(),
            takes: Takes::beside(&journal)?,
            last: None,
            path,
            journal,
        });
        Ok(self.nodes.len() - 1)
    }

    /// The records of a journal from `first` up to and including `last` that it has.
    fn range(
        &self,
        node: usize,
        first: u64,
        last: Option<u64>,
    ) -> Result<Range<u64>, ServiceError> {
        let journal = &self.nodes[node].journal;
        let next = journal.next()?;
        let end = last.map_or(next, |last| next.min(last.saturating_add(1)));
        Ok(first.max(journal.first()?)..end)
    }

    /// Measures the hops to one record of the journal.
    fn trace(&mut self, root: usize, sequence: u64) -> Result<(), ServiceError> {
        let Some(found) = self.event(root, sequence)? else {
            return Ok(());
        };
        if !found.is_call {
            return Ok(());
        }
        self.calls += 1;
        let mut at = root;
        let mut event = found;
        let mut distance = 0;
        while let Some((from, input, cause)) = event.cause {
            let Some(earlier) = self.event(from, cause)? else {
                self.pruned += 1;
                return Ok(());
            };
            if !event.traced {
                self.hop(distance, (from, input, cause), at, (earlier, event))?;
            }
            if let Some((_, last)) = &mut self.nodes[at].last {
                last.traced = true;
            }
            (at, event, distance) = (from, earlier, distance + 1);
        }
        match distance {
            0 => self.origins += 1,
            1 => {}
            _ => self.record(
                0,
                (at, root),
                "origin to output",
                [event.time_ns, found.time_ns],
                1,
            ),
        }
        Ok(())
    }

    /// Measures one hop: from a cause to its effect.
    fn hop(
        &mut self,
        distance: usize,
        (from, input, cause): (usize, u32, u64),
        to: usize,
        (earlier, later): (Event, Event),
    ) -> Result<(), ServiceError> {
        let nodes = (from, to);
        let [published, output] = [earlier.time_ns, later.time_ns];
        if !earlier.is_call {
            // The tick of a timer is recorded as it is taken.
            self.record(distance, nodes, "take to output", [published, output], 1);
            return Ok(());
        }
        match self.scheduled_take(to, (input, cause), [published, output])? {
            Some(taken) => {
                self.record(distance, nodes, "publish to take", [published, taken], 1);
                self.record(distance, nodes, "take to output", [taken, output], 1);
            }
            None => {
                let whole = [published, output];
                self.record(distance, nodes, "publish to output", whole, 1);
                if let Some(Take { after_ns, calls }) = later.take {
                    let taken = published.saturating_add(after_ns);
                    self.record(
                        distance,
                        nodes,
                        "publish to take",
                        [published, taken],
                        calls,
                    );
                    self.record(distance, nodes, "take to output", [taken, output], calls);
                }
            }
        }
        Ok(())
    }

    /// When a service took a record of an input, by its schedule, which has its output in the journal `to`.
    fn scheduled_take(
        &mut self,
        to: usize,
        (input, cause): (u32, u64),
        [published_ns, output_ns]: [u64; 2],
    ) -> Result<Option<u64>, ServiceError> {
        let Node { takes, inputs, .. } = &mut self.nodes[to];
        match (takes, inputs.get(&input)) {
            (Some(takes), Some((_, name))) => takes.of(name, cause, published_ns, output_ns),
            _ => Ok(None),
        }
    }

    /// Adds a measurement, which counts for so many messages.
    fn record(
        &mut self,
        distance: usize,
        (from, to): (usize, usize),
        part: &'static str,
        [begin_ns, end_ns]: [u64; 2],
        messages: u32,
    ) {
        self.backwards += u64::from(end_ns < begin_ns);
        let key = (distance, from, to, part);
        let known = self.histograms.iter().position(|(of, ..)| *of == key);
        let at = known.unwrap_or_else(|| {
            // Three digits; it grows with its values.
            if let Ok(histogram) = Histogram::new(3) {
                self.histograms.push((key, histogram, 0));
            }
            self.histograms.len() - 1
        });
        let (_, histogram, measured) = &mut self.histograms[at];
        let ns = end_ns.saturating_sub(begin_ns);
        *measured += u64::from(histogram.record_n(ns, messages.into()).is_ok());
    }

    /// A record of a journal; `None` when it has been pruned.
    fn event(&mut self, at: usize, sequence: u64) -> Result<Option<Event>, ServiceError> {
        let node = &mut self.nodes[at];
        if let Some((_, event)) = node.last.filter(|(last, _)| *last == sequence) {
            return Ok(Some(event));
        }
        node.go_to(sequence)?;
        let record = match node.reader.read(sequence) {
            Ok(record) => record,
            Err(JournalError::Pruned { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let time_ns = record.time_ns;
        let mut take = None;
        let (is_call, lineage) = match Record::read(record.body) {
            Ok(Record::Call(lineage, ..)) => {
                take = Take::read(record.body).ok().flatten();
                (true, lineage)
            }
            Ok(Record::Note(note)) => {
                let note = node.calls.learn(sequence, note);
                if let Ok(Note::Input { .. }) = note {
                    node.inputs.clear();
                }
                (false, None)
            }
            // An entry of a schedule.
            Err(_) => (false, None),
        };
        let cause = match lineage {
            Some(Lineage {
                input,
                sequence: of,
                ..
            }) => {
                let known = node.inputs.get(&input).map(|(from, _)| *from);
                let from = match known {
                    Some(from) => from,
                    None => self.input(at, input, sequence)?,
                };
                Some((from, input, of))
            }
            None => None,
        };
        let event = Event {
            time_ns,
            is_call,
            cause,
            take,
            traced: false,
        };
        self.nodes[at].last = Some((sequence, event));
        Ok(Some(event))
    }

    /// The node of an input in the lineage of a record.
    #[cold]
    fn input(&mut self, at: usize, input: u32, sequence: u64) -> Result<usize, ServiceError> {
        let node = &mut self.nodes[at];
        let name = node.calls.input(input, sequence).cloned();
        let name = name.map_err(|cause| ServiceError::Input {
            journal: node.path.display().to_string(),
            sequence,
            cause,
        })?;
        let path = find(&name, &node.path, self.folders)?;
        let from = self.node(path)?;
        self.nodes[at].inputs.insert(input, (from, name));
        Ok(from)
    }

    fn latencies(mut self) -> Latencies {
        // Far hops first; the whole chain last. A part follows its hop.
        let whole = |part: &str| part == "origin to output";
        self.histograms
            .sort_by_key(|((distance, .., part), ..)| (whole(part), usize::MAX - distance));
        let name = |at: usize| self.nodes[at].path.display().to_string();
        let hops = self
            .histograms
            .iter()
            .map(|((_, from, to, part), of, measured)| {
                let us = |quantile| of.value_at_quantile(quantile) as f64 / 1e3;
                HopLatency {
                    from: name(*from),
                    to: name(*to),
                    part,
                    count: of.len(),
                    measured: *measured,
                    p50_us: us(0.5),
                    p90_us: us(0.9),
                    p99_us: us(0.99),
                    p999_us: us(0.999),
                    max_us: of.max() as f64 / 1e3,
                }
            });
        Latencies {
            calls: self.calls,
            origins: self.origins,
            pruned: self.pruned,
            backwards: self.backwards,
            hops: hops.collect(),
        }
    }
}
