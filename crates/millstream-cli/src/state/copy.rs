//! `millstream state copy`: a copy of the state of a flow, which may run meanwhile.

use std::path::PathBuf;

use bytesize::ByteSize;
use millstream_flow::checkpoint::copy;
use serde::Serialize;

use crate::failure::Failure;
use crate::outcome::Outcome;
use crate::report;

/// The options of `millstream state copy`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The flow may run meanwhile: the copy is its state as of one commit, of all its processes. Files that sinks write and sources
read are not in it: copy them after it, and let a second flow write its own.

Example:
  millstream state copy state backup
  millstream run flow.py --state backup")]
pub(super) struct Args {
    /// The state directory, as `run --state` has it. It has the directories of all processes.
    dir: PathBuf,
    /// The directory of the copy, which must not exist yet.
    to: PathBuf,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// What was copied.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    epoch: u64,
    processes: usize,
    records: u64,
    bytes: u64,
}

/// Copies the state.
pub(super) fn run(args: &Args) -> Outcome {
    let copied = copy(&args.dir, &args.to).map_err(Failure::failed)?;
    let report = Report {
        path: args.to.clone(),
        epoch: copied.epoch,
        processes: copied.processes,
        records: copied.records,
        bytes: copied.bytes,
    };
    let plural = if copied.processes == 1 { "" } else { "es" };
    let text = format!(
        "{}: the state of {} process{plural} as of epoch {}: {} records, {}",
        args.to.display(),
        copied.processes,
        copied.epoch,
        copied.records,
        ByteSize(copied.bytes)
    );
    Ok(report::print(&report, &text, args.json)?)
}
