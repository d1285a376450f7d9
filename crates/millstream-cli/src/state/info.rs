//! `millstream state info`: what a flow has saved, at a glance.

use std::path::PathBuf;

use bytesize::ByteSize;
use millstream_flow::checkpoint::{Commit, Saved, SourceMark};
use millstream_flow::source::Position;
use millstream_observe::log_line::plain;
use serde::{Serialize, Serializer};

use super::saved::SavedState;
use crate::moment;
use crate::outcome::Outcome;
use crate::report;

/// The options of `millstream state info`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream state info state/ --json")]
pub(super) struct Args {
    /// The state directory of a flow, what was given as --state.
    dir: PathBuf,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// A state directory at a glance.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    /// The last epoch that counts.
    epoch: u64,
    committed: String,
    workers: usize,
    /// The shards into which keys are divided.
    shards: usize,
    /// True when the flow had come to its end.
    finished: bool,
    /// Of the records that count.
    bytes: u64,
    /// The part of each process, in the state of several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    processes: Vec<Process>,
    steps: Vec<Step>,
    sources: Vec<Source>,
    sinks: Vec<Sink>,
}

/// The part of a process in the state of several.
#[derive(Debug, Serialize)]
struct Process {
    process: usize,
    /// The last epoch in which it had changes.
    epoch: u64,
    /// An epoch that it has prepared since, which counts if process 0 has committed it.
    prepared: Option<u64>,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Step {
    name: String,
    keys: usize,
    /// Of keys and states.
    bytes: usize,
}

#[derive(Debug, Serialize)]
struct Source {
    name: String,
    partition: String,
    /// The process that reads it from its own machine, if each does.
    #[serde(skip_serializing_if = "Option::is_none")]
    of_process: Option<usize>,
    /// A number, or text where it is bytes of the source's own.
    #[serde(serialize_with = "number_or_text")]
    position: Position,
}

#[derive(Debug, Serialize)]
struct Sink {
    name: String,
    worker: usize,
    /// The committed length of the output, for a sink that is truncated by length.
    length: Option<u64>,
}

/// A position as a number where it is one, else as people see it.
fn number_or_text<S: Serializer>(position: &Position, to: S) -> Result<S::Ok, S::Error> {
    match position.number() {
        Some(number) => to.serialize_u64(number),
        None => to.collect_str(position),
    }
}

/// Tell.
pub(super) fn run(args: &Args) -> Outcome {
    let mut state = SavedState::open(&args.dir)?;
    let Some(commit) = merged(&state.parts) else {
        let dir = args.dir.display();
        return Err(format!("state in {dir}: the flow has committed nothing yet").into());
    };
    let names = state.steps(None)?;
    state.expect(names.len(), false);
    let mut steps = Vec::new();
    for name in names {
        let keys = state.keys(&name)?;
        let bytes = keys.iter().map(|key| key.key.len() + key.state.len());
        steps.push(Step {
            name,
            keys: keys.len(),
            bytes: bytes.sum(),
        });
    }
    state.progress = None;
    let report = Report::of(&state, commit, steps);
    Ok(report::print(&report, &report.to_string(), args.json)?)
}

/// The last commit, with the sources and sinks of all processes. Process 0 has the last epoch.
fn merged(parts: &[Saved]) -> Option<Commit> {
    let mut commit = parts.first()?.commit()?.clone();
    let division = commit.division.clone();
    for (process, part) in parts.iter().enumerate().skip(1) {
        let Some(other) = part.commit() else {
            continue;
        };
        for mark in &other.sources {
            let reader = division.as_ref();
            let reader = reader.and_then(|division| division.reader(&mark.source, &mark.partition));
            let mut known = commit.sources.iter_mut();
            let is_same = |known: &&mut SourceMark| {
                (&known.source, &known.partition, known.local)
                    == (&mark.source, &mark.partition, mark.local)
            };
            let known = known.find(is_same);
            match known {
                Some(known) if reader == Some(process) => *known = mark.clone(),
                Some(_) => {}
                None => commit.sources.push(mark.clone()),
            }
        }
        commit.sinks.extend(other.sinks.iter().cloned());
    }
    Some(commit)
}

impl Process {
    fn of(part: &Saved) -> Option<Self> {
        let commit = part.commit().or(part.prepared())?;
        Some(Process {
            process: commit.division.as_ref()?.process,
            epoch: part.commit().map_or(0, |commit| commit.epoch),
            prepared: part.prepared().map(|prepared| prepared.epoch),
            bytes: part.bytes(),
        })
    }
}

impl Report {
    fn of(state: &SavedState, commit: Commit, steps: Vec<Step>) -> Self {
        let sources = commit.sources.into_iter().map(|mark| Source {
            name: mark.source,
            partition: mark.partition,
            of_process: mark.local,
            position: mark.position,
        });
        let sinks = commit.sinks.into_iter().map(|mark| Sink {
            name: mark.sink,
            worker: mark.worker,
            length: mark
                .token
                .first_chunk()
                .map(|length| u64::from_le_bytes(*length)),
        });
        Report {
            path: state.dir.clone(),
            epoch: commit.epoch,
            committed: moment::show(commit.time_ns.max(0) as u64),
            workers: commit.workers,
            shards: commit.shards.count(),
            finished: commit.finished,
            bytes: state.parts.iter().map(Saved::bytes).sum(),
            processes: state.parts.iter().filter_map(Process::of).collect(),
            steps,
            sources: sources.collect(),
            sinks: sinks.collect(),
        }
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let end = if self.finished {
            "; the flow has finished"
        } else {
            ""
        };
        writeln!(f, "state      {}{end}", self.path.display())?;
        writeln!(
            f,
            "epoch      {}, committed {} by {} worker(s)",
            self.epoch, self.committed, self.workers
        )?;
        write!(
            f,
            "size       {} of records that count, keys in {} shards",
            ByteSize(self.bytes),
            self.shards
        )?;
        for process in &self.processes {
            let Process {
                process,
                epoch,
                prepared,
                bytes,
            } = process;
            write!(
                f,
                "\nprocess    {process}: epoch {epoch}, {}",
                ByteSize(*bytes)
            )?;
            if let Some(prepared) = prepared {
                write!(f, ", epoch {prepared} prepared")?;
            }
        }
        for step in &self.steps {
            let name = plain(&step.name);
            let keys = step.keys;
            let bytes = ByteSize(step.bytes as u64);
            write!(f, "\nstep       {name}: {keys} key(s), {bytes}")?;
        }
        for source in &self.sources {
            let name = plain(&source.name);
            let partition = plain(&source.partition);
            let of = source.of_process;
            let of = of.map_or_else(String::new, |of| format!(" of the machine of process {of}"));
            write!(
                f,
                "\nsource     {name}, partition {partition}{of}: at {}",
                source.position
            )?;
        }
        for sink in &self.sinks {
            write!(f, "\nsink       {}", plain(&sink.name))?;
            if let Some(length) = sink.length {
                write!(f, ": up to {length}")?;
            }
        }
        Ok(())
    }
}
