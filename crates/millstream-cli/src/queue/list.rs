//! `millstream queue list`: the queues of a server, a line each.

use std::collections::BTreeMap;

use serde::Serialize;

use super::client::{Client, ServerArgs};
use crate::failure::Failure;
use crate::report;

/// The options of `millstream queue list`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream queue list --json")]
pub(super) struct Args {
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Default, Serialize)]
struct Queue {
    items: u64,
    bytes: u64,
    /// Items that connections have and have not confirmed.
    open: u64,
    /// Connections that wait for an item.
    waiters: u64,
    /// The age of the oldest item that was not taken.
    oldest_age_ms: u64,
    /// How long ago the oldest item was added that a connection has open.
    oldest_open_age_ms: u64,
    /// How long the item that was served last had waited.
    age_ms: u64,
    /// Whether it cannot be used: `stats` says why.
    closed: bool,
}

/// Tell.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    client.send(b"dump_stats\r\n")?;
    let mut queues: BTreeMap<String, Queue> = BTreeMap::new();
    let mut name = String::new();
    loop {
        let line = client.line()?;
        if line == "END" {
            break;
        }
        if let Some(begun) = line
            .strip_prefix("queue '")
            .and_then(|rest| rest.strip_suffix("' {"))
        {
            name = begun.to_owned();
            queues.insert(name.clone(), Queue::default());
        } else if let (Some((key, value)), Some(queue)) =
            (line.trim().split_once('='), queues.get_mut(&name))
        {
            queue.note(key, value.parse().unwrap_or(0));
        } else if line != "}" {
            return Err(Failure::failed(line));
        }
    }
    for name in closed(&mut client)? {
        queues.entry(name).or_default().closed = true;
    }
    let width = queues.keys().map(String::len).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$} {:>12} {:>14} {:>8} {:>8} {:>10}",
        "queue", "items", "bytes", "open", "waiters", "oldest ms"
    );
    for (name, q) in &queues {
        if q.closed {
            text +=
                &format!("\n{name:width$} is closed: \"millstream queue stats {name}\" says why");
            continue;
        }
        text += &format!(
            "\n{name:width$} {:>12} {:>14} {:>8} {:>8} {:>10}",
            q.items, q.bytes, q.open, q.waiters, q.oldest_age_ms
        );
    }
    report::print(&queues, &text, args.json)
}

/// The queues that cannot be used, which have no statistics.
fn closed(client: &mut Client) -> Result<Vec<String>, Failure> {
    client.send(b"stats\r\n")?;
    let mut closed = Vec::new();
    loop {
        let line = client.line()?;
        if line == "END" {
            return Ok(closed);
        }
        let name = line.strip_prefix("STAT queue_");
        closed.extend(name.and_then(|rest| Some(rest.strip_suffix("_closed 1")?.to_owned())));
    }
}

impl Queue {
    fn note(&mut self, key: &str, value: u64) {
        match key {
            "items" => self.items = value,
            "bytes" => self.bytes = value,
            "open_transactions" => self.open = value,
            "waiters" => self.waiters = value,
            "age" => self.age_ms = value,
            "oldest_age" => self.oldest_age_ms = value,
            "oldest_open_age" => self.oldest_open_age_ms = value,
            _ => {}
        }
    }
}
