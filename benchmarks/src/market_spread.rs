//! Market Spread over TCP: generator, senders, flow and receiver, with both kinds of latency.
//!
//! *Internal* latency is the age of a batch, since its frames were cut out of the read buffer, at the end of the state
//! step (and at the flush of the sink, for results). *End-to-end* latency is open loop: message `i` of a stream is due
//! at `t0 + i / rate`, and its latency runs from then until the state step has handled it, however late the sender was.
//! A stall anywhere shows in it. A message that was due and never sent is in it too, with its lateness at the end of
//! the run.
//!
//! The figures of a run whose counts disagree are worthless: see [`counts`].

mod counts;
mod example;
mod files;
mod flow;
mod in_process;
mod plan;
pub mod python;
mod report;
mod sent;

use millstream_cli::failure::Failure;
use millstream_cli::stop::Stop;

use self::files::InputFiles;
use self::in_process::Rig;
pub use self::plan::Plan;
pub use self::report::Report;
use crate::program::Program;

/// Measures one run of a flow.
pub type Measure = fn(&Plan, &Program) -> Result<Report, String>;

/// Measures one run of the flow in Rust, in this process.
///
/// # Errors
/// A process that could not be started or failed; the flow's failure.
pub fn run(plan: &Plan, program: &Program) -> Result<Report, String> {
    let files = InputFiles::generate(plan.seed)?;
    let connections = plan.workers.to_string();
    let results = files.results().display().to_string();
    let receiver = program.receiver(
        &[
            "--connections",
            &connections,
            "--expect-length",
            "55",
            "--out",
            &results,
        ]
        .map(String::from),
    )?;
    let rig = Rig {
        plan,
        results_at: &receiver.address,
        program,
        files: &files,
    };
    let (mut report, sent) = in_process::run(&rig)?;
    report.results = receiver.report()?["messages"].as_u64().unwrap_or(0);
    report.counts = counts::judge(
        &files,
        (sent.quotes, sent.orders),
        report.messages,
        sent.interrupted,
    )?;
    Ok(report)
}

/// Runs the benchmark once; `None` if a signal ended it before there were figures.
///
/// # Errors
/// As [`run`], if no signal came.
pub fn run_until(
    stop: &Stop,
    plan: &Plan,
    program: &Program,
    measure: Measure,
) -> Result<Option<Report>, Failure> {
    match measure(plan, program) {
        Ok(report) => Ok(Some(report)),
        // Processes that are interrupted while they start miss each other in many ways.
        Err(_) if stop.requested() => Ok(None),
        Err(error) => Err(Failure::failed(error)),
    }
}
