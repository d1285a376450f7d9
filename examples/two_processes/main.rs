//! One flow on two processes of a machine: numbers are counted by their last digit, and process 0 writes one file.
//!
//! Run it in two shells, in one empty directory: `two_processes 0` and `two_processes 1`. They meet over the Unix
//! sockets `0.sock` and `1.sock`, and keep their state in `state`: kill one, and start both again. From a clone:
//!
//! ```sh
//! cargo build --release --example two_processes --features cluster
//! ```

use std::process::ExitCode;
use std::sync::Arc;

use millstream::cluster::{Auth, Processes, Settings};
use millstream::flow::generator;
use millstream::prelude::*;

/// The exit code that asks a supervisor to start the process again.
const START_AGAIN: u8 = 75;

fn counts() -> Flow {
    let flow = Flow::new("digits");
    // Each partition has the numbers below 1000, and is read by a worker of one of the processes.
    let numbers = generator::from_fn(|n| (n < 1000).then_some(n)).partitions(4);
    flow.source("numbers", numbers)
        .key_by(|n| n % 10)
        .count(Emit::End)
        .items()
        .map(|(digit, count)| format!("{digit} {count}"))
        .sink_gathered(
            "out",
            codec::encode(files::write("digits.txt"), codec::display),
        );
    flow
}

fn main() -> Result<ExitCode, Cause> {
    let process = std::env::args()
        .nth(1)
        .ok_or("usage: two_processes 0, and in another shell two_processes 1")?
        .parse()?;
    let hosts = vec!["./0.sock".parse()?, "./1.sock".parse()?];
    // On several machines: names with ports, and a secret or certificates.
    let processes = Processes::new(Settings::new(process, hosts, Auth::None))?;
    let options = Options {
        cluster: Some(Arc::new(processes)),
        recovery: Some(Recovery::new("state")),
        signals: true,
        ..Options::default()
    };
    match counts().run(options) {
        Err(error) if error.is_lost() => {
            eprintln!("{error}");
            Ok(ExitCode::from(START_AGAIN))
        }
        ended => Ok(ended.map(|_report| ExitCode::SUCCESS)?),
    }
}
