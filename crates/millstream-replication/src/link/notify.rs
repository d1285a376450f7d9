//! Notifies old leaders that a journal is in a newer term, until each of them knows.
//!
//! An old leader may be disconnected, stopped or without power when another copy is promoted. When it resumes, its
//! writers continue to append. It cannot know which machine to ask for a newer term, so the new leader connects to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope};
use std::time::Duration;

use millstream_journal::chain;
use tracing::{info, warn};

use super::FollowerTls;
use super::connector::Connector;
use super::error::{Reason, ReplicationError};
use super::follow::back_off;
use super::history::{newest, recent};
use super::leader::Leader;
use super::message::{Follow, Member, Purpose};
use super::served::Served;
use super::session::no_thread;

/// The pause before an old leader that did not answer is notified again.
const PAUSE: Duration = Duration::from_secs(1);
/// The sender of the notice, in place of a follower's name.
const NAME: &str = "promoted";

/// Notify each old leader on a thread of its own.
pub(super) fn begin<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    leader: &'env Leader<'_>,
    olds: &[(String, u16)],
    tls: Option<&FollowerTls>,
) -> Result<(), ReplicationError> {
    let stop = leader.stop;
    for old in olds {
        let connector = Connector::new(old, leader.secret.clone(), tls)?;
        let thread = Builder::new().name("notifying".to_owned());
        let notifying =
            thread.spawn_scoped(scope, move || until_it_knows(leader, &connector, stop));
        notifying.map_err(no_thread)?;
    }
    Ok(())
}

fn until_it_knows(leader: &Leader<'_>, connector: &Connector, stop: &AtomicBool) {
    let mut left: Vec<(&Served, String)> = Vec::new();
    left.extend(leader.served.iter().map(|served| (served, String::new())));
    while !left.is_empty() && !stop.load(Ordering::Relaxed) {
        left.retain_mut(|(served, last_warning)| !knows(served, connector, stop, last_warning));
        if !left.is_empty() {
            back_off(PAUSE, stop);
        }
    }
}

/// Notify once more; the same failure is logged once.
fn knows(
    served: &Served,
    connector: &Connector,
    stop: &AtomicBool,
    last_warning: &mut String,
) -> bool {
    let name = &served.name;
    match notify(served, connector, stop) {
        Ok(None) => true,
        Ok(Some(term)) => {
            info!("{connector} knows that '{name}' is in term {term}");
            true
        }
        Err(error) => {
            let text = chain(&error).to_string();
            if text != *last_warning {
                warn!("{connector} does not know yet that '{name}' is in a newer term: {text}");
                *last_warning = text;
            }
            false
        }
    }
}

/// Notify once; `None` when there is no term to notify of.
fn notify(
    served: &Served,
    connector: &Connector,
    stop: &AtomicBool,
) -> Result<Option<u64>, ReplicationError> {
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
        purpose: Purpose::Probe,
        members: vec![Member {
            journal: served.name.clone(),
            lineage: Some(identity.lineage),
            own: identity.own,
            next: opened.journal.next()?,
            last: None,
            terms,
        }],
    };
    match connector.probe(&follow, stop) {
        // It knows, or is a copy in this term by now.
        Ok(_)
        | Err(ReplicationError::Refused {
            reason: Reason::Superseded,
            ..
        }) => Ok(Some(term)),
        Err(error) => Err(error),
    }
}
