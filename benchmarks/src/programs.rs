//! The other processes of a benchmark, as programs: `millstream`, a role of this program, a Python module.
//!
//! All Rust processes run this one executable, so that a benchmark never measures another build by mistake.

use std::ffi::OsString;
use std::io;

use millstream_cli::python;

use crate::program::Program;

/// The verb of this program that runs `millstream`.
pub const MILLSTREAM: &str = "millstream";

/// The directory of the Python package `millstream_bench`, in the checkout from which this program was built.
const PYTHON_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python");

/// The program `millstream`, linked into this one.
pub fn millstream() -> io::Result<Program> {
    Ok(this()?.with(&[MILLSTREAM]))
}

/// This program, for its hidden roles.
pub fn this() -> io::Result<Program> {
    Ok(Program::of(vec![std::env::current_exe()?.into()]))
}

/// A module of the Python package `millstream_bench`. Texts have the same hash in all of its processes.
pub fn python_module(name: &str) -> Program {
    let mut path = OsString::from("PYTHONPATH=");
    path.push(PYTHON_PATH);
    if let Some(inherited) = std::env::var_os("PYTHONPATH").filter(|path| !path.is_empty()) {
        path.push(":");
        path.push(inherited);
    }
    Program::of(vec![
        "env".into(),
        path,
        "PYTHONHASHSEED=0".into(),
        python::interpreter(),
        "-m".into(),
        format!("millstream_bench.{name}").into(),
    ])
}

/// CPU time that all threads of a process have used.
pub fn cpu_seconds_of(id: u32) -> Result<f64, String> {
    let tasks = format!("/proc/{id}/task");
    let failed = |error: io::Error| format!("{tasks}: {error}");
    let mut sum_ns = 0.0;
    for task in std::fs::read_dir(&tasks).map_err(failed)? {
        let path = task.map_err(failed)?.path().join("schedstat");
        // A thread that has just ended is no longer counted.
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let ns = text.split_whitespace().next();
        sum_ns += ns.and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(sum_ns / 1e9)
}
