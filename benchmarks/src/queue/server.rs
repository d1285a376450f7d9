//! The queue server that is measured, a process of its own.

use std::path::Path;

use crate::program::{Program, Receiver};

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
