//! The messages of leader and follower, as bytes. Nothing here waits or reads a socket.
//!
//! The bytes are drawn in `docs/journal-replication.md`. Numbers are little-endian, texts have a length of two bytes before them.
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
const TEXT_MAX: usize = 1_000;
const MAGIC: &[u8; 8] = b"MSFOLLOW";
/// Before the body of each record: its time and its length.
const RECORD_HEADER: usize = 12;

/// A value that is computed with the secret; zeros without a secret.
pub(super) type Proof = [u8; 32];

/// The first message of each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub version: u32,
    /// Whether this side has a secret, which the other must prove.
    pub secret: bool,
}

/// The request of a follower: one journal, or several as a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Follow {
    /// The follower, by a name that no other follower of these journals has.
    pub follower: String,
    pub purpose: Purpose,
    /// The journals, those upstream first; none to ask for their names.
    pub members: Vec<Member>,
}

/// What follows the answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Purpose {
    /// Records.
    Records = 0,
    /// Nothing: the answer says where the histories diverge.
    Probe = 1,
    /// The names of all journals.
    Names = 2,
    /// Records, and the first record of each journal when it was pruned, so that the copy can be pruned too.
    Mirror = 3,
}

impl Purpose {
    fn of(byte: u8) -> Option<Self> {
        let all = [Self::Records, Self::Probe, Self::Names, Self::Mirror];
        all.into_iter().find(|purpose| *purpose as u8 == byte)
    }
}

/// A journal that a follower requests, and the state of its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    pub terms: Vec<Term>,
}

/// The answer of a leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Welcome {
    /// Each side sends a message at least this often.
    pub heartbeat_ms: u32,
    /// For each requested journal; `None` for one that does not exist yet.
    pub members: Vec<Option<Offer>>,
}

/// The records that a follower gets of one journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub lineage: u128,
    pub segment_bytes: u64,
    /// The number of the first record that follows. Of a probe: all records before are the same in both.
    pub next: u64,
    /// The end of the leader's journal.
    pub end: u64,
    /// The newest terms of the leader's journal.
    pub terms: Vec<Term>,
}

impl Hello {
    pub fn write(&self, kind: Kind, out: &mut Vec<u8>) {
        let at = frames::begin(out, kind);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&u32::from(self.secret).to_le_bytes());
        frames::end(out, at);
    }

    pub fn read(payload: &[u8]) -> Result<Self, ReplicationError> {
        let mut fields = Fields(payload);
        if fields.array::<8>()? != *MAGIC {
            return Err(malformed());
        }
        let version = fields.u32()?;
        if version != VERSION {
            // What follows may be anything in another version.
            return Err(ReplicationError::Version {
                theirs: version,
                ours: VERSION,
            });
        }
        let secret = fields.u32()? != 0;
        fields.end(Hello { version, secret })
    }
}

impl Follow {
    /// The bytes that are proved.
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, &self.follower);
        out.push(self.purpose as u8);
        out.push(self.members.len() as u8);
        for member in &self.members {
            member.put(&mut out);
        }
        out
    }

    pub fn read(body: &[u8]) -> Result<Self, ReplicationError> {
        let mut fields = Fields(body);
        let follower = fields.text(NAME_MAX)?;
        let [purpose, count] = fields.array()?;
        let purpose = Purpose::of(purpose).ok_or_else(malformed)?;
        if (count == 0) != (purpose == Purpose::Names) || usize::from(count) > MEMBERS_MAX {
            return Err(malformed());
        }
        let members = (0..count).map(|_| Member::get(&mut fields));
        let members = members.collect::<Result<Vec<_>, _>>()?;
        fields.end(Follow {
            follower,
            purpose,
            members,
        })
    }
}

