//! `millstream queue delete`, `flush`, `confirm`, `status`, `reload` and `redrive`: one request to the server, or a
//! few.

use super::client::{Client, ServerArgs, queue_name};
use crate::failure::Failure;
use crate::report;

/// The options of `millstream queue delete`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A damaged queue is deleted too, with all that could still be salvaged from it.

Example:
  millstream queue delete jobs")]
pub(super) struct DeleteArgs {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue flush`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Items that connections have open stay with them.

Example:
  millstream queue flush jobs")]
pub(super) struct FlushArgs {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue confirm`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The items are opened and confirmed together: all of them leave the queue, or none. What other connections have open is theirs, and only
they can confirm it.

Example: the item at the head cannot be processed by anybody
  millstream queue peek jobs
  millstream queue confirm jobs")]
pub(super) struct ConfirmArgs {
    /// The queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    /// So many items.
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue status`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
UP: everything. READONLY: sets are refused. QUIESCENT: gets too; consumers can still confirm what they have. It holds until the next start.

Examples:
  millstream queue status
  millstream queue status QUIESCENT")]
pub(super) struct StatusArgs {
    /// UP, READONLY or QUIESCENT; without, the status is printed.
    #[arg(ignore_case = true, value_parser = ["UP", "READONLY", "QUIESCENT"])]
    to: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue reload`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The server reads its configuration, passwords and certificates again, as at SIGHUP. Settings that cannot change before the next start are
named, with exit code 1.

Example:
  millstream queue reload")]
pub(super) struct ReloadArgs {
    #[command(flatten)]
    server: ServerArgs,
}

/// The options of `millstream queue redrive`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Items keep their bytes and flags, and count as never delivered. They expire when they were to expire before they failed, unless that is over;
then they do not expire. They go to the end of the other queue, those that are in the first queue now.

Example:
  millstream queue redrive bad-orders orders")]
pub(super) struct RedriveArgs {
    /// The queue that has them.
    #[arg(value_parser = queue_name)]
    from: String,
    /// The queue that gets them.
    #[arg(value_parser = queue_name)]
    to: String,
    /// At most so many items.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Remove a queue.
pub(super) fn delete(args: &DeleteArgs) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    match client.ask(&format!("delete {}", args.queue))?.as_str() {
        "DELETED" => Ok(()),
        "NOT_FOUND" => Err(missing(&args.queue)),
        other => Err(client.lost(&other)),
    }
}

/// Remove the items of a queue.
pub(super) fn flush(args: &FlushArgs) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    items(&mut client, &args.queue)?;
    client.demand(&format!("flush {}", args.queue), "END")
}

/// Take items away for good.
pub(super) fn confirm(args: &ConfirmArgs) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    let queue = &args.queue;
    let count = args.count;
    let too_few = |found: u64, why: &str| {
        Failure::failed(format!(
            "queue \"{queue}\": {why} {found} items, not {count}: none was confirmed"
        ))
    };
    // Looked at first: what was opened in vain would count as delivered.
    let waiting = items(&mut client, queue)?;
    if waiting < count {
        return Err(too_few(waiting, "it has"));
    }
    client.send(format!("monitor {queue} 0 {count}\r\n").as_bytes())?;
    let mut opened = 0;
    while client.item()?.is_some() {
        client.line()?;
        opened += 1;
    }
    if opened < count {
        return Err(too_few(opened, "one connection can open"));
    }
    client.demand(&format!("confirm {queue} {count}"), "END")
}

/// Tell the status of a server, or change it.
pub(super) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    match &args.to {
        Some(to) => client.demand(&format!("status {to}"), "END"),
        None => {
            let status = client.ask("status")?;
            report::print(&status, &status, false)
        }
    }
}

/// Let a server read its files again.
pub(super) fn reload(args: &ReloadArgs) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    match client.ask("reload")?.as_str() {
        // As memcached would say it, and as Kestrel did.
        "OK" | "Reloaded config." => Ok(()),
        other => {
            let why = other.strip_prefix("SERVER_ERROR ").unwrap_or(other);
            Err(client.lost(&why))
        }
    }
}

/// Move items from one queue to another.
pub(super) fn redrive(args: &RedriveArgs) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    // Items that fail again meanwhile are not moved twice.
    let there = items(&mut client, &args.from)?;
    let mut left = args.count.unwrap_or(u64::MAX).min(there);
    let mut moved = 0;
    while left > 0 {
        let answer = client.ask(&format!("redrive {} {} {left}", args.from, args.to))?;
        let Ok(some) = answer.parse::<u64>() else {
            let why = answer.strip_prefix("SERVER_ERROR ").unwrap_or(&answer);
            return Err(client.lost(&format!("after {moved} items: {why}")));
        };
        if some == 0 {
            break;
        }
        (moved, left) = (moved + some, left.saturating_sub(some));
    }
    let text = format!("{moved} items from {} to {}", args.from, args.to);
    report::print(&serde_json::json!({ "moved": moved }), &text, args.json)
}

/// How many items a queue has.
fn items(client: &mut Client, queue: &str) -> Result<u64, Failure> {
    let stats = client.stats(&format!("stats {queue}\r\n"))?;
    let items = stats.iter().find(|(name, _)| name == "items");
    items
        .and_then(|(_, value)| value.parse().ok())
        .ok_or_else(|| missing(queue))
}

fn missing(queue: &str) -> Failure {
    Failure::failed(format!("there is no queue \"{queue}\""))
}
