//! Sending records to a follower, in rounds that keep a set of journals consistent.
//!
//! The journals of a set are in the order in which records cause each other: inputs before outputs. A round first notes where each of them
//! ends, *the last one first*, and then sends each up to there, *the first one first*. A record of an output was appended after those that
//! caused it; so what the noted end of the output covers, the ends of its inputs, noted later, cover too. A follower that appends in the
//! order in which records come never has an effect without its cause.
//!
//! A journal that is not there cannot have an end noted. It is looked for after the ends were noted: if it has come by then, an effect of its
//! records may be among what was noted, and the round is given up. The follower connects again, and gets that journal too.

use std::sync::atomic::Ordering;
use std::thread::{Builder, Scope};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Reader, Wait};

use super::LOOK;
use super::admit::check_leads;
use super::error::ReplicationError;
use super::message::{self, Batch};
use super::session::{Session, no_thread, refuse};
use super::watch::Watch;

/// How much is sent at once, unless a single record is longer.
const BATCH_BYTES: usize = 256 << 10;

/// What a round has come to.
enum Round {
    Sent,
    NothingNew,
    /// A journal has come that was not there.
    Grown,
}

/// Send until one side stops. What fails in a journal is told to the follower.
pub(super) fn run<'scope, 'env>(
    session: &'env Session<'env>,
    scope: &'scope Scope<'scope, 'env>,
) -> Result<(), ReplicationError> {
    let watch: &'env Watch = &session.watch;
    let outcome = Sender::new(session).and_then(|mut sender| {
        if session.links.len() > 1 {
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
            let mut out = Vec::new();
            message::write_end(&mut out);
            session.stream.write(&out)
        }
    }
}

fn watch_all<'scope, 'env>(
    session: &'env Session<'env>,
    watch: &'env Watch,
    scope: &'scope Scope<'scope, 'env>,
) -> Result<(), ReplicationError> {
    for there in session.links.iter().filter_map(|link| link.there.as_ref()) {
        let reader = there.opened.journal.reader()?;
        let sent = move || there.sent.load(Ordering::Relaxed);
        let thread = Builder::new().name("watching".to_owned());
        let watching = move || watch.look(reader, sent, &session.ended);
        thread.spawn_scoped(scope, watching).map_err(no_thread)?;
    }
    Ok(())
}

struct Sender<'a> {
    session: &'a Session<'a>,
    /// One for each journal that is there.
    readers: Vec<Option<Reader>>,
    batches: Vec<Batch>,
    ends: Vec<u64>,
    said_ns: u64,
}

impl<'a> Sender<'a> {
    fn new(session: &'a Session<'a>) -> Result<Self, ReplicationError> {
        let mut readers = Vec::new();
        for link in &session.links {
            let Some(there) = &link.there else {
                readers.push(None);
                continue;
            };
            let mut reader = there.opened.journal.reader()?;
            reader.seek(there.sent.load(Ordering::Relaxed))?;
            readers.push(Some(reader));
        }
        let count = session.links.len();
        Ok(Sender {
            session,
            readers,
            batches: (0..count).map(Batch::new).collect(),
            ends: vec![u64::MAX; count],
            said_ns: monotonic_ns(),
        })
    }

    fn is_over(&self) -> bool {
        self.session.leader.stop.load(Ordering::Relaxed)
            || self.session.ended.load(Ordering::Relaxed)
    }

    fn run(&mut self, watch: &Watch) -> Result<(), ReplicationError> {
        while !self.is_over() {
            for link in &self.session.links {
                if let Some(there) = &link.there {
                    check_leads(link.served, there.opened)?;
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
        // Alone, a journal ends where it ends when it is read.
        if self.session.links.len() > 1 {
            for (link, end) in self.session.links.iter().zip(&mut self.ends).rev() {
                if let Some(there) = &link.there {
                    *end = there.opened.journal.next()?;
                }
            }
            for link in &self.session.links {
                if link.there.is_none() && link.served.has_come()? {
                    return Ok(Round::Grown);
                }
            }
        }
        let mut sent = false;
        for member in 0..self.session.links.len() {
            let sent_to = self.send_one(member, &mut sent)?;
            if sent_to < self.ends[member] && self.ends[member] != u64::MAX {
                // What comes after it in the order may be an effect of what was not sent.
                break;
            }
        }
        Ok(if sent { Round::Sent } else { Round::NothingNew })
    }

    /// Send the records of one journal up to the end that was noted. Returns the record that comes next.
    fn send_one(&mut self, member: usize, sent: &mut bool) -> Result<u64, ReplicationError> {
        let end = self.ends[member];
        let link = &self.session.links[member];
        let (Some(there), Some(reader)) = (&link.there, &mut self.readers[member]) else {
            return Ok(end);
        };
        let batch = &mut self.batches[member];
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
            there.sent.store(reader.position(), Ordering::Relaxed);
            self.session.stream.write(batch.take())?;
            self.said_ns = monotonic_ns();
            *sent = true;
            let stop = &self.session.leader.stop;
            if end == u64::MAX || stop.load(Ordering::Relaxed) {
                return Ok(reader.position());
            }
        }
    }

    fn wait(&mut self, watch: &Watch) -> Result<(), ReplicationError> {
        let heartbeat = self.session.leader.heartbeat;
        let silent = Duration::from_nanos(monotonic_ns() - self.said_ns);
        let left = heartbeat.saturating_sub(silent);
        if left.is_zero() {
            let mut out = Vec::new();
            message::write_alive(&mut out);
            self.session.stream.write(&out)?;
            self.said_ns = monotonic_ns();
        }
        let limit = left.min(LOOK);
        match self.readers.as_mut_slice() {
            [Some(only)] => {
                only.wait(Wait::Block, Some(limit))?;
            }
            _ => watch.sleep(limit),
        }
        Ok(())
    }
}
