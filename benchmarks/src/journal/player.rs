//! The other process of a journal benchmark: started, released, and asked for its times.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use millstream_journal::{Reader, Wait};

use super::figures::Fault;
use crate::programs;

/// How long a reader waits for a record of the other process.
const LIMIT: Duration = Duration::from_secs(10);

/// A process that runs a role of [`role`](super::role).
pub(super) struct Player {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Player {
    /// Start it and wait until it is ready.
    pub(super) fn start(role: &[&str], dir: &Path, numbers: &[u64]) -> Result<Self, Fault> {
        let mut args: Vec<String> = vec!["journal-peer".to_owned()];
        args.extend(role.iter().map(|&word| word.to_owned()));
        args.push(dir.to_string_lossy().into_owned());
        args.extend(numbers.iter().map(u64::to_string));
        let mut child = programs::this()?
            .command(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process without its pipes".into());
        };
        let mut player = Player {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        };
        match player.line()?.trim() {
            "ready" => Ok(player),
            other => Err(format!("the other process said {other:?}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Fault> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }

    /// Let it begin.
    pub(super) fn go(&mut self) -> Result<(), Fault> {
        Ok(self.stdin.write_all(b"go\n")?)
    }

    /// Wait for its end: from when to when it has worked.
    pub(super) fn end(mut self) -> Result<(u64, u64), Fault> {
        let line = self.line()?;
        let status = self.child.wait()?;
        let times = line.trim().split_once(' ');
        match times.and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?))) {
            Some(times) if status.success() => Ok(times),
            _ => Err(format!("the other process ended with {status} and {line:?}").into()),
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // A benchmark that fails half-way must leave no process running.
        if let Ok(None) = self.child.try_wait() {
            let _killed = self.child.kill();
            let _ended = self.child.wait();
        }
    }
}

/// Wait for a record without ever sleeping.
pub(super) fn wait(reader: &mut Reader) -> Result<(), Fault> {
    if reader.wait(Wait::Spin, Some(LIMIT))? {
        Ok(())
    } else {
        Err("the other process has stopped appending".into())
    }
}
