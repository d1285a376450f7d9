//! `millstream state promote`: make the copy of a state the state, after its machine was lost.

use std::path::{Path, PathBuf};

use millstream_flow::checkpoint::{process_dir, processes_in};
use millstream_flow::error::Cause;
use millstream_journal::{Error, Journal, Options, context};
use millstream_replication::promote;
use serde::Serialize;

use crate::outcome::Outcome;
use crate::report;

/// The options of `millstream state promote`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Stop the followers of the copy first. The original is superseded: it cannot follow, or be followed by, this state, and a
process of a flow of several that starts from it is refused as an older copy. Do not start a flow of one process from both.

Example:
  millstream state promote copy
  millstream run flow.py --state copy")]
pub(super) struct Args {
    /// The directory of the copy, as `state follow` has it.
    dir: PathBuf,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
}

/// What was promoted.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    journals: usize,
    term: u64,
}

/// Promote all journals of the state, in one new term.
pub(super) fn run(args: &Args) -> Outcome {
    let dir = &args.dir;
    let failed = |cause: Cause| context(format_args!("state in {}", dir.display()), cause);
    let journals = journals(dir).map_err(|error| failed(error.into()))?;
    if journals.is_empty() {
        return Err(failed("it is not the state directory of a flow".into()).into());
    }
    let mut is_copy = false;
    for journal in &journals {
        is_copy |= Journal::open(journal, Options::read_only())?
            .leadership()?
            .is_copy;
    }
    if !is_copy {
        return Err(failed("it is no copy, or was promoted already".into()).into());
    }
    let promoted = promote(&journals)?;
    let report = Report {
        path: dir.clone(),
        journals: promoted.len(),
        term: promoted.first().map_or(0, |one| one.term),
    };
    let text = format!(
        "{}: {} journals are no copies any more, in term {}; a flow can be started from them",
        dir.display(),
        report.journals,
        report.term
    );
    Ok(report::print(&report, &text, args.json)?)
}

/// The journals of a state, of one process or of those that are there.
fn journals(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut parts: Vec<PathBuf> = processes_in(dir)?
        .into_iter()
        .map(|process| process_dir(dir, process))
        .collect();
    if dir.join("epochs").is_dir() {
        parts.push(dir.to_owned());
    }
    let mut found = Vec::new();
    for part in parts {
        for area in ["inputs", "http", "outputs"] {
            let area = part.join(area);
            if !area.is_dir() {
                continue;
            }
            for entry in std::fs::read_dir(area)? {
                let path = entry?.path();
                let opened = Journal::open(&path, Options::read_only());
                if !matches!(
                    opened,
                    Err(Error::NotFound { .. } | Error::NotAJournal { .. })
                ) {
                    found.push(path);
                }
            }
        }
        found.push(part.join("epochs"));
    }
    Ok(found)
}
