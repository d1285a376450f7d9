//! `millstream queue promote` and `rejoin`: a copy becomes the queues after their machine was lost, and what that has
//! becomes a copy.

use std::path::{Path, PathBuf};

use millstream_flow::error::Cause;
use millstream_journal::context;
use millstream_queue::pair::Group;
use millstream_queue::replica::{changes_of, complete, rebuild_from_changes};
use millstream_replication::{RejoinOptions, promote as promote_journals};
use serde::Serialize;
use tracing::level_filters::LevelFilter;

use super::group::{self, GroupArgs};
use crate::journal::leader::{self, Trust};
use crate::journal::rejoin::rejoin as rejoin_journals;
use crate::log;
use crate::outcome::Outcome;
use crate::report;
use crate::stop::Stop;

/// The options of `millstream queue promote`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Stop the follower of the copy first. The old server answers nothing any more once it learns of the new term: from the follower that
was promoted, or from `queue serve --tell`. Without --commit-on-replica it may answer until then, and what it answered last may be
missing here.

Example:
  millstream queue promote queues
  millstream queue serve --dir queues --replica 0.0.0.0:7760 --secret-file secret --tell first.example:7760")]
pub(super) struct Args {
    /// The directory of the copy, as `queue follow` has it.
    dir: PathBuf,
    #[command(flatten)]
    group: GroupArgs,
    /// With --arbiter: also where the copy may lack what the machine has answered that led last.
    #[arg(long, requires = "arbiter")]
    yes: bool,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: log::Logging,
}

/// What was promoted.
#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    term: u64,
    previous_term: u64,
}

/// Make a copy the queues.
pub(super) fn promote(args: Args) -> Outcome {
    args.log.begin(LevelFilter::INFO);
    let dir = &args.dir;
    let failed = |cause: Cause| context(dir.display(), cause);
    if args.group.arbiter.is_some() {
        return promote_in_group(args.group, &args.dir, args.yes, args.json);
    }
    if let Some(group) = Group::of(dir).map_err(failed)? {
        return Err(format!(
            "{}: {} decides which machine serves these queues: give --arbiter {}",
            dir.display(),
            group.arbiter,
            group.arbiter
        )
        .into());
    }
    let changes = complete(dir).map_err(failed)?;
    let promoted = promote_journals(&[changes])?;
    let (term, previous_term) = promoted
        .first()
        .map_or((0, 0), |one| (one.term, one.before));
    let report = Report {
        path: dir.clone(),
        term,
        previous_term,
    };
    let text = format!(
        "{}: the queues, in term {term}; before, a copy in term {previous_term}",
        dir.display()
    );
    Ok(report::print(&report, &text, args.json)?)
}

/// Let the arbiter's record name the machine of a copy.
fn promote_in_group(group: GroupArgs, dir: &Path, yes: bool, json: bool) -> Outcome {
    let taken = group::take_over(group, dir, yes)?;
    let report = Report {
        path: dir.to_owned(),
        term: taken.term,
        previous_term: taken.before,
    };
    let text = format!(
        "{}: the arbiter names {} from now on, in term {}; `millstream queue serve --arbiter` serves the queues there",
        dir.display(),
        taken.name,
        taken.term
    );
    Ok(report::print(&report, &text, json)?)
}

/// The options of `millstream queue rejoin`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Without --yes nothing is changed when the old server had done what the new one does not know: the command says how much, and ends
with exit code 1. With --yes these changes are set aside, in a journal beside .changes. Afterwards `millstream queue follow` keeps the copy.

Example:
  millstream queue rejoin queues --leader second.example:7760 --secret-file secret
  millstream queue follow second.example:7760 queues --secret-file secret")]
pub(super) struct RejoinArgs {
    /// The directory of the old server's queues.
    dir: PathBuf,
    /// Where the new server serves its followers.
    #[arg(long, value_name = "HOST:PORT", value_parser = leader::parse_address)]
    leader: (String, u16),
    /// Drop the changes that the new server does not have, after setting them aside.
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    trust: Trust,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    log: log::Logging,
}

/// Make the queues of an old server a copy of the new one's.
pub(super) fn rejoin(args: RejoinArgs) -> Outcome {
    args.log.begin(LevelFilter::INFO);
    let stop = Stop::on_signals()?;
    let dir = &args.dir;
    let (secret, tls) = args.trust.read()?;
    let failed = |cause: Cause| context(dir.display(), cause);
    let changes = changes_of(dir).map_err(failed)?;
    let options = RejoinOptions {
        leader: args.leader,
        journals: vec![(String::new(), changes)],
        secret,
        tls,
    };
    // The queues have what is dropped from their changes.
    let prepare = || Ok(rebuild_from_changes(dir).map_err(failed)?);
    rejoin_journals(&options, (args.yes, args.json), &stop, prepare)
}
