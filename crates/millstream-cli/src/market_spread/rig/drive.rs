//! The course of a run: initial quotes, then both streams on their schedule, then the end of the flow.

use std::path::Path;

use millstream_journal::clock::monotonic_ns;

use super::files::InputFiles;
use super::plan::Plan;
use super::sent::Sent;
use crate::data::Kind;
use crate::program::Program;

/// Time for the sender to start, read its files and connect.
const SENDER_START_NS: u64 = 700_000_000;

/// A flow that is measured, wherever it runs.
pub trait Subject {
    /// The addresses on which it takes quotes and orders.
    ///
    /// # Errors
    /// It does not listen.
    fn addresses(&mut self) -> Result<(String, String), String>;
    /// Waits until the initial quotes are handled.
    ///
    /// # Errors
    /// It failed before that.
    fn await_initial(&mut self) -> Result<(), String>;
    /// Announces the start of the schedule, 0 for none, and the time between two messages of a stream.
    ///
    /// # Errors
    /// It cannot be reached.
    fn schedule(&mut self, start_ns: u64, interval_ns: f64) -> Result<(), String>;
    /// Waits until all messages that were sent are handled.
    ///
    /// # Errors
    /// It failed before that.
    fn await_end(&mut self, sent: &Sent) -> Result<(), String>;
}

/// Everything around the flow of a run: the plan, the program that sends, the input, the receiver of results.
pub struct Rig<'a> {
    /// What is measured.
    pub plan: &'a Plan,
    /// The address of the receiver of results.
    pub results_at: &'a str,
    pub(super) program: &'a Program,
    pub(super) files: &'a InputFiles,
}

impl Rig<'_> {
    /// Sends the initial quotes to their end, then both streams.
    ///
    /// # Errors
    /// A process that could not be started or failed; a subject that failed.
    pub fn drive(&self, subject: &mut impl Subject) -> Result<Sent, String> {
        let Rig {
            plan,
            program,
            files,
            ..
        } = self;
        let (quotes_at, orders_at) = subject.addresses()?;
        let text = |path: &Path| path.display().to_string();
        let initial = text(&files.path(Kind::MarketSpreadInitial));
        let send_initial = ["send", &initial, "--to", &quotes_at, "--json"].map(String::from);
        program.run_json(&send_initial, &plan.stop)?;
        subject.await_initial()?;
        let nbbo = format!("{}@{quotes_at}", text(&files.path(Kind::MarketSpreadNbbo)));
        let orders = format!(
            "{}@{orders_at}",
            text(&files.path(Kind::MarketSpreadOrders))
        );
        let mut args: Vec<String> = [
            "send", "--stream", &nbbo, "--stream", &orders, "--repeat", "--json",
        ]
        .map(String::from)
        .into();
        args.extend(["--seconds".to_owned(), plan.seconds.to_string()]);
        match plan.rate {
            Some(rate) => {
                let start = monotonic_ns() + SENDER_START_NS;
                subject.schedule(start, 2e9 / rate)?;
                args.extend(["--rate".to_owned(), (rate / 2.0).to_string()]);
                args.extend(["--start-at".to_owned(), start.to_string()]);
            }
            None => subject.schedule(0, 0.0)?,
        }
        let sent = Sent::of(&program.run_json(&args, &plan.stop)?);
        subject.await_end(&sent)?;
        Ok(sent)
    }
}
