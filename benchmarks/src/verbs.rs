//! The verbs: their options, and what each prints.

pub mod cluster;
pub mod flow;
pub mod http;
pub mod journal;
pub mod market_spread;
pub mod queue;
pub mod service;

use millstream_cli::failure::Failure;

/// Checks the rate and the length of a run, as options give them.
///
/// # Errors
/// A rate below 0, or a length that is not in (0, 3600].
fn check(rate: f64, seconds: f64) -> Result<(), Failure> {
    if !(rate >= 0.0 && rate.is_finite()) {
        return Err(Failure::usage(format!(
            "--rate {rate}: a number of messages, or 0"
        )));
    }
    if !(seconds > 0.0 && seconds <= 3600.0) {
        return Err(Failure::usage(format!(
            "--seconds {seconds}: more than 0, at most 3600"
        )));
    }
    Ok(())
}

/// Reports on standard error that a signal ended a measurement before there were figures, which is no failure.
fn nothing_measured(verb: &str) -> Result<(), Failure> {
    eprintln!("millstream-bench {verb}: interrupted before there was anything to measure");
    Ok(())
}
