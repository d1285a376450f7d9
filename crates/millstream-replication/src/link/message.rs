//! The messages of leader and follower, as bytes. Nothing here waits or reads a socket.
//!
//! The bytes are drawn in `docs/journal-replication.md`. Messages are in the form of [`millstream_link::encode`];
//! records, of which there are many, are raw bytes after little-endian numbers.
//!
//! ```text
//!  follower                                       leader
//!     | HELLO      version             ->           |
//!     |            <-          version  CHALLENGE   |
//!     | FOLLOW     proof, positions    ->           |
//!     |            <-  proof, positions  WELCOME    |     or REFUSED, with the reason
//!     |            <-           records  RECORDS    |     and ALIVE while there are none
//!     | ACK        position            ->           |     and again while there is none
//!     | END                               END       |     the side that stops
//! ```

use millstream_journal::Term;
use millstream_link::{decode, encode, plain_text};
use serde::{Deserialize, Serialize};

use super::error::{Reason, ReplicationError};
use super::frames::{self, Kind};

/// The version of the protocol.
pub(super) const VERSION: u32 = 1;
/// The longest payload before authentication, and of all messages of a follower.
pub(super) const PAYLOAD_MAX: usize = 256 << 10;
/// The longest payload of a leader: a record of the longest kind.
pub(super) const RECORDS_MAX: usize = (1 << 28) + 64;
/// The longest name of a journal or a follower.
pub(super) const NAME_MAX: usize = 100;
/// How many journals a set has at most.
pub(super) const MEMBERS_MAX: usize = 64;
/// How many terms of a journal are sent, the newest ones.
pub(super) const TERMS_MAX: usize = 100;

/// The request of a follower: one journal, or several as a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Follow {
    /// The follower, by a name that no other follower of these journals has.
    pub follower: String,
    pub purpose: Purpose,
    /// The journals, those upstream first; none to ask for their names.
    pub members: Vec<Member>,
}

/// What follows the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// Records.
    Records,
    /// Nothing: the answer says where the histories diverge.
    Probe,
    /// The names of all journals.
    Names,
    /// Records, and the first record of each journal when it was pruned, so that the copy can be pruned too.
    Mirror,
}

/// A journal that a follower requests, and the state of its copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Member {
    /// The journal, by the name that the leader has given it; empty for the only one.
    pub journal: String,
    /// The lineage of the copy, if there is one.
    pub lineage: Option<u128>,
    /// The copy's own number, which distinguishes two followers of one name.
    pub own: u64,
    /// The record that it needs next.
    pub next: u64,
    /// The [checksum](millstream_journal::checksum_of) of the record before that, if the copy has it.
    pub last: Option<u32>,
    /// The newest terms of the copy.
    #[serde(with = "terms")]
    pub terms: Vec<Term>,
}

/// The answer of a leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Welcome {
    /// Each side sends a message at least this often.
    pub heartbeat_ms: u32,
    /// For each requested journal; `None` for one that does not exist yet.
    pub members: Vec<Option<Offer>>,
}

/// The records that a follower gets of one journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Offer {
    pub lineage: u128,
    pub segment_bytes: u64,
    /// The number of the first record that follows. Of a probe: all records before are the same in both.
    pub next: u64,
    /// The end of the leader's journal.
    pub end: u64,
    /// The newest terms of the leader's journal.
    #[serde(with = "terms")]
    pub terms: Vec<Term>,
}

/// A position in the journal of a member. ACK: all its records before it are acknowledged. PRUNED: the leader has none
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct At {
    pub member: usize,
    pub next: u64,
}

/// Why a follower is refused.
#[derive(Serialize, Deserialize)]
struct Refusal {
    reason: Reason,
    text: String,
}

