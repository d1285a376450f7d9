//! The other processes of a measurement: senders, receivers and servers, which run this same program.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The interval at which a running child is checked: long, as each check takes CPU from what is measured.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How the program is started: its path and what comes before the verb.
#[derive(Clone, Debug)]
pub struct Program(Vec<OsString>);

impl Program {
    /// A program: its path and what comes before the verb.
    #[must_use]
    pub fn of(words: Vec<OsString>) -> Self {
        Program(words)
    }

    /// The same program with these words before all arguments.
    #[must_use]
    pub fn with(mut self, words: &[&str]) -> Self {
        self.0.extend(words.iter().map(Into::into));
        self
    }

    /// The program with these arguments, in a process group of its own.
    #[must_use]
    pub fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]).args(args).stdin(Stdio::null());
        // Ctrl-C on a terminal reaches a whole group; the order in which a run ends is ours.
        command.process_group(0);
        command
    }

    /// Runs a verb to its end and returns its output, as JSON. It is interrupted, once, when
    /// `stop` is raised.
    ///
    /// # Errors
    /// The standard error of the verb.
    pub fn run_json(&self, args: &[String], stop: &AtomicBool) -> Result<Value, String> {
        self.run_json_until(args, || stop.load(Ordering::Relaxed))
    }

    /// As [`run_json`](Self::run_json), interrupted when `stop` says so.
    ///
    /// # Errors
    /// The standard error of the verb.
    pub fn run_json_until(
        &self,
        args: &[String],
        stop: impl Fn() -> bool,
    ) -> Result<Value, String> {
        let output = self
            .run(args, stop)
            .map_err(|error| format!("cannot run {}: {error}", self.0[0].display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())
    }

    fn run(&self, args: &[String], stop: impl Fn() -> bool) -> std::io::Result<Output> {
        let mut command = self.command(args);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut interrupted = false;
        // A report is a few lines, which the pipe holds until it is read.
        while child.try_wait()?.is_none() {
            if stop() && !interrupted {
                kill_process(Pid::from_child(&child), Signal::INT)?;
                interrupted = true;
            }
            #[expect(clippy::disallowed_methods, reason = "the child does the work")]
            std::thread::sleep(CHECK_INTERVAL);
        }
        child.wait_with_output()
    }

    /// Starts a receiver on a free port.
    ///
    /// # Errors
    /// It could not be started, or did not say where it listens.
    pub fn receiver(&self, args: &[String]) -> Result<Receiver, String> {
        let mut all: Vec<String> = ["receive", "--listen", "127.0.0.1:0", "--json"]
            .map(String::from)
            .into();
        all.extend_from_slice(args);
        self.listening(&all)
    }

    /// Starts a verb that says on standard error where it listens.
    ///
    /// # Errors
    /// It could not be started, or did not say where it listens.
    pub fn listening(&self, args: &[String]) -> Result<Receiver, String> {
        let verb = args.first().map_or("", String::as_str);
        let mut child = self
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {verb}: {error}"))?;
        let mut errors = child.stderr.take().map(BufReader::new);
        let mut said = String::new();
        let mut line = String::new();
        while let Some(from) = &mut errors
            && from
                .read_line(&mut line)
                .map_err(|error| error.to_string())?
                > 0
        {
            if let Some(address) = line.trim().strip_prefix("listening on ") {
                return Ok(Receiver {
                    address: address.to_owned(),
                    child,
                    errors,
                });
            }
            said += &line;
            line.clear();
        }
        Err(format!("{verb} did not start: {}", said.trim()))
    }
}

/// A receiver that runs as a process of its own.
pub struct Receiver {
    /// Where it listens.
    pub address: String,
    child: Child,
    errors: Option<BufReader<std::process::ChildStderr>>,
}

impl Receiver {
    /// The process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop, and waits until it has.
    ///
    /// # Errors
    /// The system refuses.
    pub fn stop(mut self) -> std::io::Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        self.child.wait().map(|_| ())
    }

    /// Waits for its end and returns its report.
    ///
    /// # Errors
    /// Its standard error.
    pub fn report(mut self) -> Result<Value, String> {
        let mut text = String::new();
        if let Some(stdout) = &mut self.child.stdout {
            stdout
                .read_to_string(&mut text)
                .map_err(|error| error.to_string())?;
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if !status.success() {
            let mut errors = String::new();
            if let Some(stderr) = &mut self.errors {
                // It failed already; this is only to say why.
                let _ = stderr.read_to_string(&mut errors);
            }
            return Err(format!("the receiver failed: {}", errors.trim()));
        }
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        // A benchmark that fails half-way must leave no process running.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
