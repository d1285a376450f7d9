//! An old leader becomes a copy of the new one: records that the new leader lacks are set aside, and then dropped.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use millstream_journal::{Error, Journal, Options};
use millstream_link::Secret;

use super::FollowerTls;
use super::connector::Connector;
use super::error::{Reason, ReplicationError};
use super::followers;
use super::history::{newest, recent};
use super::message::{Follow, Member, Offer, Purpose};

/// The sender of a probe, in place of a follower's name.
const NAME: &str = "rejoining";

/// How to rejoin.
#[derive(Clone, Debug)]
pub struct RejoinOptions {
    /// The new leader's host and port.
    pub leader: (String, u16),
    /// The journals, each by its name there and its directory; those upstream first.
    pub journals: Vec<(String, PathBuf)>,
    /// The secret shared with the leader.
    pub secret: Option<Secret>,
    /// Speak TLS.
    pub tls: Option<FollowerTls>,
}

/// The plan for each journal; nothing is changed until it is [carried out](Rejoin::carry_out).
pub struct Rejoin {
    plans: Vec<(JournalPlan, Journal, Offer)>,
}

/// The plan for one journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct JournalPlan {
    /// Its directory.
    pub dir: PathBuf,
    /// The term that it is in.
    pub term: u64,
    /// The leader's term.
    pub leader_term: u64,
    /// All records before this one are the leader's too.
    pub keep: u64,
    /// The record after its last one. Those from `keep` on are dropped.
    pub next: u64,
    /// The journal with the records that are dropped, when there are any.
    pub aside: Option<PathBuf>,
}

impl Rejoin {
    /// Compare the journals with the leader's. They stay open, so that no process appends to them meanwhile. A journal
    /// that does not exist here is left out: a follower creates it.
    ///
    /// # Errors
    /// A journal that a process has open; a leader that cannot be reached, or is in an older term; what the two do not
    /// have in common.
    pub fn plan(options: &RejoinOptions, stop: &AtomicBool) -> Result<Self, ReplicationError> {
        let tls = options.tls.as_ref();
        let connector = Connector::new(&options.leader, options.secret.clone(), tls)?;
        let mut plans = Vec::new();
        for (name, dir) in &options.journals {
            let alone = Options {
                create: false,
                exclusive: true,
                sole_writer: true,
                ..Options::default()
            };
            let journal = match Journal::open(dir, alone) {
                Err(Error::NotFound { .. }) => continue,
                journal => journal?,
            };
            let (keep, offer) = compare(&connector, name, &journal, stop)?;
            let leadership = journal.leadership()?;
            let term = leadership.term;
            let leader_term = newest(&offer.terms);
            let known = leadership.superseded_by.unwrap_or(term);
            if leader_term < known {
                return Err(ReplicationError::OlderTerm {
                    path: dir.clone(),
                    theirs: leader_term,
                    ours: known,
                });
            }
            let next = journal.next()?;
            let plan = JournalPlan {
                aside: (keep < next).then(|| beside(dir, term, keep)),
                dir: dir.clone(),
                term,
                leader_term,
                keep,
                next,
            };
            plans.push((plan, journal, offer));
        }
        if plans.is_empty() {
            let path = options.journals.first().map(|(_, dir)| dir.clone());
            let path = path.unwrap_or_default();
            return Err(Error::NotFound { path }.into());
        }
        Ok(Rejoin { plans })
    }

    /// The same without setting records aside: those that are dropped count for nothing.
    #[must_use]
    pub(super) fn dropping(mut self) -> Self {
        for (plan, ..) in &mut self.plans {
            plan.aside = None;
        }
        self
    }

    /// The plan for each journal.
    #[must_use]
    pub fn plans(&self) -> Vec<JournalPlan> {
        self.plans.iter().map(|(plan, ..)| plan.clone()).collect()
    }

