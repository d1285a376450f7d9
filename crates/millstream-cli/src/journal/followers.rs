//! `millstream journal followers`: which followers count, and an operator's decision about one of them.

use std::path::{Path, PathBuf};

use millstream_journal::Error;
use millstream_replication::{Follower, Followers, ReplicationError, Standing, journals_of};
use serde::Serialize;

use super::open::open_to_read;
use crate::outcome::Outcome;
use crate::report;

/// How deep the journals of a state directory are: PROCESS/inputs/NAME.
const DEPTH: u32 = 3;

/// The options of `millstream journal followers`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
--wait-follower and wait_follower wait for followers that count. The first follower of a journal counts at once. A later one
counts once all that count are connected together with it; the same holds for a copy that is begun anew under a known name.
While one of them is away it may be the copy that was promoted, and then this leader must not acknowledge anything.

Before --admit, make sure that no follower that is away was promoted, and none will be without stopping this one first.
--forget is for followers that will not return: their position no longer retains records.

Example:
  millstream journal followers orders
  millstream journal followers orders --admit backup")]
pub(super) struct Args {
    /// Directories of journals, or of sets of journals. DIR.schedule and DIR.snapshots go with DIR.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Let this follower count, in each of these journals that it follows.
    #[arg(long, value_name = "NAME")]
    admit: Option<String>,
    /// Remove this follower, which must not be connected, from each of these journals.
    #[arg(long, value_name = "NAME", conflicts_with = "admit")]
    forget: Option<String>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// A follower of a journal.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    name: String,
    /// The sequence number of the record that it needs next.
    position: u64,
    /// Records that it has not acknowledged.
    behind: u64,
    counts: bool,
    /// Why it does not count.
    why: Option<String>,
    /// Null when this process may not know.
    connected: Option<bool>,
}

/// Decide, and tell.
pub(super) fn run(args: &Args) -> Outcome {
    let mut paths = Vec::new();
    for dir in &args.dirs {
        let before = paths.len();
        find(dir, DEPTH, &mut paths)?;
        if paths.len() == before {
            let path = dir.clone();
            return Err(Error::NotFound { path }.into());
        }
    }
    if let Some(name) = &args.admit {
        each(&paths, |followers| followers.admit(name))?;
    }
    if let Some(name) = &args.forget {
        each(&paths, |followers| followers.forget(name))?;
    }
    let mut reports = Vec::new();
    for path in &paths {
        let journal = open_to_read(path)?;
        let next = journal.next()?;
        let all = Followers::of(&journal).list()?;
        reports.extend(all.iter().map(|one| Report::of(path, next, one, &all)));
    }
    let lines: Vec<_> = reports.iter().map(Report::text).collect();
    let text = match lines.as_slice() {
        [] => "no followers".to_owned(),
        lines => lines.join("\n"),
    };
    Ok(report::print(&reports, &text, args.json)?)
}

/// The journals that a directory stands for; those of a state directory are in directories of their own.
fn find(dir: &Path, depth: u32, paths: &mut Vec<PathBuf>) -> Outcome {
    match journals_of(dir) {
        Err(ReplicationError::Journal(Error::NotFound { .. })) => {}
        found => paths.extend(found?),
    }
    if paths.iter().any(|path| path == dir) || depth == 0 {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && !paths.contains(&path) {
            find(&path, depth - 1, paths)?;
        }
    }
    Ok(())
}

/// Act in each journal that has the follower; one of them must.
fn each(paths: &[PathBuf], act: impl Fn(&Followers) -> Result<(), ReplicationError>) -> Outcome {
    let mut absent = None;
    let mut is_done = false;
    for path in paths {
        match act(&Followers::of(&open_to_read(path)?)) {
            Err(error @ ReplicationError::NoFollower { .. }) => drop(absent.get_or_insert(error)),
            acted => {
                acted?;
                is_done = true;
            }
        }
    }
    match absent {
        Some(error) if !is_done => Err(error.into()),
        _ => Ok(()),
    }
}

impl Report {
    fn of(path: &Path, next: u64, follower: &Follower, all: &[Follower]) -> Self {
        Report {
            path: path.to_owned(),
            name: follower.name.clone(),
            position: follower.position,
            behind: next.saturating_sub(follower.position),
            counts: follower.standing == Standing::Counted,
            why: why(follower, all),
            connected: follower.is_connected,
        }
    }

    fn text(&self) -> String {
        let connected = match self.connected {
            Some(true) => "connected",
            Some(false) => "not connected",
            None => "connected or not, which this user may not know",
        };
        let counts = match &self.why {
            None => "counts".to_owned(),
            Some(why) => format!("does not count: {why}"),
        };
        let path = self.path.display();
        let name = &self.name;
        let position = self.position;
        let behind = self.behind;
        format!("{path}: {name} at {position}, {behind} behind, {connected}, {counts}")
    }
}

/// Why a follower does not count.
fn why(follower: &Follower, all: &[Follower]) -> Option<String> {
    match follower.standing {
        Standing::Counted => None,
        Standing::OtherCopy => Some(format!(
            "its copy is another one than the copy that was admitted as {}",
            follower.name
        )),
        _ => {
            let others = all.iter().filter(|other| other.standing != Standing::New);
            let others: Vec<_> = others.map(|other| other.name.as_str()).collect();
            Some(match others.as_slice() {
                [] => "it is new, and counts once it is connected".to_owned(),
                others => format!(
                    "it is new, and counts once it is connected together with the copies that were admitted as {}",
                    others.join(", ")
                ),
            })
        }
    }
}
