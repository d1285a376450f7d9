//! How leader and follower come to know each other: a type for each moment, so that nothing can be said out of turn.
//!
//! Each step takes the message that has come and gives the bytes to answer with. Sockets, journals and clocks are elsewhere.

use super::error::{Reason, ReplicationError};
use super::frames::Frame;
use super::frames::Kind;
use super::message::{self, Follow, Hello, Nonce, VERSION, Welcome, read_proved, write_proved};
use super::secret::{Nonces, Secret, Side, is_proved, prove};

/// A leader to whom nobody has spoken.
pub(super) struct Listening {
    pub secret: Option<Secret>,
    pub nonce: Nonce,
}

/// A leader that has asked for a proof.
pub(super) struct Challenging {
    secret: Option<Secret>,
    nonces: Nonces,
    /// Whether the follower has a secret.
    theirs: bool,
}

/// A leader that knows who follows, and has to say yes or no.
pub(super) struct Asked {
    secret: Option<Secret>,
    nonces: Nonces,
    pub follow: Follow,
}

impl Listening {
    /// The follower's first words.
    pub fn hello(
        self,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Challenging, ReplicationError> {
        let hello = expect(frame, Kind::Hello).and_then(Hello::read);
        let own = Hello {
            version: VERSION,
            secret: self.secret.is_some(),
            nonce: self.nonce,
        };
        if matches!(hello, Ok(_) | Err(ReplicationError::Version { .. })) {
            // Who speaks another version is told ours.
            own.write(Kind::Challenge, out);
        }
        let hello = hello?;
        Ok(Challenging {
            secret: self.secret,
            nonces: Nonces {
                leader: self.nonce,
                follower: hello.nonce,
            },
            theirs: hello.secret,
        })
    }
}

impl Challenging {
    /// What the follower wants. One that does not know the secret is refused, in `out` as well.
    pub fn follow(self, frame: Frame<'_>, out: &mut Vec<u8>) -> Result<Asked, ReplicationError> {
        let (proof, body) = read_proved(expect(frame, Kind::Follow)?)?;
        let text = match (&self.secret, self.theirs) {
            (None, true) => "the follower asks for a secret, and the leader has none".to_owned(),
            (Some(_), false) => "the leader asks for a secret (--secret-file)".to_owned(),
            _ if !is_proved(
                self.secret.as_ref(),
                Side::Follower,
                &self.nonces,
                body,
                proof,
            ) =>
            {
                "the secrets of leader and follower differ".to_owned()
            }
            _ => {
                return Ok(Asked {
                    follow: Follow::read(body)?,
                    secret: self.secret,
                    nonces: self.nonces,
                });
            }
        };
        message::write_refused(Reason::Secret, &text, out);
        Err(ReplicationError::Refused {
            reason: Reason::Secret,
            text,
        })
    }
}

impl Asked {
    /// Say yes.
    pub fn welcome(&self, welcome: &Welcome, out: &mut Vec<u8>) {
        let body = welcome.body();
        let proof = prove(self.secret.as_ref(), Side::Leader, &self.nonces, &body);
        write_proved(Kind::Welcome, &proof, &body, out);
    }
}

/// A follower that has said hello.
pub(super) struct Calling {
    secret: Option<Secret>,
    nonce: Nonce,
}

/// A follower that has asked to follow.
pub(super) struct Asking {
    secret: Option<Secret>,
    nonces: Nonces,
}

impl Calling {
    /// Say the first words.
    pub fn new(secret: Option<Secret>, nonce: Nonce, out: &mut Vec<u8>) -> Self {
        let hello = Hello {
            version: VERSION,
            secret: secret.is_some(),
            nonce,
        };
        hello.write(Kind::Hello, out);
        Calling { secret, nonce }
    }

    /// The leader's first words: prove ours, and ask.
    pub fn challenge(
        self,
        frame: Frame<'_>,
        follow: &Follow,
        out: &mut Vec<u8>,
    ) -> Result<Asking, ReplicationError> {
        let challenge = Hello::read(expect(frame, Kind::Challenge)?)?;
        if self.secret.is_some() && !challenge.secret {
            return Err(ReplicationError::LeaderSecret);
        }
        let nonces = Nonces {
            leader: challenge.nonce,
            follower: self.nonce,
        };
        let body = follow.body();
        let proof = prove(self.secret.as_ref(), Side::Follower, &nonces, &body);
        write_proved(Kind::Follow, &proof, &body, out);
        Ok(Asking {
            secret: self.secret,
            nonces,
        })
    }
}

impl Asking {
    /// The leader's answer.
    pub fn welcome(self, frame: Frame<'_>) -> Result<Welcome, ReplicationError> {
        let (proof, body) = read_proved(expect(frame, Kind::Welcome)?)?;
        let proved = is_proved(
            self.secret.as_ref(),
            Side::Leader,
            &self.nonces,
            body,
            proof,
        );
        if !proved {
            return Err(ReplicationError::LeaderSecret);
        }
        Welcome::read(body)
    }
}

/// The payload of a message that must be of this kind; a refusal is an error of its own.
pub(super) fn expect(frame: Frame<'_>, kind: Kind) -> Result<&[u8], ReplicationError> {
    match frame.kind {
        found if found == kind => Ok(frame.payload),
        Kind::Refused => Err(message::read_refused(frame.payload)),
        found => Err(ReplicationError::protocol(format!(
            "{found:?} came where {kind:?} was expected"
        ))),
    }
}
