//! Processes beside the server that is measured: its follower, and programs that need the cores too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millstream_queue::address::Address;

use crate::program::Program;

/// Processes that are killed when this is dropped.
#[derive(Default)]
pub(super) struct Beside(Vec<Child>);

impl Beside {
    /// Endless loops.
    pub(super) fn loops(count: u32) -> Result<Self, String> {
        let mut beside = Beside::default();
        for _ in 0..count {
            let mut shell = Command::new("sh");
            beside.start(shell.args(["-c", "while :; do :; done"]))?;
        }
        Ok(beside)
    }

    /// A follower of a server with `--replica`, which acknowledges as `sync` says.
    pub(super) fn follower(
        program: &Program,
        (leader, folder): (&str, &Path),
        sync: &str,
    ) -> Result<Self, String> {
        let copy = folder.join("copy").to_string_lossy().into_owned();
        let args = ["queue", "follow", leader, &copy, "--sync", sync];
        let args = args.map(str::to_owned);
        let mut beside = Beside::default();
        beside.start(&mut program.command(&args))?;
        Ok(beside)
    }

    fn start(&mut self, command: &mut Command) -> Result<(), String> {
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C on a terminal reaches a whole group; the order in which a run ends is ours.
            .process_group(0);
        let child = command.spawn().map_err(|error| error.to_string())?;
        self.0.push(child);
        Ok(())
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until a server answers.
pub(super) fn await_answer(address: &Address) -> std::io::Result<()> {
    let mut stream = address.connect()?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    stream.write_all(b"version\r\n")?;
    stream.read_exact(&mut [0; 1])
}

/// An address of this machine that is free now.
pub(super) fn free_address() -> Result<SocketAddr, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_err(|error| error.to_string())
}
