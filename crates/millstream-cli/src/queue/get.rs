//! `millstream queue get`, `drain` and `peek`: items to standard output, a line each.
//!
//! An item is confirmed when it has been written, so that none is lost when the reader of the output goes away.

use std::io::Write;
use std::time::Duration;

use super::client::{Client, Item, ServerArgs, queue_name};
use super::line::Line;
use crate::failure::Failure;
use crate::moment::parse_duration;

/// Asks for all that the queue knows about an item.
const DETAILS: &str = "/details";

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
    /// A line of JSON for each item: text or base64, flags, expiry, how often and since when it failed, where it comes
    /// from. `put --json` takes bytes, flags and expiry from it.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue drain`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Without --json an item is printed as it is and ends with a line feed: items that contain line feeds cannot be distinguished.

Examples:
  millstream queue drain jobs > jobs.txt
  millstream queue drain jobs --json > jobs.jsonl
  millstream queue put jobs --json < jobs.jsonl")]
pub(super) struct DrainArgs {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    /// A line of JSON for each item: text or base64, flags, expiry, how often and since when it failed, where it comes
    /// from. `put --json` takes bytes, flags and expiry from it.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue peek`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  millstream queue peek jobs\n  millstream queue peek jobs --json"
)]
pub(super) struct PeekArgs {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    /// A line of JSON: text or base64, flags, id, when it was added, expiry, how often and since when it failed; of a
    /// dead letter also the queue that it left, and why.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Take some.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let taken = take(
        &args.server,
        &args.queue,
        (args.count, args.wait),
        args.json,
    )?;
    if taken == 0 && args.count > 0 {
        Err(empty(&args.queue))
    } else {
        Ok(())
    }
}

/// Take all.
pub(super) fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let all = (u64::MAX, Duration::ZERO);
    take(&args.server, &args.queue, all, args.json).map(|_| ())
}

/// Look.
pub(super) fn peek(args: &PeekArgs) -> Result<(), Failure> {
    let details = if args.json { DETAILS } else { "" };
    let item = Client::connect(&args.server)?.get(&format!("{}/peek{details}", args.queue))?;
    print(&item.ok_or_else(|| empty(&args.queue))?, args.json)
}

fn take(
    server: &ServerArgs,
    queue: &str,
    (count, wait): (u64, Duration),
    json: bool,
) -> Result<u64, Failure> {
    let mut client = Client::connect(server)?;
    let wait = if wait.is_zero() {
        String::new()
    } else {
        format!("/t={}", wait.as_millis())
    };
    let details = if json { DETAILS } else { "" };
    for taken in 0..count {
        // Confirms the item before and opens the next, in one request.
        let Some(item) = client.get(&format!("{queue}/close/open{wait}{details}"))? else {
            return Ok(taken);
        };
        print(&item, json)?;
    }
    client.get(&format!("{queue}/close"))?;
    Ok(count)
}

fn print(item: &Item, json: bool) -> Result<(), Failure> {
    let line = if json {
        serde_json::to_vec(&Line::of(item)).map_err(Failure::failed)?
    } else {
        item.body.clone()
    };
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(&line)
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
