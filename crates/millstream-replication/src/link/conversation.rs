//! One connection of a follower from its first message to its last: handshake, admission, then a thread that sends
//! records and one that receives acknowledgements.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_journal::chain;
use millstream_link::{LinkError, Stream};
use tracing::{info, warn};

use super::admit::{admit, find};
use super::error::ReplicationError;
use super::handshake::{Listening, PendingRequest};
use super::incoming::Incoming;
use super::leader::Leader;
use super::message::{self, Purpose, Welcome};
use super::session::{Session, no_thread, refuse};
use super::watch::Watch;
use super::{DEAD_AFTER, GREETING, deadline_ns, send};

/// Serve one connection until it ends.
pub(super) fn run(leader: &Leader<'_>, socket: TcpStream, peer: SocketAddr, number: usize) {
    let patience = leader.heartbeat * DEAD_AFTER;
    let (stream, refusal) = match leader
        .tls
        .accept(socket.into(), GREETING, patience, leader.stop)
    {
        Ok(Some((stream, refusal))) => (Arc::new(stream), refusal),
        Ok(None) => return,
        Err(error @ LinkError::Tls(_)) => return warn!("{peer}: {}", chain(&error)),
        Err(error) => return info!("{peer}: {}", chain(&error)),
    };
    let outcome = converse(leader, &stream, refusal, peer, number);
    stream.close();
    match outcome {
        Ok(()) => {}
        Err(error @ ReplicationError::Link(LinkError::Closed { .. })) => {
            info!("{peer}: {}", chain(&error))
        }
        Err(error) => warn!("{peer}: {}", chain(&error)),
    }
}

fn converse(
    leader: &Leader<'_>,
    stream: &Arc<Stream>,
    refusal: Option<&str>,
    peer: SocketAddr,
    number: usize,
) -> Result<(), ReplicationError> {
    let mut incoming = Incoming::new(Arc::clone(stream));
    let Some(asked) = authenticate(leader, &mut incoming, refusal)? else {
        return Ok(());
    };
    let follow = &asked.follow;
    let credential = asked.credential.as_ref();
    let admitted = find(leader, follow).and_then(|found| Ok((admit(&found, follow)?, found)));
    let (offers, found) = admitted.map_err(|error| refuse(stream, credential, error))?;
    let welcome = Welcome {
        heartbeat_ms: leader.heartbeat.as_millis() as u32,
        members: offers,
    };
    let mut out = Vec::new();
    asked.welcome(&welcome, &mut out);
    match follow.purpose {
        Purpose::Probe => return Ok(stream.write(&out)?),
        Purpose::Names => {
            out.extend(names(leader));
            return Ok(stream.write(&out)?);
        }
        Purpose::Records | Purpose::Mirror => {}
    }
    let mut session = Session {
        leader,
        follower: &follow.follower,
        number,
        stream,
        credential,
        is_mirror: follow.purpose == Purpose::Mirror,
        members: Vec::new(),
        ended: AtomicBool::new(false),
        watch: Watch::default(),
        answered_ns: Arc::default(),
    };
    let outcome = session
        .enter(found, follow, &welcome)
        .map_err(|error| refuse(stream, credential, error));
    let outcome = outcome
        .and_then(|()| Ok(stream.write(&out)?))
        .and_then(|()| {
            for (served, start) in session.starts() {
                info!(
                    "{peer}: '{}' follows '{}' from record {start} on",
                    session.follower, served.name
                );
            }
            follow_until_end(&session, incoming)
        });
    session.leave();
    for member in session
        .members
        .iter()
        .filter_map(|member| member.progress.as_ref())
    {
        let at = member.cursor.position()?;
        info!(
            "{peer}: '{}' has disconnected; it has all before record {at} of '{}'",
            session.follower, member.name
        );
    }
    outcome
}

/// NAMES with the journals that the leader serves.
fn names(leader: &Leader<'_>) -> Vec<u8> {
    let named = leader.served.iter().filter(|served| !served.is_companion);
    message::names_frame(named.map(|served| served.name.as_str()))
}

/// Authenticate each other; `None` when `stop` is raised first.
fn authenticate(
    leader: &Leader<'_>,
    incoming: &mut Incoming,
    refusal: Option<&str>,
) -> Result<Option<PendingRequest>, ReplicationError> {
    let deadline_ns = deadline_ns();
    let mut out = Vec::new();
    let listening = Listening {
        credential: incoming.stream.credential(leader.secret.as_ref()),
        refusal,
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

/// Sends on this thread, and receives acknowledgements on another.
fn follow_until_end(session: &Session<'_>, incoming: Incoming) -> Result<(), ReplicationError> {
    std::thread::scope(|scope| {
        let receiving = std::thread::Builder::new()
            .name("acknowledgements".to_owned())
            .spawn_scoped(scope, || {
                let outcome = session.receive(incoming);
                session.ended.store(true, Ordering::Relaxed);
                // A follower that sees the end of this connection may connect again under the same name at once.
                session.leave();
                // Wakes the sender, should it wait in a write.
                session.stream.close();
                outcome
            });
        let receiving = receiving.map_err(no_thread)?;
        let sent = send::run(session, scope);
        session.ended.store(true, Ordering::Relaxed);
        let received = receiving.join().unwrap_or(Ok(()));
        match (sent, received) {
            // When the connection breaks, both notice; what was read says more.
            (Err(ReplicationError::Link(LinkError::Connection { .. })) | Ok(()), received) => {
                received
            }
            (sent, _) => sent,
        }
    })
}
