//! `millstream scale`: divides the state of a flow among another number of processes.

use std::fmt;
use std::path::PathBuf;

use bytesize::ByteSize;
use millstream_flow::FlowError;
use millstream_flow::checkpoint::{Rescaled, rescale};
use serde::Serialize;

use crate::failure::Failure;
use crate::report;

/// The options of `millstream scale`.
#[derive(clap::Args, Debug)]
#[command(
    long_about = "Divide the state of a flow that does not run among another number of processes.

After a crash of the flow the state is that of the last committed epoch. A process that was killed may have written output after that
epoch. A process with the same number removes it when it starts. If there will be none, start the flow with the old number of processes
and stop it, or use --leave-output. A crash of this command leaves the old state or the new one; if it was interrupted, run it again.",
    after_help = "Example:
  millstream scale state --processes 4
  millstream run flow.py --processes 4 --state state"
)]
pub(super) struct Args {
    /// The state directory, as `run --state` has it.
    dir: PathBuf,
    /// The new number of processes; 1 for a run without --processes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=512))]
    processes: u16,
    /// The workers of each process; as before by default.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// After a crash: leave the output of processes that there are no longer as it is, with what they wrote after the
    /// last commit; other processes write that once more.
    #[arg(long)]
    leave_output: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Divides the state, and prints what it moved and how long it took.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let workers = args.workers.map(usize::from);
    let processes = usize::from(args.processes);
    let done = rescale(&args.dir, processes, workers, args.leave_output);
    let done = done.map_err(|error| match &error {
        FlowError::Usage(message) => Failure::usage(message),
        _ => Failure::failed(error),
    })?;
    let report = Report::of(&done);
    report::print(&report, &report.to_string(), args.json)
}

/// What was moved.
#[derive(Serialize)]
struct Report {
    from_processes: usize,
    processes: usize,
    workers: usize,
    epoch: u64,
    keys: u64,
    bytes: u64,
    /// The sources that processes which are gone read from their own machines.
    left: Vec<Left>,
    /// The processes that were killed and are gone, whose output has what they wrote after the last commit.
    with_output: Vec<usize>,
    seconds: f64,
}

/// A source that a process read from its own machine, of which there is no such process any more.
#[derive(Serialize)]
struct Left {
    process: usize,
    source: String,
}

impl Report {
    fn of(done: &Rescaled) -> Self {
        let left = done.left.iter().map(|(process, source)| Left {
            process: *process,
            source: source.clone(),
        });
        Report {
            from_processes: done.from,
            processes: done.processes,
            workers: done.workers,
            epoch: done.epoch,
            keys: done.keys,
            bytes: done.bytes,
            left: left.collect(),
            with_output: done.with_output.clone(),
            seconds: done.elapsed.as_secs_f64(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.processes == 1 { "" } else { "es" };
        write!(
            f,
            "{} -> {} process{plural}: {} keys, {}, as of epoch {}, in {:.3} s",
            self.from_processes,
            self.processes,
            self.keys,
            ByteSize(self.bytes),
            self.epoch,
            self.seconds
        )?;
        for Left { process, source } in &self.left {
            write!(
                f,
                "\nprocess {process} has read source \"{source}\" from its own machine: what it has not read stays unread until a process \
                 {process} runs there again"
            )?;
        }
        for process in &self.with_output {
            write!(
                f,
                "\nprocess {process} was killed: what it wrote after the last commit stays in its output, and is written once more by others"
            )?;
        }
        Ok(())
    }
}
