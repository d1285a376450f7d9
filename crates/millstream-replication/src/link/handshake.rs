//! The handshake of leader and follower inside TLS: a type for each of its states, so that no message is accepted out
//! of order.
//!
//! Each step takes the message that was received and writes the bytes of the answer. Sockets, TLS, journals and clocks
//! are elsewhere.

use millstream_link::{Credential, Greeting, Side, encode, is_proved, prove, proved, read_proved};

use super::PROTOCOL;
use super::error::{Reason, ReplicationError};
use super::frames::Frame;
use super::frames::Kind;
use super::message::{self, Follow, VERSION, Welcome, read_refused};

/// A leader before the first message of a follower.
pub(super) struct Listening<'a> {
    pub credential: Option<Credential>,
    /// Why every follower on this connection is refused: it has no TLS, and the leader requires it.
    pub refusal: Option<&'a str>,
}

/// A leader that has answered HELLO and waits for FOLLOW.
pub(super) struct Challenging {
    credential: Option<Credential>,
    follower_has_secret: bool,
}

/// A leader that has authenticated the follower, and must accept or refuse its request.
pub(super) struct PendingRequest {
    pub credential: Option<Credential>,
    pub follow: Follow,
}

impl Listening<'_> {
    /// HELLO of the follower.
    pub fn hello(
        self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Challenging, ReplicationError> {
        let hello = PROTOCOL.read_greeting(expect(frame, Kind::Hello)?)?;
        let checked = check_version(hello);
        if let (Ok(()), Some(text)) = (&checked, self.refusal) {
            return Err(refuse_secret(text, out));
        }
        // A follower of another version learns ours, with TLS and without.
        out.extend(PROTOCOL.greeting(Kind::Challenge, self.credential.is_some()));
        checked?;
        Ok(Challenging {
            credential: self.credential,
            follower_has_secret: hello.has_secret,
        })
    }
}

impl Challenging {
    /// FOLLOW. A follower that does not prove the secret is refused, in `out` as well.
    pub fn follow(
        self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<PendingRequest, ReplicationError> {
        let (proof, body) = read_proved(expect(frame, Kind::Follow)?)?;
        let refusal = match &self.credential {
            None if self.follower_has_secret => {
                "the follower asks for a secret, and the leader has none"
            }
            Some(_) if !self.follower_has_secret => {
                "the leader asks for a secret: give the one that it has"
            }
            Some(credential) if !credential.is_proved(Side::Caller, body, proof) => {
                "the secrets of leader and follower differ, or a machine between them breaks TLS open"
            }
            _ => {
                return Ok(PendingRequest {
                    follow: Follow::read(body)?,
                    credential: self.credential,
                });
            }
        };
        Err(refuse_secret(refusal, out))
    }
}

impl PendingRequest {
    /// Accept.
    pub fn welcome(&self, welcome: &Welcome, out: &mut Vec<u8>) {
        let body = encode(welcome);
        let proof = prove(self.credential.as_ref(), Side::Listener, &body);
        out.extend(proved(Kind::Welcome, &proof, &body));
    }
}

/// Refuse a follower that has not proved the secret: without a proof of ours.
fn refuse_secret(text: &str, out: &mut Vec<u8>) -> ReplicationError {
    write_refused(None, Reason::Secret, text, out);
    ReplicationError::Refused {
        reason: Reason::Secret,
        text: text.to_owned(),
    }
}

/// Write why a follower is refused, with the leader's proof when there is a secret that the follower has proved.
pub(super) fn write_refused(
    credential: Option<&Credential>,
    reason: Reason,
    text: &str,
    out: &mut Vec<u8>,
) {
    let body = message::refused_body(reason, text);
    let proof = prove(credential, Side::Listener, &body);
    out.extend(proved(Kind::Refused, &proof, &body));
}

/// A follower that has sent HELLO.
pub(super) struct Calling {
    credential: Option<Credential>,
}

/// A follower that has sent FOLLOW.
pub(super) struct Asking {
    credential: Option<Credential>,
}

impl Calling {
    /// Send HELLO.
    pub fn new(credential: Option<Credential>, out: &mut Vec<u8>) -> Self {
        out.extend(PROTOCOL.greeting(Kind::Hello, credential.is_some()));
        Calling { credential }
    }

    /// CHALLENGE of the leader: prove the secret, and send the request.
    pub fn challenge(
        self,
        frame: Frame<'_>,
        follow: &Follow,
        out: &mut Vec<u8>,
    ) -> Result<Asking, ReplicationError> {
        let payload = authentic(frame, Kind::Challenge, self.credential.as_ref())?;
        let challenge = PROTOCOL.read_greeting(payload)?;
        check_version(challenge)?;
        if self.credential.is_some() && !challenge.has_secret {
            return Err(ReplicationError::LeaderSecret);
        }
        let body = encode(follow);
        let proof = prove(self.credential.as_ref(), Side::Caller, &body);
        out.extend(proved(Kind::Follow, &proof, &body));
        Ok(Asking {
            credential: self.credential,
        })
    }
}

impl Asking {
    /// WELCOME of the leader. Nothing of it is read before its proof is verified.
    pub fn welcome(self, frame: Frame<'_>) -> Result<Welcome, ReplicationError> {
        let credential = self.credential.as_ref();
        let (proof, body) = read_proved(authentic(frame, Kind::Welcome, credential)?)?;
        if is_proved(credential, Side::Listener, body, proof) {
            Welcome::read(body)
        } else {
            Err(ReplicationError::LeaderSecret)
        }
    }
}

fn check_version(theirs: Greeting) -> Result<(), ReplicationError> {
    let theirs = theirs.version;
    let ours = VERSION;
    if theirs == ours {
        Ok(())
    } else {
        Err(ReplicationError::Version { theirs, ours })
    }
}

/// The payload of a message of this kind. Without a proof, a refusal says only that the secrets differ: an impostor
/// could otherwise say that the leader is superseded.
fn authentic<'a>(
    frame: Frame<'a>,
    kind: Kind,
    credential: Option<&Credential>,
) -> Result<&'a [u8], ReplicationError> {
    if frame.kind == Kind::Refused {
        let (proof, body) = read_proved(frame.payload)?;
        let refused = read_refused(body);
        let is_about_secret = matches!(
            refused,
            ReplicationError::Refused {
                reason: Reason::Secret,
                ..
            }
        );
        if !is_about_secret && !is_proved(credential, Side::Listener, body, proof) {
            return Err(ReplicationError::LeaderSecret);
        }
        return Err(refused);
    }
    expect(frame, kind)
}

/// The payload of a message that must be of this kind; a refusal is an error of its own.
pub(super) fn expect(frame: Frame<'_>, kind: Kind) -> Result<&[u8], ReplicationError> {
    match frame.kind {
        found if found == kind => Ok(frame.payload),
        Kind::Refused => Err(read_refused(read_proved(frame.payload)?.1)),
        found => Err(ReplicationError::protocol(format!(
            "{found:?} came where {kind:?} was expected"
        ))),
    }
}
