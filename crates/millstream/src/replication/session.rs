//! One follower, as the leader sees it: a thread that sends records, and one that takes acknowledgements.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_flow::clock::now_ns;
use millstream_journal::{Cursor, Error, Reader, Share, Wait};
use tracing::{debug, info, warn};

use super::error::{Reason, ReplicationError};
use super::followers::PREFIX;
use super::handshake::{Asked, Listening};
use super::incoming::Incoming;
use super::message::{self, Batch, Follow, Kind, Welcome, record_crc};
use super::secret::nonce;
use super::serve::{Leader, Served};
use super::stream::Stream;
use super::tls;
use super::{DEAD_AFTER, FAREWELL, LOOK};

/// How much is sent at once, unless a single record is longer.
const BATCH_BYTES: usize = 256 << 10;

/// Serve one connection until it ends.
pub(super) fn run(leader: &Leader<'_>, socket: TcpStream, peer: SocketAddr, number: usize) {
    let patience = leader.heartbeat * DEAD_AFTER;
    let stream = match tls::accept(socket, leader.tls.as_ref(), patience) {
        Ok(stream) => Arc::new(stream),
        Err(error) => return info!("{peer}: {error}"),
    };
    let outcome = converse(leader, &stream, peer, number);
    stream.close();
    match outcome {
        Ok(()) => {}
        Err(error @ ReplicationError::Closed { .. }) => info!("{peer}: {error}"),
        Err(error) => warn!("{peer}: {error}"),
    }
}

fn converse(
    leader: &Leader<'_>,
    stream: &Arc<Stream>,
    peer: SocketAddr,
    number: usize,
) -> Result<(), ReplicationError> {
    let mut incoming = Incoming::new(Arc::clone(stream));
    let Some(asked) = greet(leader, &mut incoming)? else {
        return Ok(());
    };
    let admitted = find(leader, &asked.follow).and_then(|served| {
        let (start, end) = admit(served, &asked.follow)?;
        let cursor = enter(served, &asked.follow, number, stream)?;
        Ok((served, start, end, cursor))
    });
    let (served, start, end, cursor) = admitted.map_err(|error| refuse(stream, error))?;
    let session = Session {
        leader,
        served,
        follower: &asked.follow.follower,
        number,
        stream,
        cursor,
        sent: AtomicU64::new(start),
        ended: AtomicBool::new(false),
    };
    let outcome = session.welcome(&asked, start, end).and_then(|()| {
        info!(
            "{peer}: '{}' follows '{}' from record {start} on",
            session.follower, served.name
        );
        session.run(incoming, start)
    });
    served.leave(session.follower, number);
    let at = session.cursor.position()?;
    info!(
        "{peer}: '{}' has gone; it has all before record {at}",
        session.follower
    );
    outcome
}

/// Become known to each other; `None` when we are to stop first.
fn greet(leader: &Leader<'_>, incoming: &mut Incoming) -> Result<Option<Asked>, ReplicationError> {
    let deadline_ns = tls::deadline_ns();
    let mut out = Vec::new();
    let listening = Listening {
        secret: leader.secret.clone(),
        nonce: nonce()?,
    };
    let Some(frame) = incoming.expect(deadline_ns, leader.stop)? else {
        return Ok(None);
    };
    let challenging = listening.hello(frame, &mut out);
    incoming.stream.write(&out)?;
    out.clear();
    let challenging = challenging?;
    let Some(frame) = incoming.expect(deadline_ns, leader.stop)? else {
        return Ok(None);
    };
    let asked = challenging.follow(frame, &mut out);
    incoming.stream.write(&out)?;
    asked.map(Some)
}

/// The journal that the follower means.
fn find<'a>(leader: &'a Leader<'_>, follow: &Follow) -> Result<&'a Served, ReplicationError> {
    let names = || {
        let names: Vec<_> = leader.served.iter().map(|one| one.name.as_str()).collect();
        names.join(", ")
    };
    match leader.served.as_slice() {
        [only] if follow.journal.is_empty() => Ok(only),
        all => {
            let found = all.iter().find(|served| served.name == follow.journal);
            found.ok_or_else(|| ReplicationError::Refused {
                reason: Reason::UnknownJournal,
                text: match follow.journal.as_str() {
                    "" => format!("it serves several journals; name one: {}", names()),
                    name => format!("it serves no journal '{name}'; there are: {}", names()),
                },
            })
        }
    }
}

