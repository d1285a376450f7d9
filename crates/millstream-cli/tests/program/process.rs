//! The `millstream` program as tests run it: a real process, on files and sockets of its own.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

pub fn millstream(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

/// Run the program on this standard input.
pub fn feed(args: &[&str], input: impl AsRef<[u8]>) -> Output {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.as_ref().to_vec();
    // It may end before it has read all, or answer before we have written all.
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _fed = feeder.join().unwrap();
    output
}

/// What the program printed, which must have succeeded.
pub fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

pub fn interrupt(child: &Child) {
    signal(child, rustix::process::Signal::INT);
}

pub fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

/// A directory with a file of `count` generated messages.
pub fn generated(kind: &str, count: u64) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("sent");
    let out = millstream(&[
        "generate",
        kind,
        "--out",
        text(&file),
        "--count",
        &count.to_string(),
        "--seed",
        "7",
    ]);
    assert!(out.status.success(), "{out:?}");
    (directory, file)
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A running `millstream receive`.
pub struct Receiver {
    pub child: Child,
    pub address: String,
    stderr: BufReader<ChildStderr>,
}

impl Receiver {
    pub fn start(args: &[&str]) -> Self {
        let mut child = command(&[&["receive", "--listen", ":0", "--json"], args].concat())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        let address = line
            .trim()
            .strip_prefix("listening on ")
            .expect(&line)
            .to_owned();
        Self {
            child,
            address,
            stderr,
        }
    }

    /// The report, the exit code, and stderr after the first line.
    pub fn end(mut self) -> (Value, Option<i32>, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        let output = self.child.wait_with_output().unwrap();
        (json(&output), output.status.code(), said)
    }
}
