//! `millstream demo`: Market Spread, from generated data to a report.

use std::sync::Arc;

use millstream_observe::Observer;

use crate::failure::Failure;
use crate::market_spread::rig::{self, Plan};
use crate::program::Program;
use crate::report;
use crate::stop::Stop;

/// The options of `millstream demo`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  millstream demo\n  millstream demo --http --seconds 60")]
pub(super) struct Args {
    /// Messages per second over both streams.
    #[arg(long, value_name = "N", default_value_t = 200_000.0)]
    rate: f64,
    /// Seconds of the run.
    #[arg(long, value_name = "T", default_value_t = 5.0)]
    seconds: f64,
    /// Show the flow on a page, at 127.0.0.1:8080 or another address of this machine.
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:8080")]
    http: Option<String>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// Binds the page of the flow.
fn page(address: &str) -> Result<Arc<Observer>, Failure> {
    let observer = millstream_observe::http(address).bind();
    let observer = observer.map_err(Failure::failed)?;
    eprintln!("The page of the flow is http://{}/", observer.address());
    Ok(Arc::new(observer))
}

/// Run Market Spread, generator to report.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    rig::check(args.rate, args.seconds)?;
    let stop = Stop::on_signals()?;
    let observer = args.http.as_deref().map(page).transpose()?;
    let plan = Plan {
        workers: 1,
        spin: false,
        durable: None,
        rate: Some(args.rate.max(1.0)),
        seconds: args.seconds,
        seed: 1,
        observer,
        stop: stop.flag(),
    };
    if !args.json {
        eprintln!(
            "Quotes and orders go over TCP into a flow that keeps the last quote of each of 350 symbols; orders \
             for symbols with a wide spread are rejected, to a receiver. {} messages a second for {} s.",
            args.rate, args.seconds
        );
    }
    let program = Program::this().map_err(Failure::failed)?;
    match rig::run_until(&stop, &plan, &program, rig::in_process::run)? {
        Some(measured) => {
            report::print(&measured, &measured.to_string(), args.json)?;
            measured.counts.agree()
        }
        None => report::nothing_measured("millstream demo"),
    }
}
