//! `millstream queue put`: items into a queue.

use std::io::BufRead;

use super::super::Failure;
use super::client::{Client, ServerArgs, queue_name};

/// The options of `millstream queue put`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  millstream queue put jobs 'resize 17.png'\n  millstream queue put jobs < jobs.txt"
)]
pub(super) struct Args {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    /// The item; without, each line of standard input is one.
    item: Option<String>,
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
        return put(&mut client, args, item.as_bytes());
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
        put(&mut client, args, item).map_err(|failure| match failure {
            Failure::Failed(why) => Failure::failed(format!("line {number}: {why}")),
            other => other,
        })?;
    }
    Ok(())
}

fn put(client: &mut Client, args: &Args, item: &[u8]) -> Result<(), Failure> {
    let mut request =
        format!("set {} 0 {} {}\r\n", args.queue, args.expire, item.len()).into_bytes();
    request.extend_from_slice(item);
    request.extend_from_slice(b"\r\n");
    client.send(&request)?;
    match client.line()?.as_str() {
        "STORED" => Ok(()),
        "NOT_STORED" => Err(Failure::failed(format!(
            "queue \"{}\" does not take the item: it is full, or the item too large",
            args.queue
        ))),
        other => Err(Failure::failed(other)),
    }
}
