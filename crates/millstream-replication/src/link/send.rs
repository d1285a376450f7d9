//! Sending records to a follower, in rounds that keep a set of journals consistent.
//!
//! The journals of a set are in the order in which records cause each other: inputs before outputs. A round first notes
//! where each of them ends, *the last one first*, and then sends each up to there, *the first one first*. A record of
//! an output was appended after those that caused it; so the noted end of the output is never ahead of the ends of its
//! inputs, which are noted later. A follower that appends in the order of receipt never has an effect without its
//! cause.
//!
//! A journal that does not exist cannot have an end noted. It is looked for after the ends were noted: if it exists by
//! then, an effect of its records may be before a noted end, and the round is abandoned. The follower connects again,
//! and gets that journal too.

use std::sync::atomic::Ordering;
use std::thread::{Builder, Scope};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Reader, Wait};

use super::STOP_CHECK;
use super::admit::check_leads;
use super::error::ReplicationError;
use super::frames::{self, Kind};
use super::message::{At, Batch};
use super::session::{Progress, Session, no_thread, refuse};
use super::watch::Watch;

/// How much is sent at once, unless a single record is longer.
const BATCH_BYTES: usize = 256 << 10;

/// The outcome of a round.
enum Round {
    Sent,
    NothingNew,
    /// A journal exists that did not when the round began.
    Grown,
}

/// Send until one side stops. The follower is notified of a failure in a journal.
pub(super) fn run<'scope, 'env>(
    session: &'env Session<'env>,
    scope: &'scope Scope<'scope, 'env>,
) -> Result<(), ReplicationError> {
    let watch: &'env Watch = &session.watch;
    let outcome = Sender::new(session).and_then(|mut sender| {
        if session.members.len() > 1 {
            watch_all(session, watch, scope)?;
        }
        sender.run(watch)
    });
    match outcome {
        Err(error @ (ReplicationError::Journal(_) | ReplicationError::Refused { .. })) => {
            Err(refuse(session.stream, session.credential, error))
        }
        Err(error) => Err(error),
        Ok(()) => {
            let end = frames::frame(Kind::End, &[]);
            Ok(session.stream.write(&end)?)
        }
    }
}

fn watch_all<'scope, 'env>(
    session: &'env Session<'env>,
    watch: &'env Watch,
    scope: &'scope Scope<'scope, 'env>,
) -> Result<(), ReplicationError> {
    for progress in session
        .members
        .iter()
        .filter_map(|member| member.progress.as_ref())
    {
        let reader = progress.opened.journal.reader()?;
        let sent = move || progress.sent.load(Ordering::Relaxed);
        let thread = Builder::new().name("watching".to_owned());
        let watching = move || watch.watch_journal(reader, sent, &session.ended);
        thread.spawn_scoped(scope, watching).map_err(no_thread)?;
    }
    Ok(())
}

struct Sender<'a> {
    session: &'a Session<'a>,
    /// One for each journal that exists.
    readers: Vec<Option<Reader>>,
    batches: Vec<Batch>,
    ends: Vec<u64>,
    /// The first record of each journal, as a mirror knows it.
    firsts: Vec<u64>,
    sent_ns: u64,
}

impl<'a> Sender<'a> {
    fn new(session: &'a Session<'a>) -> Result<Self, ReplicationError> {
        let mut readers = Vec::new();
        for member in &session.members {
            let Some(progress) = &member.progress else {
                readers.push(None);
                continue;
            };
            let mut reader = progress.opened.journal.reader()?;
            reader.seek(progress.sent.load(Ordering::Relaxed))?;
            readers.push(Some(reader));
        }
        let count = session.members.len();
        Ok(Sender {
            session,
            readers,
            batches: (0..count).map(Batch::new).collect(),
            ends: vec![u64::MAX; count],
            firsts: vec![0; count],
            sent_ns: monotonic_ns(),
        })
    }

    fn is_over(&self) -> bool {
        self.session.leader.stop.load(Ordering::Relaxed)
            || self.session.ended.load(Ordering::Relaxed)
    }