/// Where the follower goes on, and where the journal ends.
fn admit(served: &Served, follow: &Follow) -> Result<(u64, u64), ReplicationError> {
    let refused = |reason, text: String| Err(ReplicationError::Refused { reason, text });
    let name = &served.name;
    let lineage = served.identity.lineage;
    if follow.lineage.is_some_and(|theirs| theirs != lineage) {
        let text = format!(
            "the copy is one of another journal than '{name}'; follow into a new directory, or --adopt it, if it was copied from \
             '{name}' by other means"
        );
        return refused(Reason::OtherJournal, text);
    }
    let (first, end) = (served.journal.first()?, served.journal.next()?);
    let next = follow.next;
    if follow.lineage.is_none() && follow.last.is_none() && next == 0 {
        return Ok((first, end));
    }
    if next < first {
        let text = format!(
            "record {next}, which the copy needs next, has been pruned from '{name}', whose first is {first}; \
             follow into a new directory, and keep the old copy for what it holds"
        );
        return refused(Reason::Pruned, text);
    }
    let same = match follow.last {
        _ if next > end => false,
        Some(last) if next > first => {
            let mut reader = served.journal.reader()?;
            let record = reader.read(next - 1)?;
            let crc = record_crc(next - 1, record.time_ns, record.body);
            (last.time_ns, last.crc) == (record.time_ns, crc)
        }
        _ => true,
    };
    if !same {
        let text = format!(
            "the copy's record {} is not that of '{name}', which ends before record {end}: one of the two has lost records \
             or was appended to; follow into a new directory",
            next - 1
        );
        return refused(Reason::Diverged, text);
    }
    Ok((next, end))
}

/// Let the follower in, and find its cursor.
fn enter(
    served: &Served,
    follow: &Follow,
    number: usize,
    stream: &Arc<Stream>,
) -> Result<Cursor, ReplicationError> {
    let name = &follow.follower;
    let refused = |reason, text| ReplicationError::Refused { reason, text };
    let cursor = served
        .journal
        .cursor(&format!("{PREFIX}{name}"), Share::Shared);
    let cursor = match cursor {
        Err(Error::CursorName { .. }) => {
            let text = format!(
                "'{name}' is no name for a follower: 1 to 90 letters, digits, '-', '_' or '.'"
            );
            return Err(refused(Reason::Name, text));
        }
        cursor => cursor?,
    };
    if !served.enter(name, follow.own, number, stream) {
        let text = format!(
            "another follower of '{}' is connected as '{name}'; --as gives this one another name",
            served.name
        );
        return Err(refused(Reason::Taken, text));
    }
    Ok(cursor)
}

/// Tell the follower as well. It may have gone, which changes nothing.
fn refuse(stream: &Stream, error: ReplicationError) -> ReplicationError {
    let (reason, text) = match &error {
        ReplicationError::Refused { reason, text } => (*reason, text.clone()),
        ReplicationError::Journal(Error::Pruned { .. }) => (Reason::Pruned, error.to_string()),
        _ => (Reason::Trouble, error.to_string()),
    };
    let mut out = Vec::new();
    message::write_refused(reason, &text, &mut out);
    if let Err(error) = stream.write(&out) {
        debug!("a refusal was not heard: {error}");
    }
    error
}

/// A follower that follows.
struct Session<'a> {
    leader: &'a Leader<'a>,
    served: &'a Served,
    follower: &'a str,
    number: usize,
    stream: &'a Arc<Stream>,
    cursor: Cursor,
    /// All before this record is on its way.
    sent: AtomicU64,
    ended: AtomicBool,
}

