//! Redis beside our own server, if it is installed: a process of its own, with an append-only file.
//!
//! The nearest setting to our `--sync`: `everysec` for `never`, as neither waits for a sync; `always` for `always`.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use millstream_queue::address::Address;
use rustix::process::{Pid, Signal, kill_process};

use super::beside::free_address;

/// How often a server that starts is asked whether it has, and for how long.
const ASK_EVERY: Duration = Duration::from_millis(10);
const ASK_MAX: u32 = 500;

pub(super) struct Redis {
    pub(super) address: Address,
    child: Child,
}

impl Redis {
    /// One that listens on a Unix socket of this path, or on a port.
    pub(super) fn start(folder: &Path, socket: Option<&Path>, sync: &str) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("redis-server: {error}");
        let mut command = Command::new("redis-server");
        let address = match socket {
            Some(path) => {
                command.args(["--port", "0", "--unixsocket"]).arg(path);
                Address::Unix(path.to_path_buf())
            }
            None => {
                // If another process takes it in between, the server says so and ends.
                let free = free_address()?;
                command.args(["--port", &free.port().to_string()]);
                free.into()
            }
        };
        let sync = if sync == "always" { sync } else { "everysec" };
        let mut child = command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"])
            .args(["--appendfsync", sync, "--dir"])
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl-C on a terminal reaches a whole group; the order in which a run ends is ours.
            .process_group(0)
            .spawn()
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => "redis-server is not installed".to_owned(),
                _ => failed(error),
            })?;
        for _ in 0..ASK_MAX {
            if let Some(status) = child.try_wait().map_err(failed)? {
                return Err(format!("redis-server ended: {status}"));
            }
            if answers(&address) {
                return Ok(Redis { address, child });
            }
            #[expect(clippy::disallowed_methods, reason = "the child does the work")]
            std::thread::sleep(ASK_EVERY);
        }
        // It would keep running otherwise; it may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
        Err(format!("redis-server does not answer at {address}"))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn stop(mut self) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), Signal::TERM)
            .map_err(std::io::Error::from)
            .and_then(|()| self.child.wait())
            .map(|_| ())
            .map_err(|error| format!("redis-server: {error}"))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // A benchmark that fails half-way must leave no process running.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn answers(address: &Address) -> bool {
    let mut answer = [0; 5];
    address
        .connect()
        .and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(1)))?;
            stream.write_all(b"PING\r\n")?;
            stream.read_exact(&mut answer)
        })
        .is_ok_and(|()| answer == *b"+PONG")
}