    fn run(&mut self, watch: &Watch) -> Result<(), ReplicationError> {
        while !self.is_over() {
            for member in &self.session.members {
                if let Some(progress) = &member.progress {
                    check_leads(member.served, progress.opened)?;
                }
            }
            match self.round()? {
                Round::Sent => {}
                Round::Grown => break,
                Round::NothingNew => self.wait(watch)?,
            }
        }
        Ok(())
    }

    fn round(&mut self) -> Result<Round, ReplicationError> {
        // What is pruned by now is not needed any more as of the ends, which are noted later.
        let firsts = self.firsts()?;
        // Alone, a journal ends where it ends when it is read.
        if self.session.members.len() > 1 || self.session.is_mirror {
            for (member, end) in self.session.members.iter().zip(&mut self.ends).rev() {
                if let Some(progress) = &member.progress {
                    *end = progress.opened.journal.next()?;
                }
            }
            for member in &self.session.members {
                if member.progress.is_none() && member.served.has_come()? {
                    return Ok(Round::Grown);
                }
            }
        }
        let mut sent = false;
        for index in 0..self.session.members.len() {
            let sent_to = self.send_one(index, &mut sent)?;
            if sent_to < self.ends[index] && self.ends[index] != u64::MAX {
                // What comes after it in the order may be an effect of what was not sent.
                return Ok(Round::Sent);
            }
        }
        self.send_firsts(&firsts)?;
        Ok(if sent { Round::Sent } else { Round::NothingNew })
    }

    /// The first record of each journal, for a mirror.
    fn firsts(&self) -> Result<Vec<u64>, ReplicationError> {
        let members = self.session.members.iter();
        let members = members.filter(|_| self.session.is_mirror);
        let first = |progress: &Progress<'_>| Ok(progress.opened.journal.first()?);
        let firsts = members.map(|member| member.progress.as_ref().map_or(Ok(0), first));
        firsts.collect()
    }

    /// Tell a mirror, which has all records up to the noted ends by then, what was pruned.
    fn send_firsts(&mut self, firsts: &[u64]) -> Result<(), ReplicationError> {
        let mut out = Vec::new();
        for (index, (first, known)) in firsts.iter().zip(&mut self.firsts).enumerate() {
            if first > known {
                let pruned = At {
                    member: index,
                    next: *first,
                };
                out.extend(pruned.frame(Kind::Pruned));
                *known = *first;
            }
        }
        if !out.is_empty() {
            self.session.stream.write(&out)?;
            self.sent_ns = monotonic_ns();
        }
        Ok(())
    }

    /// Send the records of one journal up to the end that was noted. Returns the number of the next record.
    fn send_one(&mut self, index: usize, sent: &mut bool) -> Result<u64, ReplicationError> {
        let end = self.ends[index];
        let member = &self.session.members[index];
        let (Some(progress), Some(reader)) = (&member.progress, &mut self.readers[index]) else {
            return Ok(end);
        };
        let batch = &mut self.batches[index];
        loop {
            while batch.bytes_len() < BATCH_BYTES
                && reader.position() < end
                && let Some(record) = reader.next()?
            {
                batch.add(record.sequence, record.time_ns, record.body);
            }
            if batch.is_empty() {
                return Ok(reader.position());
            }
            progress.sent.store(reader.position(), Ordering::Relaxed);
            self.session.stream.write(batch.take())?;
            self.sent_ns = monotonic_ns();
            *sent = true;
            let stop = &self.session.leader.stop;
            if end == u64::MAX || stop.load(Ordering::Relaxed) {
                return Ok(reader.position());
            }
        }
    }

    fn wait(&mut self, watch: &Watch) -> Result<(), ReplicationError> {
        let heartbeat = self.session.leader.heartbeat;
        let silent = Duration::from_nanos(monotonic_ns() - self.sent_ns);
        let left = heartbeat.saturating_sub(silent);
        if left.is_zero() {
            let alive = frames::frame(Kind::Alive, &[]);
            self.session.stream.write(&alive)?;
            self.sent_ns = monotonic_ns();
        }
        let limit = left.min(STOP_CHECK);
        match self.readers.as_mut_slice() {
            [Some(only)] => {
                only.wait(Wait::Block, Some(limit))?;
            }
            _ => watch.sleep(limit),
        }
        Ok(())
    }
}
