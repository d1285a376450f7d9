//! Admission of a follower: which journals it requests, and whether its copies are prefixes of them.

use millstream_journal::{Bookmark, Error};
use tracing::warn;

use super::error::{Reason, ReplicationError};
use super::history::{clash, newest, parting, recent};
use super::leader::Leader;
use super::message::{Follow, Member, Offer, Purpose};
use super::served::{OpenJournal, Served};

/// The journals that the follower requests, in its order.
pub(super) fn find<'a>(
    leader: &'a Leader<'_>,
    follow: &Follow,
) -> Result<Vec<&'a Served>, ReplicationError> {
    let members = follow.members.iter();
    members.map(|member| find_one(leader, member)).collect()
}

fn find_one<'a>(leader: &'a Leader<'_>, member: &Member) -> Result<&'a Served, ReplicationError> {
    let mut named = leader.served.iter().filter(|served| !served.is_companion);
    if member.journal.is_empty()
        && let (Some(only), None) = (named.next(), named.next())
    {
        return Ok(only);
    }
    let mut all = leader.served.iter();
    let found = all.find(|served| served.name == member.journal);
    found.ok_or_else(|| {
        let named = leader.served.iter().filter(|served| !served.is_companion);
        let names: Vec<_> = named.map(|served| served.name.as_str()).collect();
        let names = names.join(", ");
        refused(
            Reason::UnknownJournal,
            match member.journal.as_str() {
                "" => format!("it serves several journals; name one: {names}"),
                name => format!("it serves no journal '{name}'; there are: {names}"),
            },
        )
    })
}

/// The records that the follower gets of each journal; `None` for one that does not exist yet.
///
/// A follower that is in a newer term stops this leader, in all journals that it names, before it is refused.
pub(super) fn admit(
    found: &[&Served],
    follow: &Follow,
) -> Result<Vec<Option<Offer>>, ReplicationError> {
    let mut superseded = Ok(());
    let mut asked = Vec::new();
    for (served, member) in found.iter().zip(&follow.members) {
        let opened = served.opened()?;
        if let Some(opened) = opened {
            let learned = learn(served, opened, member);
            superseded = superseded.and(learned);
        }
        asked.push((served, opened, member));
    }
    superseded?;
    if !asked.is_empty() && asked.iter().all(|(_, opened, _)| opened.is_none()) {
        let names: Vec<_> = found.iter().map(|served| served.name.as_str()).collect();
        let text = format!(
            "it waits for '{}', which does not exist yet",
            names.join("', '")
        );
        return Err(refused(Reason::Trouble, text));
    }
    let offers = asked.into_iter().map(|(served, opened, member)| {
        let name = &served.name;
        match opened {
            Some(opened) => {
                let is_probe = follow.purpose == Purpose::Probe;
                compare(name, opened, member, is_probe).map(Some)
            }
            None if member.next > 0 => Err(refused(
                Reason::Trouble,
                format!("'{name}' is not there, and the copy has records of it"),
            )),
            None => Ok(None),
        }
    });
    offers.collect()
}

/// Learn of a newer term from a follower, and refuse while one is known.
fn learn(served: &Served, opened: &OpenJournal, member: &Member) -> Result<(), ReplicationError> {
    let lineage = opened.identity()?.lineage;
    let name = &served.name;
    if member.lineage.is_some_and(|theirs| theirs != lineage) {
        let text = format!(
            "the copy is one of another journal than '{name}'; follow into a new directory, or adopt it, if it was copied from \
             '{name}' by other means"
        );
        return Err(refused(Reason::OtherJournal, text));
    }
    let theirs = newest(&member.terms);
    let known = opened.journal.is_superseded();
    let ours = newest(&opened.terms()?);
    let is_kin = member.lineage.is_some();
    if is_kin && theirs > ours && opened.journal.supersede(theirs)? && !known {
        warn!("'{name}' is superseded: it is in term {ours}, a copy in term {theirs} was promoted");
    }
    check_leads(served, opened)
}

/// Refuse while a newer term is known.
pub(super) fn check_leads(served: &Served, opened: &OpenJournal) -> Result<(), ReplicationError> {
    if !opened.journal.is_superseded() {
        return Ok(());
    }
    let leadership = opened.journal.leadership()?;
    let Some(by) = leadership.superseded_by else {
        return Ok(());
    };
    let text = format!(
        "'{}' is in term {} here, superseded by term {by}: follow the leader of that",
        served.name, leadership.term
    );
    Err(refused(Reason::Superseded, text))
}

/// The record from which the follower resumes. Its copy must be a prefix, unless it only probes for the common part.
fn compare(
    name: &str,
    opened: &OpenJournal,
    member: &Member,
    probe: bool,
) -> Result<Offer, ReplicationError> {
    let journal = &opened.journal;
    let first = journal.first()?;
    let end = journal.next()?;
    let terms = recent(journal.terms()?);
    let lineage = opened.identity()?.lineage;
    let offer = |next, terms| Offer {
        lineage,
        segment_bytes: opened.segment_bytes,
        next,
        end,
        terms,
    };
    let next = member.next;
    if member.lineage.is_none() && member.last.is_none() && next == 0 {
        return Ok(offer(first, terms));
    }
    if clash(&terms, &member.terms) {
        let text = format!(
            "'{name}' and the copy were both promoted to term {}; promote again the one that is to lead",
            newest(&terms)
        );
        return Err(refused(Reason::Diverged, text));
    }
    if next < first {
        let text = format!(
            "record {next}, which the copy needs next, has been pruned from '{name}', whose first is {first}; \
             follow into a new directory, and keep the old copy for what it holds"
        );
        return Err(refused(Reason::Pruned, text));
    }
    let parting = parting(&terms, &member.terms).unwrap_or(u64::MAX);
    let common = next.min(parting).min(end);
    let common = match member.last {
        checksum @ Some(_) if common == next => {
            match journal.confirm(Bookmark { next, checksum }) {
                Ok(()) => next,
                Err(Error::Lost { .. }) => next - 1,
                Err(error) => return Err(error.into()),
            }
        }
        _ => common,
    };
    if common == next || probe {
        return Ok(offer(common, terms));
    }
    let text = if parting < next {
        format!(
            "the copy has records from {parting} on that are not those of '{name}' in term {}; \
             `millstream journal rejoin` sets them aside",
            newest(&terms)
        )
    } else {
        format!(
            "the copy's record {} is not that of '{name}', which ends before record {end}: one of the two has lost records \
             or was appended to; follow into a new directory, or let `millstream journal rejoin` set aside what differs",
            next - 1
        )
    };
    Err(refused(Reason::Diverged, text))
}

pub(super) fn refused(reason: Reason, text: String) -> ReplicationError {
    ReplicationError::Refused { reason, text }
}
