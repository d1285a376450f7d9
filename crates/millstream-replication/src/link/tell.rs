//! Telling old leaders that a journal is in a newer term, until each of them knows.
//!
//! An old leader may be cut off, stopped or without power when another copy is promoted. When it comes back, its writers go on where they
//! were, so it has to be told, and it cannot know whom to ask. The new leader tells it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope};
use std::time::Duration;

use tracing::{info, warn};

use super::call::Call;
use super::error::{Reason, ReplicationError};
use super::follow::rest;
use super::history::{newest, recent};
use super::leader::Leader;
use super::message::{Follow, Member};
use super::served::Served;
use super::tls::FollowerTls;

/// How long an old leader that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(1);
/// Who tells, in place of a follower's name.
const NAME: &str = "promoted";

/// Tell each old leader on a thread of its own.
pub(super) fn begin<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    leader: &'env Leader<'_>,
    olds: &[(String, u16)],
    tls: Option<&FollowerTls>,
) -> Result<(), ReplicationError> {
    let stop = leader.stop;
    for old in olds {
        let call = Call::new(old, leader.secret.clone(), tls)?;
        let thread = Builder::new().name("telling".to_owned());
        let telling = thread.spawn_scoped(scope, move || until_it_knows(leader, &call, stop));
        telling.map_err(|source| ReplicationError::Connection {
            verb: "cannot start a thread".to_owned(),
            source,
        })?;
    }
    Ok(())
}

fn until_it_knows(leader: &Leader<'_>, call: &Call, stop: &AtomicBool) {
    let mut left: Vec<(&Served, String)> = Vec::new();
    left.extend(leader.served.iter().map(|served| (served, String::new())));
    while !left.is_empty() && !stop.load(Ordering::Relaxed) {
        left.retain_mut(|(served, said)| !knows(served, call, stop, said));
        if !left.is_empty() {
            rest(PAUSE, stop);
        }
    }
}

/// Tell once more; the same trouble again and again is said once.
fn knows(served: &Served, call: &Call, stop: &AtomicBool, said: &mut String) -> bool {
    let name = &served.name;
    match tell(served, call, stop) {
        Ok(None) => true,
        Ok(Some(term)) => {
            info!("{call} knows that '{name}' is in term {term}");
            true
        }
        Err(error) => {
            let text = error.to_string();
            if text != *said {
                warn!("{call} does not know yet that '{name}' is in a newer term: {text}");
                *said = text;
            }
            false
        }
    }
}

/// Tell once; `None` when there is nothing to tell.
fn tell(served: &Served, call: &Call, stop: &AtomicBool) -> Result<Option<u64>, ReplicationError> {
    let Some(opened) = served.opened()? else {
        return Ok(None);
    };
    let identity = opened.identity()?;
    let terms = recent(opened.terms()?);
    let term = newest(&terms);
    if term == 0 {
        return Ok(None);
    }
    let follow = Follow {
        follower: NAME.to_owned(),
        probe: true,
        members: vec![Member {
            journal: served.name.clone(),
            lineage: Some(identity.lineage),
            own: identity.own,
            next: opened.journal.next()?,
            last: None,
            terms,
        }],
    };
    match call.ask(&follow, stop) {
        // It knows, or is a copy in this term by now.
        Ok(_)
        | Err(ReplicationError::Refused {
            reason: Reason::Superseded,
            ..
        }) => Ok(Some(term)),
        Err(error) => Err(error),
    }
}
