//! `millstream queue get`, `drain` and `peek`: items to standard output, a line each.
//!
//! An item is confirmed when it has been written, so that none is lost when the reader of the output goes away.

use std::io::Write;
use std::time::Duration;

use super::super::Failure;
use super::super::journal::moment::parse_duration;
use super::client::{Client, ServerArgs, queue_name};

/// The options of `millstream queue get`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream queue get jobs --count 10 --wait 5s")]
pub(super) struct Args {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    /// At most so many items.
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,
    /// Wait so long for each item.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "0s")]
    wait: Duration,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue drain`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream queue drain jobs > jobs.txt")]
pub(super) struct DrainArgs {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue peek`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream queue peek jobs")]
pub(super) struct PeekArgs {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// Take some.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let taken = take(&args.server, &args.queue, args.count, args.wait)?;
    if taken == 0 && args.count > 0 {
        Err(empty(&args.queue))
    } else {
        Ok(())
    }
}

/// Take all.
pub(super) fn drain(args: &DrainArgs) -> Result<(), Failure> {
    take(&args.server, &args.queue, u64::MAX, Duration::ZERO).map(|_| ())
}

/// Look.
pub(super) fn peek(args: &PeekArgs) -> Result<(), Failure> {
    let item = Client::connect(&args.server)?.get(&format!("{}/peek", args.queue))?;
    print(&item.ok_or_else(|| empty(&args.queue))?.body)
}

fn take(server: &ServerArgs, queue: &str, count: u64, wait: Duration) -> Result<u64, Failure> {
    let mut client = Client::connect(server)?;
    let wait = if wait.is_zero() {
        String::new()
    } else {
        format!("/t={}", wait.as_millis())
    };
    for taken in 0..count {
        // Confirms the item before and opens the next, in one request.
        let Some(item) = client.get(&format!("{queue}/close/open{wait}"))? else {
            return Ok(taken);
        };
        print(&item.body)?;
    }
    client.get(&format!("{queue}/close"))?;
    Ok(count)
}

fn print(body: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(body)
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    written.map_err(|error| {
        Failure::failed(format!(
            "cannot write the item, which stays in its queue: {error}"
        ))
    })
}

fn empty(queue: &str) -> Failure {
    Failure::failed(format!("queue \"{queue}\" has no item"))
}