    /// Set aside and drop what the leader does not have, and make the journals copies. A process that dies in the
    /// middle loses nothing: the same call again completes it.
    ///
    /// # Errors
    /// An error of the system.
    pub fn carry_out(self) -> Result<(), ReplicationError> {
        for (plan, journal, _) in &self.plans {
            if let Some(aside) = &plan.aside {
                set_aside(journal, plan, aside)?;
            }
        }
        for (_, journal, _) in &self.plans {
            journal.mark_as_copy()?;
            followers::forget_all(journal)?;
        }
        // An effect goes before its cause.
        for (plan, journal, offer) in self.plans.iter().rev() {
            if plan.keep < plan.next {
                journal.cut(plan.keep)?;
            }
            journal.adopt_terms(&offer.terms)?;
        }
        Ok(())
    }
}

/// Find the first record that is not the leader's.
fn compare(
    connector: &Connector,
    name: &str,
    journal: &Journal,
    stop: &AtomicBool,
) -> Result<(u64, Offer), ReplicationError> {
    let first = journal.first()?;
    let mut same = None;
    let mut differs = journal.next()? + 1;
    let mut at = differs - 1;
    loop {
        let offer = probe(connector, name, journal, at, stop)?;
        let hint = offer.next;
        if hint >= at {
            same = Some((at, offer));
        } else {
            differs = at;
            if hint + 1 < at {
                // The terms say so, or the end of the leader's journal: nothing from there on is the same.
                differs = hint + 1;
            }
        }
        let from = same.as_ref().map_or(first, |(at, _)| *at);
        at = match &same {
            Some((at, _)) if at + 1 >= differs => break,
            None if differs <= first => break,
            _ if hint > from && hint < differs => hint,
            None if from + 1 >= differs => from,
            _ => from + (differs - from) / 2,
        };
    }
    same.ok_or_else(|| ReplicationError::Refused {
        reason: Reason::Diverged,
        text: format!(
            "{} has no record in common with '{name}'; follow into a new directory",
            journal.path().display()
        ),
    })
}

/// Ask the leader how much of the records before `next` it has.
fn probe(
    connector: &Connector,
    name: &str,
    journal: &Journal,
    next: u64,
    stop: &AtomicBool,
) -> Result<Offer, ReplicationError> {
    let identity = journal.identity()?;
    let follow = Follow {
        follower: NAME.to_owned(),
        purpose: Purpose::Probe,
        members: vec![Member {
            journal: name.to_owned(),
            lineage: Some(identity.lineage),
            own: identity.own,
            next,
            last: journal.bookmark(next)?.checksum,
            terms: recent(journal.terms()?),
        }],
    };
    let welcome = connector.probe(&follow, stop)?;
    let offer = welcome.members.into_iter().next().flatten();
    offer.ok_or_else(|| ReplicationError::protocol("the answer does not mention the journal"))
}

/// The directory for the dropped records: one that does not exist.
fn beside(dir: &Path, term: u64, keep: u64) -> PathBuf {
    let mut path = dir.components().as_path().as_os_str().to_owned();
    path.push(format!(".dropped-term{term}-from{keep}"));
    let plain = PathBuf::from(&path);
    let numbered = (2..).map(|number: u64| {
        let mut path = path.clone();
        path.push(format!("-{number}"));
        PathBuf::from(path)
    });
    let mut all = std::iter::once(plain.clone()).chain(numbered);
    all.find(|path| !path.exists()).unwrap_or(plain)
}

fn set_aside(journal: &Journal, plan: &JournalPlan, aside: &Path) -> Result<(), ReplicationError> {
    let options = Options {
        create_new: true,
        first_sequence: plan.keep,
        segment_bytes: journal.info()?.segment_bytes,
        record_bytes_max: 1 << 28,
        ..Options::default()
    };
    let writer = Journal::open(aside, options)?.writer()?;
    let mut reader = journal.reader()?;
    reader.seek(plan.keep)?;
    while let Some(record) = reader.next()? {
        writer.append_at(record.time_ns, record.body)?;
    }
    writer.sync()?;
    Ok(())
}