impl Member {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(out, &self.journal);
        out.push(u8::from(self.lineage.is_some()) | u8::from(self.last.is_some()) << 1);
        out.extend_from_slice(&self.lineage.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&self.own.to_le_bytes());
        out.extend_from_slice(&self.next.to_le_bytes());
        out.extend_from_slice(&self.last.unwrap_or(0).to_le_bytes());
        put_terms(out, &self.terms);
    }

    fn get(fields: &mut Fields<'_>) -> Result<Self, ReplicationError> {
        let journal = fields.text(NAME_MAX)?;
        let [flags] = fields.array()?;
        if flags > 3 {
            return Err(malformed());
        }
        let lineage = u128::from_le_bytes(fields.array()?);
        let (own, next) = (fields.u64()?, fields.u64()?);
        let last = fields.u32()?;
        Ok(Member {
            journal,
            lineage: (flags & 1 != 0).then_some(lineage),
            own,
            next,
            last: (flags & 2 != 0).then_some(last),
            terms: fields.terms()?,
        })
    }
}

impl Welcome {
    /// The bytes that are proved.
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.heartbeat_ms.to_le_bytes());
        out.push(self.members.len() as u8);
        for offer in &self.members {
            out.push(u8::from(offer.is_some()));
            let Some(offer) = offer else { continue };
            out.extend_from_slice(&offer.lineage.to_le_bytes());
            for number in [offer.segment_bytes, offer.next, offer.end] {
                out.extend_from_slice(&number.to_le_bytes());
            }
            put_terms(&mut out, &offer.terms);
        }
        out
    }

    pub fn read(body: &[u8]) -> Result<Self, ReplicationError> {
        let mut fields = Fields(body);
        let heartbeat_ms = fields.u32()?;
        let [count] = fields.array()?;
        let mut members = Vec::new();
        for _ in 0..count {
            members.push(match fields.array()? {
                [0] => None,
                [1] => Some(Offer {
                    lineage: u128::from_le_bytes(fields.array()?),
                    segment_bytes: fields.u64()?,
                    next: fields.u64()?,
                    end: fields.u64()?,
                    terms: fields.terms()?,
                }),
                _ => return Err(malformed()),
            });
        }
        fields.end(Welcome {
            heartbeat_ms,
            members,
        })
    }
}

/// Write a message with its proof: the proof, then the proved bytes.
pub(super) fn write_proved(kind: Kind, proof: &Proof, body: &[u8], out: &mut Vec<u8>) {
    let at = frames::begin(out, kind);
    out.extend_from_slice(proof);
    out.extend_from_slice(body);
    frames::end(out, at);
}

/// The proof of a message, and the proved bytes.
pub(super) fn read_proved(payload: &[u8]) -> Result<(&Proof, &[u8]), ReplicationError> {
    payload.split_first_chunk().ok_or_else(malformed)
}

/// Write that the leader is alive.
pub(super) fn write_alive(out: &mut Vec<u8>) {
    let at = frames::begin(out, Kind::Alive);
    frames::end(out, at);
}

/// Write that all records of a member before `next` are acknowledged.
pub(super) fn write_ack(member: usize, next: u64, out: &mut Vec<u8>) {
    let at = frames::begin(out, Kind::Ack);
    out.extend_from_slice(&(member as u32).to_le_bytes());
    out.extend_from_slice(&next.to_le_bytes());
    frames::end(out, at);
}

/// The member and the number of an ACK or PRUNED.
pub(super) fn read_position(payload: &[u8]) -> Result<(usize, u64), ReplicationError> {
    let mut fields = Fields(payload);
    let ack = (fields.u32()? as usize, fields.u64()?);
    fields.end(ack)
}

/// Write the names of the leader's journals, those upstream first.
pub(super) fn write_names<'a>(names: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    let at = frames::begin(out, Kind::Names);
    names.for_each(|name| put_text(out, name));
    frames::end(out, at);
}

/// The names of the leader's journals.
pub(super) fn read_names(payload: &[u8]) -> Result<Vec<String>, ReplicationError> {
    let mut fields = Fields(payload);
    let mut names = Vec::new();
    while !fields.0.is_empty() {
        names.push(fields.text(NAME_MAX)?);
    }
    Ok(names)
}

