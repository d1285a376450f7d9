//! The Python interpreter: verbs whose subject is Python code run in it.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::Failure;

/// The time in which the interpreter answers. A file system of another machine, or a wrapper of it, may hang.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The interpreter: `MILLSTREAM_PYTHON`, which the Python package sets to its own, or `python3`.
#[must_use]
pub fn interpreter() -> OsString {
    std::env::var_os("MILLSTREAM_PYTHON").unwrap_or_else(|| "python3".into())
}

/// Replaces this process by `python -m millstream VERB ...`; returns only if that fails.
pub(crate) fn exec(verb: &str, arguments: &[OsString], subject: &str) -> Failure {
    let python = interpreter();
    let error = Command::new(&python)
        .args(["-m", "millstream", verb])
        .args(arguments)
        .exec();
    Failure::failed(format!(
        "{subject} in Python need Python with the package millstream: cannot start {}: {error}",
        python.display()
    ))
}

/// What `python -m MODULE` prints.
///
/// # Errors
/// There is no interpreter, it has no package, or it does not answer.
pub(crate) fn output(module: &str) -> Result<Vec<u8>, String> {
    let python = interpreter();
    let shown = python.display();
    let mut child = Command::new(&python)
        .args(["-m", module])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // What a wrapper has started ends with it.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{shown} cannot be started: {error}"))?;
    let (sender, printed) = mpsc::channel();
    let mut pipe = child.stdout.take();
    let read = move || {
        let mut text = Vec::new();
        let read = pipe.as_mut().map(|pipe| pipe.read_to_end(&mut text));
        // Nobody waits any more after the time.
        let _ = sender.send(read.map(|read| read.map(|_| text)));
    };
    let thread = std::thread::Builder::new().name("millstream python".to_owned());
    thread.spawn(read).map_err(|error| error.to_string())?;
    let printed = printed.recv_timeout(TIMEOUT);
    if printed.is_err() {
        // It has ended meanwhile, or ends now.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let ended = child.wait().map_err(|error| format!("{shown}: {error}"))?;
    match printed {
        Ok(Some(Ok(text))) if ended.success() => Ok(text),
        Err(_) => Err(format!(
            "{shown} does not answer within {} s",
            TIMEOUT.as_secs()
        )),
        _ => Err(format!("{shown} does not have the package millstream")),
    }
}
