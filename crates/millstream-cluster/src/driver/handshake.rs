//! The handshake of a connection inside TLS: both sides prove the secret, if there is one, and the caller says what the connection is for.
//!
//! ```text
//!  caller                                        listener
//!     | HELLO   magic, version, has secret  ->      |
//!     |      <-  magic, version, has secret  CHALLENGE
//!     | CALL    proof, run, from, to, processes ->  |
//!     |      <-                 proof, run  WELCOME |    or REFUSED: proof, again, reason
//! ```

use millstream_flow::error::chain;
use millstream_link::{Credential, Deadline, Frame, LinkError, Proof, Secret, Side, frames};

use super::call::Call;
use super::reader::Reader;
use crate::error::ClusterError;
use crate::protocol::{Kind, VERSION};

const MAGIC: &[u8; 8] = b"MSPROCES";
/// The longest reason of a refusal, in bytes.
const REASON_MAX: usize = 1_000;

/// Why a caller is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    reader
        .stream
        .write(&hello(Kind::Hello, credential.is_some()))?;
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
    let theirs = theirs.map_err(|theirs| {
        let ours = VERSION;
        CallError::from(ClusterError::Version { theirs, ours })
    })?;
    if credential.is_some() && !theirs {
        return Err(other_secret());
    }
    let body = call.body();
    let proof = prove(credential.as_ref(), Side::Caller, &body);
    reader.stream.write(&proved(Kind::Call, &proof, &body))?;
    let frame = reader.expect(deadline)?;
    let (proof, answer) = split(frame.payload)?;
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
    let has_secret = credential.is_some();
    let theirs = read_hello(reader.expect(deadline)?, Kind::Hello)?;
    if let Some(text) = plain {
        let refusal = Refusal::again(text.to_owned());
        reader.stream.write(&refused_bytes(None, &[], &refusal))?;
        return Err(ClusterError::Refused(refusal.text));
    }
    // A caller of another version learns ours.
    reader.stream.write(&hello(Kind::Challenge, has_secret))?;
    theirs.map_err(|theirs| ClusterError::Version {
        theirs,
        ours: VERSION,
    })?;
    let frame = reader.expect(deadline)?;
    if frame.kind != Kind::Call {
        return Err(LinkError::protocol("no call came in the handshake").into());
    }
    let (proof, body) = split(frame.payload)?;
    if !is_proved(credential.as_ref(), Side::Caller, body, proof) {
        let text =
            "the secrets of the two processes differ, or a machine between them breaks TLS open";
        let refusal = Refusal::again(text.to_owned());
        reader.stream.write(&refused_bytes(None, &[], &refusal))?;
        return Err(ClusterError::Refused(refusal.text));
    }
    let (call, body) = (Call::read(body)?, body.to_vec());
    Ok(Caller {
        call,
        body,
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

fn hello(kind: Kind, has_secret: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let at = frames::begin(&mut out, kind);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.push(u8::from(has_secret));
    frames::end(&mut out, at);
    out
}

/// Whether the other side has a secret; its version if that is another.
fn read_hello(frame: Frame<'_, Kind>, kind: Kind) -> Result<Result<bool, u32>, LinkError> {
    let malformed = || LinkError::protocol("this is no greeting of a process of a flow");
    if frame.kind != kind {
        return Err(malformed());
    }
    let (magic, rest) = frame
        .payload
        .split_first_chunk::<8>()
        .ok_or_else(malformed)?;
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(malformed)?;
    if magic != MAGIC {
        return Err(malformed());
    }
    match (u32::from_le_bytes(*version), rest) {
        (VERSION, [has_secret]) => Ok(Ok(*has_secret != 0)),
        (VERSION, _) => Err(malformed()),
        (theirs, _) => Ok(Err(theirs)),
    }
}

fn proved(kind: Kind, proof: &Proof, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let at = frames::begin(&mut out, kind);
    out.extend_from_slice(proof);
    out.extend_from_slice(body);
    frames::end(&mut out, at);
    out
}

fn split(payload: &[u8]) -> Result<(&Proof, &[u8]), LinkError> {
    let malformed = || LinkError::protocol("a message of the handshake is too short");
    payload.split_first_chunk().ok_or_else(malformed)
}

/// An answer is proved together with the question.
fn bound(question: &[u8], answer: &[u8]) -> Vec<u8> {
    [question, answer].concat()
}

fn prove(credential: Option<&Credential>, side: Side, body: &[u8]) -> Proof {
    credential.map_or([0; 32], |credential| credential.prove(side, body))
}

fn is_proved(credential: Option<&Credential>, side: Side, body: &[u8], proof: &Proof) -> bool {
    credential.is_none_or(|credential| credential.is_proved(side, body, proof))
}

fn refused_bytes(credential: Option<&Credential>, question: &[u8], refusal: &Refusal) -> Vec<u8> {
    let text: String = refusal.text.chars().take(REASON_MAX / 4).collect();
    let body = [&[u8::from(refusal.again)], text.as_bytes()].concat();
    let proof = prove(credential, Side::Listener, &bound(question, &body));
    proved(Kind::Refused, &proof, &body)
}

fn refused(payload: &[u8]) -> CallError {
    match split(payload) {
        Ok((_, body)) => refusal_of(body),
        Err(error) => error.into(),
    }
}

/// The sender may not be authenticated: control characters are removed.
fn refusal_of(body: &[u8]) -> CallError {
    let Some((&again, text)) = body.split_first() else {
        return CallError::Passing("it is refused without a reason".to_owned());
    };
    let text = String::from_utf8_lossy(&text[..text.len().min(REASON_MAX)]);
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    match again {
        0 => CallError::Final(ClusterError::Refused(text)),
        _ => CallError::Passing(text),
    }
}
