//! Which requests a client may make, by its rights.

use super::{Grants, Right, Session};
use crate::name;
use crate::protocol::{GetKey, Request, SetKey, TouchKey, reply};

/// The message for a denied request.
type Denial = Result<(), String>;

impl Session {
    /// Whether the request was denied, and answered.
    #[cold]
    pub(super) fn is_denied(&mut self, request: &Request<'_>) -> bool {
        // A request that waits was allowed when it arrived. When rights change, its connection is closed.
        let Some(grants) = self.grants.clone().filter(|_| !self.is_waiting()) else {
            return false;
        };
        let user = self.user.as_ref().map_or("", |user| user.name());
        let Err(why) = allowed(&grants, user, request) else {
            return false;
        };
        let quiet = match request {
            Request::Set(set) => set.noreply,
            Request::Touch(touch) => touch.noreply,
            Request::Delete { noreply, .. } | Request::FlushAll { noreply } => *noreply,
            _ => false,
        };
        if !quiet {
            reply::client_error(&mut self.output, &why);
        }
        self.denied.get_or_insert(why);
        self.denials += 1;
        true
    }
}

/// Whether these rights allow the request. Invalid names are refused elsewhere.
fn allowed(grants: &Grants, user: &str, request: &Request<'_>) -> Denial {
    let queue = |right: Right, name: &[u8]| match name::check(name) {
        Ok(name) if !grants.may(right, name) => denied(user, right, name),
        _ => Ok(()),
    };
    let server = |command: &str| {
        if grants.may_administer() {
            Ok(())
        } else {
            Err(format!(
                "\"{user}\" may not {command}: that needs admin = [\"*\"]"
            ))
        }
    };
    match *request {
        Request::Set(set) => match SetKey::parse(set.key) {
            Ok(key) if !grants.may(Right::Write, key.name) => denied(user, Right::Write, key.name),
            _ => Ok(()),
        },
        // A client may always confirm, abort or renew its open items. By ids it may do so with those of others.
        Request::Get(get) => get
            .keys
            .into_iter()
            .try_for_each(|key| match GetKey::parse(key) {
                Ok(key) if !key.only_ends() || key.id.is_some() => {
                    let mut names = key.names();
                    let refused = names.find(|name| !grants.may(Right::Read, name));
                    refused.map_or(Ok(()), |name| denied(user, Right::Read, name))
                }
                _ => Ok(()),
            }),
        Request::Touch(touch) => match TouchKey::parse(touch.key) {
            Ok(key) if touch.id.or(key.id).is_some() && !grants.may(Right::Read, key.name) => {
                denied(user, Right::Read, key.name)
            }
            _ => Ok(()),
        },
        Request::Confirm { .. } => Ok(()),
        Request::ConfirmIds { queue: name, .. } | Request::Monitor { queue: name, .. } => {
            queue(Right::Read, name)
        }
        Request::Redrive { from, to, .. } => {
            queue(Right::Read, from).and_then(|()| queue(Right::Write, to))
        }
        Request::Delete { queue: name, .. }
        | Request::Flush { queue: name }
        | Request::FlushExpired { queue: name } => queue(Right::Admin, name),
        Request::Stats { queue: Some(name) } => match name::check(name) {
            Ok(name) if !grants.may_see(name) => {
                Err(format!("\"{user}\" has no right to queue \"{name}\""))
            }
            _ => Ok(()),
        },
        Request::FlushAll { .. } => server("flush_all"),
        Request::FlushAllExpired => server("flush_all_expired"),
        Request::Reload => server("reload"),
        Request::Shutdown => server("shutdown"),
        Request::Status { to: Some(_) } => server("change the status"),
        // These report only queues that the rights allow, or none.
        Request::Stats { queue: None }
        | Request::DumpStats { .. }
        | Request::Status { to: None }
        | Request::Version
        | Request::Verbosity { .. }
        | Request::Quit
        | Request::MetaNoop => Ok(()),
    }
}

fn denied(user: &str, right: Right, queue: &str) -> Denial {
    Err(format!("\"{user}\" may not {right} queue \"{queue}\""))
}