impl Session<'_> {
    fn welcome(&self, asked: &Asked, start: u64, end: u64) -> Result<(), ReplicationError> {
        // Its own word, after a restart: it may have been thrown away and begun anew.
        self.acknowledged(start)?;
        let welcome = Welcome {
            lineage: self.served.identity.lineage,
            segment_bytes: self.served.segment_bytes,
            next: start,
            end,
            heartbeat_ms: self.leader.heartbeat.as_millis() as u32,
        };
        let mut out = Vec::new();
        asked.welcome(&welcome, &mut out);
        self.stream.write(&out)
    }

    fn acknowledged(&self, next: u64) -> Result<(), ReplicationError> {
        let moved = || self.cursor.set(next);
        let moved = self.served.as_current(self.follower, self.number, moved);
        moved.transpose()?;
        Ok(())
    }

    fn run(&self, incoming: Incoming, start: u64) -> Result<(), ReplicationError> {
        std::thread::scope(|scope| {
            let receiving = std::thread::Builder::new()
                .name("acknowledgements".to_owned())
                .spawn_scoped(scope, || {
                    let outcome = self.receive(incoming);
                    self.ended.store(true, Ordering::Relaxed);
                    // Who sees the end of this connection may come back under the same name at once.
                    self.served.leave(self.follower, self.number);
                    // Wakes the sender, should it wait in a write.
                    self.stream.close();
                    outcome
                });
            let receiving = receiving.map_err(|source| ReplicationError::Connection {
                verb: "cannot start a thread".to_owned(),
                source,
            })?;
            let sent = self.send(start);
            self.ended.store(true, Ordering::Relaxed);
            let received = receiving.join().unwrap_or(Ok(()));
            match (sent, received) {
                // When the connection breaks, both notice; what was read says more.
                (Err(ReplicationError::Connection { .. }) | Ok(()), received) => received,
                (sent, _) => sent,
            }
        })
    }

    fn send(&self, start: u64) -> Result<(), ReplicationError> {
        let mut reader = self.served.journal.reader()?;
        let mut out = Vec::new();
        let outcome = reader
            .seek(start)
            .map_err(ReplicationError::from)
            .and_then(|()| self.send_records(&mut reader));
        match outcome {
            Err(error @ ReplicationError::Journal(_)) => Err(refuse(self.stream, error)),
            Err(error) => Err(error),
            Ok(()) => {
                message::write_end(&mut out);
                self.stream.write(&out)
            }
        }
    }

    fn send_records(&self, reader: &mut Reader) -> Result<(), ReplicationError> {
        let mut batch = Batch::new();
        let mut out = Vec::new();
        let mut said_ns = now_ns();
        while !self.leader.stop.load(Ordering::Relaxed) && !self.ended.load(Ordering::Relaxed) {
            while batch.bytes_len() < BATCH_BYTES
                && let Some(record) = reader.next()?
            {
                batch.add(record.sequence, record.time_ns, record.body);
            }
            if !batch.is_empty() {
                self.sent.store(reader.position(), Ordering::Relaxed);
                self.stream.write(batch.take())?;
                said_ns = now_ns();
                continue;
            }
            let silent = Duration::from_nanos(now_ns() - said_ns);
            let left = self.leader.heartbeat.saturating_sub(silent);
            if left.is_zero() {
                out.clear();
                message::write_number(Kind::Alive, reader.position(), &mut out);
                self.stream.write(&out)?;
                said_ns = now_ns();
            }
            reader.wait(Wait::Block, Some(left.min(LOOK)))?;
        }
        Ok(())
    }

    fn receive(&self, mut incoming: Incoming) -> Result<(), ReplicationError> {
        let mut farewell_ns = None;
        loop {
            incoming.read()?;
            while incoming.frames.is_ready() {
                let Some(frame) = incoming.frames.next()? else {
                    break;
                };
                match frame.kind {
                    Kind::End => return Ok(()),
                    Kind::Ack => {
                        let next = message::read_number(frame.payload)?;
                        if next > self.sent.load(Ordering::Relaxed) {
                            let what = format!("record {next} is acknowledged before it was sent");
                            return Err(ReplicationError::protocol(what));
                        }
                        self.acknowledged(next)?;
                    }
                    other => {
                        let what = format!("{other:?} came from a follower");
                        return Err(ReplicationError::protocol(what));
                    }
                }
            }
            if self.ended.load(Ordering::Relaxed) {
                let end = *farewell_ns.get_or_insert(now_ns() + FAREWELL.as_nanos() as u64);
                if now_ns() > end {
                    return Ok(());
                }
            }
            incoming.check_heard(self.leader.heartbeat * DEAD_AFTER)?;
        }
    }
}
