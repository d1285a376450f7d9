//! `millstream queue import`: the queues of an old server, from its own files into ours.
//!
//! Our server must not run on the same folder meanwhile. Each queue is durable when it is told.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use millstream_queue::config::{Config, Sync};
use millstream_queue::import::{Kestrel, OldItem, OldQueue, Source, Starling, find};
use millstream_queue::protocol::SetKey;
use millstream_queue::queues::{Put, Queues};
use millstream_queue::storage::JournalStorage;
use millstream_queue::{Moment, NewItem, name};
use serde::Serialize;

use super::super::journal::progress::Progress;
use super::super::{Failure, report};

/// Items are at least allowed to be as long as in a server by default.
const ITEM_BYTES_MIN: usize = 1 << 20;

/// The options of `millstream queue import`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The old server must be stopped, and ours must not run on --dir. The old files are only read.

Example:
  millstream queue import --from kestrel /var/spool/kestrel --dir queues")]
pub(super) struct Args {
    /// The old server's folder of queues.
    folder: PathBuf,
    /// Whose files they are: starling or kestrel.
    #[arg(long)]
    from: Source,
    /// The folder of our queues.
    #[arg(long, default_value = "queues")]
    dir: PathBuf,
    /// Only these queues.
    #[arg(long, value_name = "QUEUE")]
    queue: Vec<String>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    queues: Vec<Imported>,
}

#[derive(Debug, Serialize)]
struct Imported {
    queue: String,
    items: u64,
    /// Items whose time was over.
    expired: u64,
    /// Where the old files stop making sense; what came before is kept.
    damage: Option<String>,
}

/// Import all, and fail in the end if there was damage.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let found = find(&args.folder, args.from)
        .map_err(|error| Failure::failed(format!("{}: {error}", args.folder.display())))?;
    let wanted = |queue: &String| args.queue.is_empty() || args.queue.contains(queue);
    if let Some(missing) = args.queue.iter().find(|queue| !found.contains_key(*queue)) {
        return Err(Failure::failed(format!(
            "{}: there is no queue \"{missing}\"",
            args.folder.display()
        )));
    }
    let mut report = Report { queues: Vec::new() };
    for (queue, files) in found.iter().filter(|(queue, _)| wanted(queue)) {
        report.queues.push(import(args, queue, files)?);
    }
    let line = |q: &Imported| {
        let expired = if q.expired > 0 {
            format!(", {} had expired", q.expired)
        } else {
            String::new()
        };
        let damage = q
            .damage
            .as_ref()
            .map_or_else(String::new, |damage| format!("; {damage}"));
        format!("{}: {} items{expired}{damage}", q.queue, q.items)
    };
    let text: Vec<String> = report.queues.iter().map(line).collect();
    report::print(&report, &text.join("\n"), args.json)?;
    match report
        .queues
        .iter()
        .filter(|queue| queue.damage.is_some())
        .count()
    {
        0 => Ok(()),
        damaged => Err(Failure::failed(format!(
            "{damaged} of the old queues are damaged; what came before the damage is kept"
        ))),
    }
}

fn import(args: &Args, queue: &str, files: &[PathBuf]) -> Result<Imported, Failure> {
    name::check(queue.as_bytes())
        .map_err(|fault| Failure::failed(format!("\"{queue}\": {fault}")))?;
    let (old, damage) = read(args.from, files)?;
    let items: Vec<OldItem> = old.into_items().collect();
    let longest = items
        .iter()
        .map(|item| item.body.len())
        .max()
        .unwrap_or(0)
        .max(ITEM_BYTES_MIN);
    let storage = JournalStorage::open(&args.dir, longest);
    let storage =
        storage.map_err(|error| Failure::failed(format!("{}: {error}", args.dir.display())))?;
    let now = now();
    let mut queues =
        Queues::open(storage, Config::with_sync(Sync::Never), now).map_err(Failure::failed)?;
    let key = SetKey {
        name: queue,
        ..SetKey::default()
    };
    let mut imported = Imported {
        queue: queue.to_owned(),
        items: 0,
        expired: 0,
        damage,
    };
    let mut progress = Progress::new(items.len() as u64, "items");
    for item in &items {
        progress.step();
        if item.expiry_ms != 0 && item.expiry_ms <= now.wall_ms {
            imported.expired += 1;
            continue;
        }
        let new = NewItem {
            expiry_ms: item.expiry_ms,
            body: &item.body,
            ..NewItem::default()
        };
        match queues.put(&key, &new, now).map_err(Failure::failed)? {
            Put::Stored => imported.items += 1,
            Put::Refused(_) => {
                return Err(Failure::failed(format!(
                    "queue \"{queue}\" does not take item {}",
                    imported.items
                )));
            }
        }
    }
    queues.sync_all().map_err(Failure::failed)?;
    Ok(imported)
}

/// What the files of one queue say, up to the first damage.
fn read(from: Source, files: &[PathBuf]) -> Result<(OldQueue, Option<String>), Failure> {
    let mut queue = OldQueue::default();
    for path in files {
        let file = open(path)?;
        let outcome = match from {
            Source::Starling => Starling.replay(file, &mut queue),
            Source::Kestrel => Kestrel.replay(file, &mut queue),
        };
        if let Err(damage) = outcome {
            return Ok((queue, Some(format!("{}: {damage}", path.display()))));
        }
    }
    Ok((queue, None))
}

fn open(path: &Path) -> Result<BufReader<File>, Failure> {
    match File::open(path) {
        Ok(file) => Ok(BufReader::with_capacity(1 << 18, file)),
        Err(error) => Err(Failure::failed(format!("{}: {error}", path.display()))),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an import happens at one moment, which is this one"
)]
fn now() -> Moment {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Moment {
        wall_ms: wall.as_millis() as u64,
        steady_us: 0,
    }
}