/// Write that the leader has no records of a member before `first`.
pub(super) fn write_pruned(member: usize, first: u64, out: &mut Vec<u8>) {
    let at = frames::begin(out, Kind::Pruned);
    out.extend_from_slice(&(member as u32).to_le_bytes());
    out.extend_from_slice(&first.to_le_bytes());
    frames::end(out, at);
}

/// Write that this side has stopped.
pub(super) fn write_end(out: &mut Vec<u8>) {
    let at = frames::begin(out, Kind::End);
    frames::end(out, at);
}

/// Why a follower is refused: the bytes that are proved.
pub(super) fn refused_body(reason: Reason, text: &str) -> Vec<u8> {
    let text: String = text.chars().take(TEXT_MAX / 4).collect();
    [&[reason as u8], text.as_bytes()].concat()
}

/// Why a follower was refused. The sender may not be authenticated yet: control characters are removed from the text.
pub(super) fn read_refused(body: &[u8]) -> ReplicationError {
    let Some((&reason, text)) = body.split_first() else {
        return malformed();
    };
    let text = String::from_utf8_lossy(&text[..text.len().min(TEXT_MAX)]);
    ReplicationError::Refused {
        reason: Reason::of(reason),
        text: text.chars().filter(|c| !c.is_control()).collect(),
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
    fields: Fields<'a>,
}

impl<'a> Records<'a> {
    pub fn read(payload: &'a [u8]) -> Result<Self, ReplicationError> {
        let mut fields = Fields(payload);
        let (member, sequence) = (fields.u32()? as usize, fields.u64()?);
        Ok(Records {
            member,
            sequence,
            fields,
        })
    }

    /// The time and the body of the next record.
    pub fn next(&mut self) -> Result<Option<(u64, &'a [u8])>, ReplicationError> {
        if self.fields.0.is_empty() {
            return Ok(None);
        }
        if self.fields.0.len() < RECORD_HEADER {
            return Err(malformed());
        }
        let (time_ns, length) = (self.fields.u64()?, self.fields.u32()?);
        let body = self.fields.bytes(length as usize)?;
        self.sequence = self.sequence.checked_add(1).ok_or_else(malformed)?;
        Ok(Some((time_ns, body)))
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_terms(out: &mut Vec<u8>, terms: &[Term]) {
    out.push(terms.len() as u8);
    for term in terms {
        for number in [term.number, term.start, term.id] {
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

fn malformed() -> ReplicationError {
    ReplicationError::protocol("a message is not as it should be")
}

/// The fields of a payload that were not read yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], ReplicationError> {
        let (field, rest) = self.0.split_at_checked(count).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(field)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ReplicationError> {
        let (field, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u32(&mut self) -> Result<u32, ReplicationError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, ReplicationError> {
        self.array().map(u64::from_le_bytes)
    }

    fn terms(&mut self) -> Result<Vec<Term>, ReplicationError> {
        let [count] = self.array()?;
        if usize::from(count) > TERMS_MAX {
            return Err(malformed());
        }
        let term = |_| {
            Ok(Term {
                number: self.u64()?,
                start: self.u64()?,
                id: self.u64()?,
            })
        };
        (0..count).map(term).collect()
    }

    fn text(&mut self, most: usize) -> Result<String, ReplicationError> {
        let length = u16::from_le_bytes(self.array()?) as usize;
        if length > most {
            return Err(malformed());
        }
        let text = std::str::from_utf8(self.bytes(length)?).map_err(|_| malformed())?;
        Ok(text.to_owned())
    }

    /// Checks that all fields were read.
    fn end<T>(self, value: T) -> Result<T, ReplicationError> {
        if self.0.is_empty() {
            Ok(value)
        } else {
            Err(malformed())
        }
    }
}
