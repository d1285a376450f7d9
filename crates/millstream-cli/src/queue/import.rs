//! `millstream queue import`: the queues of an old server, from its own files into ours.
//!
//! Our server must not run on the same directory meanwhile. Each queue is durable when it is reported.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use millstream_queue::broker::{Broker, PutOutcome};
use millstream_queue::config::{Config, Sync};
use millstream_queue::import::{Kestrel, OldItem, OldQueue, QueueFiles, Source, Starling, find};
use millstream_queue::protocol::SetKey;
use millstream_queue::storage::JournalStorage;
use millstream_queue::{Moment, NewItem, name};
use serde::Serialize;

use crate::failure::Failure;
use crate::progress::Progress;
use crate::report;

/// Items are at least allowed to be as long as in a server by default.
const ITEM_BYTES_MIN: usize = 1 << 20;

/// The options of `millstream queue import`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The old server must be stopped, and ours must not run on --dir. The old files are only read. Names of queues, and whether ours are
empty, are checked before anything is written.

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
    /// Add to queues that have items already. Without it such a queue is refused, so that nothing is imported twice.
    #[arg(long)]
    append: bool,
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

/// A queue of the old server, to import.
struct Old<'a> {
    name: &'a str,
    files: &'a [PathBuf],
}

/// Check all, import all, and fail in the end if there was damage.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let found = find(&args.folder, args.from)
        .map_err(|error| Failure::failed(format!("{}: {error}", args.folder.display())))?;
    let chosen = chosen(args, &found)?;
    let mut queues = open_empty(args, &chosen)?;
    let mut report = Report { queues: Vec::new() };
    for old in &chosen {
        report.queues.push(import(args, &mut queues, old)?);
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

/// The queues to import, all of them with names that queues can have here.
fn chosen<'a>(args: &Args, found: &'a QueueFiles) -> Result<Vec<Old<'a>>, Failure> {
    let all = args.queue.is_empty();
    let folder = args.folder.display();
    let mut wrong = Vec::new();
    for missing in args
        .queue
        .iter()
        .filter(|queue| !found.queues.contains_key(*queue))
    {
        wrong.push(format!("{folder}: there is no queue \"{missing}\""));
    }
    if all {
        let nameless = found.nameless.iter();
        wrong.extend(nameless.map(|path| format!("{path:?}: the name is not UTF-8")));
    }
    let mut chosen = Vec::new();
    for (name, files) in &found.queues {
        if !all && !args.queue.contains(name) {
            continue;
        }
        match name::check(name.as_bytes()) {
            Ok(name) => chosen.push(Old { name, files }),
            Err(fault) => wrong.push(format!("{:?}: {fault}", args.folder.join(name))),
        }
    }
    if wrong.is_empty() {
        return Ok(chosen);
    }
    let hint = if all {
        "; --queue imports the others"
    } else {
        ""
    };
    Err(nothing(&wrong, hint))
}

/// Our queues. Those that are filled must be empty, unless `--append` is given.
fn open_empty(args: &Args, chosen: &[Old<'_>]) -> Result<Broker<JournalStorage>, Failure> {
    let mut longest = ITEM_BYTES_MIN;
    for old in chosen {
        let (items, _) = read(args.from, old.files)?;
        let lengths = items.into_items().map(|item| item.body.len());
        longest = longest.max(lengths.max().unwrap_or(0));
    }
    let storage = JournalStorage::open(&args.dir, longest)
        .map_err(|error| Failure::failed(format!("{}: {error}", args.dir.display())))?;
    let queues =
        Broker::open(storage, Config::with_sync(Sync::Never), now()).map_err(Failure::failed)?;
    let mut wrong = Vec::new();
    for old in chosen {
        if let Some((name, why)) = queues.closed().find(|(name, _)| *name == old.name) {
            wrong.push(format!("queue \"{name}\" is closed: {why}"));
        }
        let items = queues.items(old.name).unwrap_or(0);
        if items > 0 && !args.append {
            wrong.push(format!("queue \"{}\" has {items} items already", old.name));
        }
    }
    if wrong.is_empty() {
        Ok(queues)
    } else {
        Err(nothing(&wrong, "; --append adds to queues that have items"))
    }
}

/// Nothing has been written.
fn nothing(wrong: &[String], hint: &str) -> Failure {
    Failure::failed(format!("{}; nothing was imported{hint}", wrong.join("; ")))
}

fn import(
    args: &Args,
    queues: &mut Broker<JournalStorage>,
    old: &Old<'_>,
) -> Result<Imported, Failure> {
    let (items, damage) = read(args.from, old.files)?;
    let items: Vec<OldItem> = items.into_items().collect();
    let now = now();
    let key = SetKey {
        name: old.name,
        ..SetKey::default()
    };
    let mut imported = Imported {
        queue: old.name.to_owned(),
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
            PutOutcome::Stored => imported.items += 1,
            PutOutcome::Refused(_) => {
                return Err(Failure::failed(format!(
                    "queue \"{}\" does not take item {}",
                    old.name, imported.items
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
pub(super) fn now() -> Moment {
    let wall = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Moment {
        wall_ms: wall.as_millis() as u64,
        steady_us: 0,
    }
}
