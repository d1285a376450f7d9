//! A mirror: copies of all journals of a leader, whichever they are, as a flow's state needs them.
//!
//! At each connection the follower asks for the names of the journals. It prunes its copies as the leader prunes, and
//! truncates them where the leader, which was started again, has truncated what was not committed.
//!
//! Invariant: no record before the floor, the end of what the copy knows to be committed, is ever dropped.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tracing::info;

use super::connector::Connector;
use super::deadline_ns;
use super::error::{Reason, ReplicationError};
use super::frames::Kind;
use super::handshake::expect;
use super::incoming::Incoming;
use super::message::{self, Follow, Purpose};
use super::rejoin::{Rejoin, RejoinOptions};

/// How all journals of a leader are followed.
#[derive(Clone, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Mirror {
    /// The directory of the copies, each under its name.
    pub dir: PathBuf,
    /// Returns the number before which no record of the last journal, in this directory, may be dropped. As long as the
    /// leader has these records, it has all that they refer to.
    pub floor: fn(&Path) -> Result<u64, String>,
}

/// The journals that the leader has now, each by its name and the directory of its copy, those upstream first; `None`
/// when `stop` is raised first.
pub(super) fn journals(
    mirror: &Mirror,
    follower: &str,
    connector: &Connector,
    stop: &AtomicBool,
) -> Result<Option<Vec<(String, PathBuf)>>, ReplicationError> {
    let stream = Arc::new(connector.connect()?);
    let mut incoming = Incoming::new(Arc::clone(&stream));
    let names = ask(connector, follower, &mut incoming, stop);
    stream.close();
    let Some(names) = names? else {
        return Ok(None);
    };
    let names = names.into_iter();
    let journals = names.map(|name| Ok((name.clone(), directory(&mirror.dir, &name)?)));
    journals.collect::<Result<_, _>>().map(Some)
}

/// Asks the leader for the names of its journals.
fn ask(
    connector: &Connector,
    follower: &str,
    incoming: &mut Incoming,
    stop: &AtomicBool,
) -> Result<Option<Vec<String>>, ReplicationError> {
    let follow = Follow {
        follower: follower.to_owned(),
        purpose: Purpose::Names,
        members: Vec::new(),
    };
    if connector.authenticate(incoming, &follow, stop)?.is_none() {
        return Ok(None);
    }
    let Some(frame) = incoming.expect(deadline_ns(), stop)? else {
        return Ok(None);
    };
    message::read_names(expect(frame, Kind::Names)?).map(Some)
}

/// The directory of a copy: below that of the mirror.
fn directory(dir: &Path, name: &str) -> Result<PathBuf, ReplicationError> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if !name.is_empty() && Path::new(name).components().all(is_plain) {
        Ok(dir.join(name))
    } else {
        let what = format!("'{name}' is no name of a journal in a directory");
        Err(ReplicationError::protocol(what))
    }
}

/// Whether the copies have records that the leader does not have.
pub(super) fn differs(error: &ReplicationError) -> bool {
    let ReplicationError::Refused { reason, .. } = error else {
        return false;
    };
    *reason == Reason::Diverged
}

/// Truncates closed copies to what the leader has too. Returns whether there was anything to truncate.
pub(super) fn truncate(
    mirror: &Mirror,
    options: &RejoinOptions,
    stop: &AtomicBool,
) -> Result<bool, ReplicationError> {
    let Some((_, last)) = options.journals.last().cloned() else {
        return Ok(false);
    };
    let floor = (mirror.floor)(&last);
    let floor =
        floor.map_err(|cause| ReplicationError::Usage(format!("{}: {cause}", last.display())))?;
    let rejoin = Rejoin::plan(options, stop)?;
    let plans = rejoin.plans();
    let of_last = plans.iter().find(|plan| plan.dir == last);
    if let Some(plan) = of_last.filter(|plan| plan.keep < floor) {
        let path = last;
        let from = plan.keep;
        return Err(ReplicationError::Ahead { path, from });
    }
    let mut dropped = plans.iter().filter(|plan| plan.keep < plan.next).peekable();
    if dropped.peek().is_none() {
        return Ok(false);
    }
    for plan in dropped {
        info!(
            "{}: the leader was started again without records {} to {}, which were not committed; they are truncated here too",
            plan.dir.display(),
            plan.keep,
            plan.next - 1
        );
    }
    rejoin.dropping().carry_out()?;
    Ok(true)
}
