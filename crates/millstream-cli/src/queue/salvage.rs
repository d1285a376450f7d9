//! `millstream queue salvage`: what can be read of a damaged queue, into a new one.

use std::io::ErrorKind;
use std::path::PathBuf;

use millstream_queue::broker::{Broker, PutOutcome};
use millstream_queue::config::{Config, Sync};
use millstream_queue::protocol::SetKey;
use millstream_queue::salvage::{Salvage, Salvaged};
use millstream_queue::storage::JournalStorage;
use millstream_queue::{Moment, NewItem};
use serde::Serialize;

use super::client::{Client, ServerArgs, queue_name};
use super::import::now;
use crate::failure::Failure;
use crate::report;

/// Items are at least allowed to be as long as in a server by default.
const ITEM_BYTES_MIN: usize = 1 << 20;

/// The options of `millstream queue salvage`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The queue may be damaged so that it cannot be opened at all: a header, a missing file. All items whose records are sound go to a new queue, in their order, with flags, expiry and delay; without --live also where they come
from and since when they failed. The damaged queue is only read, and stays
until it is deleted. What a lost record said is unknown: an item may be missing, and one that had been taken may be there again.

Examples:
  millstream queue salvage jobs --dir queues                the server is stopped
  millstream queue salvage jobs --dir queues --live         the server runs, and gets the items
  millstream queue delete jobs")]
pub(super) struct Args {
    /// The damaged queue.
    #[arg(value_parser = queue_name)]
    queue: String,
    /// The folder of the queues.
    #[arg(long, default_value = "queues")]
    dir: PathBuf,
    /// The queue that gets the items, which must be empty; by default QUEUE.salvaged, with - for +.
    #[arg(long, value_name = "QUEUE", value_parser = queue_name)]
    into: Option<String>,
    /// Send the items to the server, which has the folder open.
    #[arg(long)]
    live: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    queue: String,
    into: String,
    items: u64,
    /// Items whose time was over.
    expired: u64,
    lost: Vec<Lost>,
}

#[derive(Debug, Serialize)]
struct Lost {
    /// Not there where no record is known to be lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_record: Option<u64>,
    /// Not there where it is not known which one is the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_record: Option<u64>,
    why: String,
}

/// Read all that can be read.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let into = match &args.into {
        Some(into) => into.clone(),
        None => queue_name(&format!("{}.salvaged", args.queue.replace('+', "-")))
            .map_err(Failure::usage)?,
    };
    if into == args.queue {
        return Err(Failure::usage("--into names the damaged queue itself"));
    }
    let mut salvage = Salvage::read(args.dir.join(&args.queue)).map_err(Failure::failed)?;
    let mut report = Report {
        queue: args.queue.clone(),
        into,
        items: 0,
        expired: 0,
        lost: Vec::new(),
    };
    if args.live {
        send(args, &mut salvage, &mut report)?;
    } else {
        store(args, &mut salvage, &mut report)?;
    }
    let lost = salvage.lost().iter().map(|lost| Lost {
        first_record: lost.records.as_ref().map(|records| records.start),
        last_record: lost
            .records
            .as_ref()
            .filter(|records| records.end != u64::MAX)
            .map(|records| records.end.saturating_sub(1)),
        why: lost.why.clone(),
    });
    report.lost = lost.collect();
    let mut text = format!(
        "{}: {} items into {}",
        report.queue, report.items, report.into
    );
    if report.expired > 0 {
        text += &format!(", {} had expired", report.expired);
    }
    for lost in salvage.lost() {
        text += &format!("\nlost: {lost}");
    }
    report::print(&report, &text, args.json)
}

/// The items that have not expired.
fn next(salvage: &mut Salvage, report: &mut Report, now: Moment) -> Option<Salvaged> {
    loop {
        let found = salvage.next_item()?;
        if found.item.expiry_ms == 0 || found.item.expiry_ms > now.wall_ms {
            report.items += 1;
            return Some(found);
        }
        report.expired += 1;
    }
}

/// Into the folder, which no server has open.
fn store(args: &Args, salvage: &mut Salvage, report: &mut Report) -> Result<(), Failure> {
    let bytes_max = salvage.item_bytes_max().max(ITEM_BYTES_MIN);
    let storage = JournalStorage::open(&args.dir, bytes_max).map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::WouldBlock => "; with --live the items go to that server",
            _ => "",
        };
        Failure::failed(format!("{}: {error}{hint}", args.dir.display()))
    })?;
    let now = now();
    let mut queues =
        Broker::open(storage, Config::with_sync(Sync::Never), now).map_err(Failure::failed)?;
    if queues.items(&report.into).is_some_and(|items| items > 0) {
        return Err(not_empty(&report.into));
    }
    let into = report.into.clone();
    let key = SetKey {
        name: &into,
        ..SetKey::default()
    };
    while let Some(found) = next(salvage, report, now) {
        let new = NewItem {
            flags: found.item.flags,
            expiry_ms: found.item.expiry_ms,
            due_ms: found.due_ms,
            history: found.item.history.as_ref(),
            body: &found.item.body,
            ..NewItem::default()
        };
        match queues.put(&key, &new, now).map_err(Failure::failed)? {
            PutOutcome::Stored => {}
            PutOutcome::Refused(_) => {
                return Err(Failure::failed(format!(
                    "queue \"{into}\" does not take item {}",
                    found.item.id
                )));
            }
        }
    }
    queues.sync_all().map_err(Failure::failed)
}

/// To the server.
fn send(args: &Args, salvage: &mut Salvage, report: &mut Report) -> Result<(), Failure> {
    let mut client = Client::connect(&args.server)?;
    let stats = client.stats(&format!("stats {}\r\n", report.into))?;
    if stats
        .iter()
        .any(|(name, value)| name == "items" && value != "0")
    {
        return Err(not_empty(&report.into));
    }
    let now = now();
    while let Some(found) = next(salvage, report, now) {
        let key = match found.due_ms.saturating_sub(now.wall_ms) {
            0 => report.into.clone(),
            delay_ms => format!("{}/delay={delay_ms}", report.into),
        };
        let expiry_s = found.item.expiry_ms.div_ceil(1_000) as i64;
        let flags = u64::from(found.item.flags);
        client.set(&key, flags, expiry_s, &found.item.body)?;
    }
    Ok(())
}

fn not_empty(queue: &str) -> Failure {
    Failure::failed(format!(
        "queue \"{queue}\" has items already: name an empty one with --into"
    ))
}
