//! The queue server that is measured, a process of its own.

use std::path::Path;

use millstream_cli::program::{Program, Receiver};

/// CPU time that all threads of a process have used.
pub(super) fn cpu_seconds_of(id: u32) -> Result<f64, String> {
    let tasks = format!("/proc/{id}/task");
    let failed = |error: std::io::Error| format!("{tasks}: {error}");
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

/// A free port of this machine.
pub(super) const ANY_PORT: &str = "127.0.0.1:0";

/// Starts a server.
pub(super) fn serve(
    program: &Program,
    folder: &Path,
    listen: &str,
    options: &[&str],
) -> Result<Receiver, String> {
    let dir = folder.to_string_lossy();
    let args = ["queue", "serve", "--listen", listen, "--dir", &dir]
        .into_iter()
        .chain(options.iter().copied());
    program.listening(&args.map(str::to_owned).collect::<Vec<_>>())
}
