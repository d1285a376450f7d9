//! Market Spread in Python: the demo of the package, which measures itself with the same parts.

use millstream_cli::python::interpreter;

use super::plan::Plan;
use super::report::Report;
use crate::program::Program;

/// Measures one run of the flow in Python, one worker, in processes of its own.
///
/// # Errors
/// What the demo says on standard error.
pub fn run(plan: &Plan, _: &Program) -> Result<Report, String> {
    // Texts have the same hash in all runs.
    let demo = Program::of(vec![
        "env".into(),
        "PYTHONHASHSEED=0".into(),
        interpreter(),
        "-m".into(),
        "millstream".into(),
    ]);
    let rate = plan.rate.unwrap_or(0.0).to_string();
    let seconds = plan.seconds.to_string();
    let args = ["demo", "--json", "--rate", &rate, "--seconds", &seconds];
    let spin = plan.spin.then_some("--spin");
    let args: Vec<String> = args.into_iter().chain(spin).map(String::from).collect();
    let report = demo.run_json(&args, &plan.stop)?;
    serde_json::from_value(report).map_err(|error| error.to_string())
}
