//! The Python package, measured by a module that runs in Python.

use std::path::Path;

use super::figures::{Fault, Figures};
use crate::programs::python_module;
use crate::scratch::Scratch;

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let scratch = Scratch::new(folder)?;
    let values = match script("journal", &[&scratch.path().to_string_lossy()]) {
        Ok(values) => values,
        Err(why) => {
            figures.miss(format!("the Python package: {why}"));
            return Ok(());
        }
    };
    let rows = [
        (
            "Python: append_many, 64 B",
            "append_many",
            1e-6,
            "M/s",
            Some("5"),
        ),
        (
            "Python: a single append, 64 B",
            "append",
            1e6,
            "us",
            Some("0.5"),
        ),
        (
            "Python: iterate, 64 B, every body",
            "iterate",
            1e-6,
            "M/s",
            Some("5"),
        ),
        (
            "Python: a record by its number, 1,000 B, read only",
            "by_number",
            1e6,
            "us",
            None,
        ),
        (
            "Python: the same by key in SQLite",
            "by_key",
            1e6,
            "us",
            None,
        ),
    ];
    for (name, key, scale, unit, aim) in rows {
        let value = values[key].as_f64().ok_or("the script gave no number")?;
        figures.add(name, value * scale, unit, aim);
    }
    Ok(())
}

/// The JSON that a module of `millstream_bench` prints; or the last line of its standard error.
pub(super) fn script(module: &str, args: &[&str]) -> Result<serde_json::Value, String> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let output = python_module(module)
        .command(&args)
        .output()
        .map_err(|error| format!("cannot start Python: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(errors.lines().last().unwrap_or("it failed").to_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
}