/// A term as its number, its first sequence number and its random number.
mod terms {
    use millstream_journal::Term;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(terms: &[Term], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(terms.iter().map(|term| (term.number, term.start, term.id)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Term>, D::Error> {
        let terms = Vec::<(u64, u64, u64)>::deserialize(from)?.into_iter();
        let term = |(number, start, id)| Term { number, start, id };
        Ok(terms.map(term).collect())
    }
}

impl Follow {
    /// The request, if all in it is within its limits.
    pub fn read(body: &[u8]) -> Result<Self, ReplicationError> {
        let follow: Follow = decode(body)?;
        let names_only = follow.purpose == Purpose::Names;
        let is_valid = follow.follower.len() <= NAME_MAX
            && follow.members.is_empty() == names_only
            && follow.members.len() <= MEMBERS_MAX
            && follow
                .members
                .iter()
                .all(|member| member.journal.len() <= NAME_MAX && member.terms.len() <= TERMS_MAX);
        valid(is_valid, follow)
    }
}

impl Welcome {
    /// The answer, if all in it is within its limits.
    pub fn read(body: &[u8]) -> Result<Self, ReplicationError> {
        let welcome: Welcome = decode(body)?;
        let is_valid = welcome.members.len() <= MEMBERS_MAX
            && (welcome.members.iter().flatten()).all(|offer| offer.terms.len() <= TERMS_MAX);
        valid(is_valid, welcome)
    }
}

impl At {
    /// The frame of an ACK or PRUNED.
    pub fn frame(self, kind: Kind) -> Vec<u8> {
        frames::frame(kind, &[&encode(&self)])
    }
}

/// The frame with the names of the leader's journals, those upstream first.
pub(super) fn names_frame<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u8> {
    frames::frame(Kind::Names, &[&encode(&names.collect::<Vec<_>>())])
}

/// The names of the leader's journals.
pub(super) fn read_names(payload: &[u8]) -> Result<Vec<String>, ReplicationError> {
    let names: Vec<String> = decode(payload)?;
    valid(names.iter().all(|name| name.len() <= NAME_MAX), names)
}

fn valid<T>(is_valid: bool, message: T) -> Result<T, ReplicationError> {
    if is_valid {
        Ok(message)
    } else {
        Err(malformed())
    }
}

/// Why a follower is refused: the bytes that are proved.
pub(super) fn refused_body(reason: Reason, text: &str) -> Vec<u8> {
    let text = plain_text(text);
    encode(&Refusal { reason, text })
}

/// Why a follower was refused. The sender may not be authenticated yet.
pub(super) fn read_refused(body: &[u8]) -> ReplicationError {
    match decode(body) {
        Ok(Refusal { reason, text }) => ReplicationError::Refused {
            reason,
            text: plain_text(&text),
        },
        Err(error) => error.into(),
    }
}

/// Records on their way to a follower: one frame, filled up record by record.
pub(super) struct Batch {
    member: u32,
    bytes: Vec<u8>,
    records: u64,
}

impl Batch {
    /// Of this member of the set.
    pub fn new(member: usize) -> Self {
        Batch {
            member: member as u32,
            bytes: Vec::new(),
            records: 0,
        }
    }

    /// Add a record. The first one says where the batch begins; the others follow without a gap.
    pub fn add(&mut self, sequence: u64, time_ns: u64, body: &[u8]) {
        if self.records == 0 {
            self.bytes.clear();
            frames::begin(&mut self.bytes, Kind::Records);
            self.bytes.extend_from_slice(&self.member.to_le_bytes());
            self.bytes.extend_from_slice(&sequence.to_le_bytes());
        }
        self.bytes.extend_from_slice(&time_ns.to_le_bytes());
        self.bytes
            .extend_from_slice(&(body.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(body);
        self.records += 1;
    }

    /// Its length in bytes.
    pub fn bytes_len(&self) -> usize {
        if self.records == 0 {
            0
        } else {
            self.bytes.len()
        }
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// The bytes to send. The batch is empty afterwards.
    pub fn take(&mut self) -> &[u8] {
        if std::mem::take(&mut self.records) == 0 {
            return &[];
        }
        frames::end(&mut self.bytes, 0);
        &self.bytes
    }
}

/// The records of a RECORDS message.
pub(super) struct Records<'a> {
    /// The member of the set that they belong to.
    pub member: usize,
    /// The number of the next record.
    pub sequence: u64,
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    pub fn read(mut rest: &'a [u8]) -> Result<Self, ReplicationError> {
        let member = u32::from_le_bytes(take(&mut rest)?) as usize;
        let sequence = u64::from_le_bytes(take(&mut rest)?);
        Ok(Records {
            member,
            sequence,
            rest,
        })
    }

    /// The time and the body of the next record.
    pub fn next(&mut self) -> Result<Option<(u64, &'a [u8])>, ReplicationError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let time_ns = u64::from_le_bytes(take(&mut self.rest)?);
        let length = u32::from_le_bytes(take(&mut self.rest)?) as usize;
        let (body, rest) = self.rest.split_at_checked(length).ok_or_else(malformed)?;
        self.rest = rest;
        self.sequence = self.sequence.checked_add(1).ok_or_else(malformed)?;
        Ok(Some((time_ns, body)))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ReplicationError> {
    let (field, after) = rest.split_first_chunk().ok_or_else(malformed)?;
    *rest = after;
    Ok(*field)
}

fn malformed() -> ReplicationError {
    ReplicationError::protocol("a message is not as it should be")
}
