//! `millstream queue put`: items into a queue.

use std::io::BufRead;

use super::client::{Client, ServerArgs, queue_name};
use super::line::Line;
use crate::failure::Failure;

/// The options of `millstream queue put`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  millstream queue put jobs 'resize 17.png'\n  millstream queue put jobs < jobs.txt\n  millstream queue put jobs --json < jobs.jsonl"
)]
pub(super) struct Args {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    /// The item; without, each line of standard input is one.
    item: Option<String>,
    /// Each line of standard input is an item as `drain --json` prints it: any bytes, with flags and expiry.
    #[arg(long, conflicts_with_all = ["item", "expire"])]
    json: bool,
    /// The item expires after so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=2_592_000))]
    expire: u32,
    #[command(flatten)]
    server: ServerArgs,
}

/// Put them, and wait until each is stored.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    if let Some(item) = &args.item {
        return client.set(&args.queue, 0, args.expire.into(), item.as_bytes());
    }
    let mut input = std::io::stdin().lock();
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|error| Failure::failed(format!("cannot read standard input: {error}")))?
            == 0
        {
            break;
        }
        let item = line.strip_suffix(b"\n").unwrap_or(&line);
        if args.json && item.trim_ascii().is_empty() {
            continue;
        }
        let put = if args.json {
            put_line(&mut client, &args.queue, item)
        } else {
            client.set(&args.queue, 0, args.expire.into(), item)
        };
        put.map_err(|failure| match failure {
            Failure::Failed(why) => Failure::failed(format!("line {number}: {why}")),
            other => other,
        })?;
    }
    Ok(())
}

/// Put what a line of JSON says.
fn put_line(client: &mut Client, queue: &str, line: &[u8]) -> Result<(), Failure> {
    let line = Line::parse(line).map_err(Failure::failed)?;
    let body = line.body().map_err(Failure::failed)?;
    client.set(queue, line.flags.into(), line.expiry_s(), &body)
}
