//! A connection to a leader, from its address to its WELCOME.

use std::fmt;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use millstream_journal::named::Named;
use millstream_link::{CallerSide, LinkError, Secret, Stream};

use super::error::ReplicationError;
use super::handshake::Calling;
use super::incoming::Incoming;
use super::message::{Follow, Welcome};
use super::{FollowerTls, GREETING, PROTOCOL, deadline_ns};

/// What a follower proves that it knows.
const SECRET: Named = Named(["FollowOptions::secret", "secret_file=", "--secret-file"]);
/// How a follower knows the leader.
const AUTHORITIES: Named = Named(["FollowOptions::tls", "tls_ca=", "--tls-ca"]);

/// The address of a leader, and what authenticates both sides.
pub(super) struct Connector {
    host: String,
    port: u16,
    secret: Option<Secret>,
    tls: Option<CallerSide>,
}

impl fmt::Display for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Connector {
    pub fn new(
        (host, port): &(String, u16),
        secret: Option<Secret>,
        tls: Option<&FollowerTls>,
    ) -> Result<Self, ReplicationError> {
        Ok(Connector {
            tls: CallerSide::new(&PROTOCOL, host, tls, secret.is_some())?,
            host: host.clone(),
            port: *port,
            secret,
        })
    }

    pub fn connect(&self) -> Result<Stream, ReplicationError> {
        let failed = |source| LinkError::connection(format!("cannot connect to {self}"), source);
        let addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(failed)?;
        let mut outcome = Err(std::io::ErrorKind::NotFound.into());
        for address in addresses {
            if self.tls.is_none() && !address.ip().to_canonical().is_loopback() {
                return Err(ReplicationError::Usage(format!(
                    "{self} is not on this machine: following it takes a secret ({SECRET}) or its certificate ({AUTHORITIES})"
                )));
            }
            outcome = TcpStream::connect_timeout(&address, GREETING);
            if outcome.is_ok() {
                break;
            }
        }
        let socket = outcome.map_err(failed)?.into();
        Ok(millstream_link::connect(
            socket,
            &PROTOCOL,
            self.tls.as_ref(),
            GREETING,
            GREETING,
        )?)
    }

    /// Authenticate each other; `None` when `stop` is raised first.
    pub fn authenticate(
        &self,
        incoming: &mut Incoming,
        follow: &Follow,
        stop: &AtomicBool,
    ) -> Result<Option<Welcome>, ReplicationError> {
        let deadline_ns = deadline_ns();
        let mut out = Vec::new();
        let credential = incoming.stream.credential(self.secret.as_ref());
        let calling = Calling::new(credential, &mut out);
        incoming.stream.write(&out)?;
        out.clear();
        let Some(frame) = incoming.expect(deadline_ns, stop)? else {
            return Ok(None);
        };
        let asking = calling.challenge(frame, follow, &mut out)?;
        incoming.stream.write(&out)?;
        let Some(frame) = incoming.expect(deadline_ns, stop)? else {
            return Ok(None);
        };
        let welcome = asking.welcome(frame)?;
        if welcome.members.len() != follow.members.len() {
            return Err(ReplicationError::protocol(
                "the answer is to another question",
            ));
        }
        Ok(Some(welcome))
    }

    /// Ask on a connection of its own, which is closed with the answer.
    pub fn probe(&self, follow: &Follow, stop: &AtomicBool) -> Result<Welcome, ReplicationError> {
        let stream = Arc::new(self.connect()?);
        let mut incoming = Incoming::new(Arc::clone(&stream));
        let welcome = self.authenticate(&mut incoming, follow, stop);
        stream.close();
        welcome?.ok_or_else(|| {
            let hint = ": it was stopped here";
            LinkError::Closed { hint }.into()
        })
    }
}
