//! The handshake of a connection inside TLS: both sides prove the secret, if there is one, and the caller says what the
//! connection is for.
//!
//! ```text
//!  caller                                        listener
//!     | HELLO   magic, version, has secret  ->      |
//!     |      <-  magic, version, has secret  CHALLENGE
//!     | CALL    proof, call                 ->      |
//!     |      <-                proof, call  WELCOME |    or REFUSED: proof, refusal
//! ```

use millstream_flow::error::chain;
use millstream_link::{
    Credential, Deadline, Frame, Greeting, LinkError, Secret, Side, decode, encode, is_proved,
    plain_text, prove, proved, read_proved,
};
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::reader::Reader;
use super::settings::PROTOCOL;
use crate::error::ClusterError;
use crate::protocol::{Kind, VERSION};

/// Why a caller is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Refusal {
    /// Whether it may try again.
    pub(super) again: bool,
    pub(super) text: String,
}

impl Refusal {
    pub(super) fn final_(text: String) -> Self {
        Refusal { again: false, text }
    }

    pub(super) fn again(text: String) -> Self {
        Refusal { again: true, text }
    }
}

/// The caller's side of a handshake failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// No process is there, or it is not reached. Another attempt may succeed.
    Absent(String),
    /// Another attempt may succeed.
    Passing(String),
    /// It would fail again.
    Final(ClusterError),
}

impl From<LinkError> for CallError {
    /// Certificates too may be corrected at the other end.
    fn from(error: LinkError) -> Self {
        CallError::Passing(chain(&error).to_string())
    }
}

impl From<ClusterError> for CallError {
    /// Whatever differs may be corrected at the other end, or is already, once that process is started again.
    fn from(error: ClusterError) -> Self {
        CallError::Passing(chain(&error).to_string())
    }
}

/// Calls: returns when the listener has welcomed this process.
pub(super) fn call(
    reader: &mut Reader,
    secret: Option<&Secret>,
    address: &millstream_link::Address,
    call: &Call,
    deadline: Deadline,
) -> Result<(), CallError> {
    let credential = reader.stream.credential(secret);
    let hello = PROTOCOL.greeting(Kind::Hello, credential.is_some());
    reader.stream.write(&hello)?;
    let other_secret = || {
        let address = address.clone();
        CallError::from(ClusterError::OtherSecret { address })
    };
    let frame = reader.expect(deadline)?;
    if frame.kind == Kind::Refused {
        // What a process says that has not proved the secret is no reason to give up.
        return Err(match credential {
            Some(_) => other_secret(),
            None => refused(frame.payload),
        });
    }
    let theirs = read_hello(frame, Kind::Challenge)?;
    check_version(theirs)?;
    if credential.is_some() && !theirs.has_secret {
        return Err(other_secret());
    }
    let body = encode(call);
    let proof = prove(credential.as_ref(), Side::Caller, &body);
    reader.stream.write(&proved(Kind::Call, &proof, &body))?;
    let frame = reader.expect(deadline)?;
    let (proof, answer) = read_proved(frame.payload)?;
    if !is_proved(
        credential.as_ref(),
        Side::Listener,
        &bound(&body, answer),
        proof,
    ) {
        return Err(other_secret());
    }
    match frame.kind {
        Kind::Welcome if answer == body => Ok(()),
        Kind::Refused => Err(refusal_of(answer)),
        kind => Err(LinkError::protocol(format!("{kind:?} came in the handshake")).into()),
    }
}

/// A caller that has proved the secret and waits for an answer.
pub(super) struct Caller {
    pub(super) call: Call,
    body: Vec<u8>,
    credential: Option<Credential>,
}

/// Listens: returns the request of an authenticated caller. `plain` is the reason to refuse a caller without TLS.
pub(super) fn listen(
    reader: &mut Reader,
    secret: Option<&Secret>,
    plain: Option<&str>,
    deadline: Deadline,
) -> Result<Caller, ClusterError> {
    let credential = reader.stream.credential(secret);
    let theirs = read_hello(reader.expect(deadline)?, Kind::Hello)?;
    if let Some(text) = plain {
        let refusal = Refusal::again(text.to_owned());
        reader.stream.write(&refused_bytes(None, &[], &refusal))?;
        return Err(ClusterError::Refused(refusal.text));
    }
    // A caller of another version learns ours.
    let challenge = PROTOCOL.greeting(Kind::Challenge, credential.is_some());
    reader.stream.write(&challenge)?;
    check_version(theirs)?;
    let frame = reader.expect(deadline)?;
    if frame.kind != Kind::Call {
        return Err(LinkError::protocol("no call came in the handshake").into());
    }
    let (proof, body) = read_proved(frame.payload)?;
    if !is_proved(credential.as_ref(), Side::Caller, body, proof) {
        let text =
            "the secrets of the two processes differ, or a machine between them breaks TLS open";
        let refusal = Refusal::again(text.to_owned());
        reader.stream.write(&refused_bytes(None, &[], &refusal))?;
        return Err(ClusterError::Refused(refusal.text));
    }
    Ok(Caller {
        call: decode(body)?,
        body: body.to_vec(),
        credential,
    })
}

impl Caller {
    /// The bytes that welcome the caller.
    pub(super) fn welcome(&self) -> Vec<u8> {
        let proved_bytes = bound(&self.body, &self.body);
        let proof = prove(self.credential.as_ref(), Side::Listener, &proved_bytes);
        proved(Kind::Welcome, &proof, &self.body)
    }

    /// The bytes that refuse it.
    pub(super) fn refuse(&self, refusal: &Refusal) -> Vec<u8> {
        refused_bytes(self.credential.as_ref(), &self.body, refusal)
    }
}

fn read_hello(frame: Frame<'_, Kind>, kind: Kind) -> Result<Greeting, LinkError> {
    if frame.kind != kind {
        let what = format!("{:?} came where {kind:?} was expected", frame.kind);
        return Err(LinkError::protocol(what));
    }
    PROTOCOL.read_greeting(frame.payload)
}

fn check_version(theirs: Greeting) -> Result<(), ClusterError> {
    let theirs = theirs.version;
    let ours = VERSION;
    if theirs == ours {
        Ok(())
    } else {
        Err(ClusterError::Version { theirs, ours })
    }
}

/// An answer is proved together with the question.
fn bound(question: &[u8], answer: &[u8]) -> Vec<u8> {
    [question, answer].concat()
}

fn refused_bytes(credential: Option<&Credential>, question: &[u8], refusal: &Refusal) -> Vec<u8> {
    let body = encode(&Refusal {
        again: refusal.again,
        text: plain_text(&refusal.text),
    });
    let proof = prove(credential, Side::Listener, &bound(question, &body));
    proved(Kind::Refused, &proof, &body)
}

fn refused(payload: &[u8]) -> CallError {
    match read_proved(payload) {
        Ok((_, body)) => refusal_of(body),
        Err(error) => error.into(),
    }
}

/// The sender may not be authenticated.
fn refusal_of(body: &[u8]) -> CallError {
    match decode(body) {
        Ok(Refusal { again: true, text }) => CallError::Passing(plain_text(&text)),
        Ok(Refusal { text, .. }) => CallError::Final(ClusterError::Refused(plain_text(&text))),
        Err(error) => error.into(),
    }
}
