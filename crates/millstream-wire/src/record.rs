//! The body of a record: two MessagePack values, one after the other.
//!
//! 1. The cause: nil, or `[input, sequence, checksum]` of the record that made the component make this call
//!    ([`Lineage`]). In some calls `[input, sequence, checksum, after ns, calls]`, which also says when that record was
//!    taken ([`Take`]). `[key]` in an external call that is recorded once ([`KeyedCall`]).
//! 2. The contents. A call is `[schema, method, argument...]`: the [`id`](Schema::id) of the schema, the number of the
//!    method in it, and the arguments. A [`Note`] is `[0, kind, ...]`.
//!
//! ```
//! use millstream_wire::{Head, Lineage, Record, pack};
//! let bytes = pack(64, |out| {
//!     Lineage::pack(None, out)?;
//!     Head { schema: 7, method: 1, arguments: 1 }.pack(out)?;
//!     out.str("VOD.L")
//! })?;
//! let Record::Call(lineage, head, mut arguments) = Record::read(&bytes)? else { unreachable!() };
//! assert_eq!((lineage, head.schema, head.method), (None, 7, 1));
//! assert_eq!(arguments.str()?, "VOD.L");
//! # Ok::<(), Box<millstream_wire::WireError>>(())
//! ```

use crate::error::{Misfit, Result};
use crate::pack::{Packer, pack_growing};
use crate::schema::Schema;
use crate::unpack::Unpacker;

/// The length of a lineage, and of one with a [`Take`].
const LINEAGE: usize = 3;
const LINEAGE_AND_TAKE: usize = 5;
/// The length of the first part of a call with a key.
const KEY: usize = 1;

/// The input record that a call is an effect of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lineage {
    /// The number of the input; an [`Input`](Note::Input) note of the same journal names it.
    pub input: u32,
    /// The sequence number of the record in it.
    pub sequence: u64,
    /// The checksum of the record, which differs from that of another one that got its number after the input has lost
    /// its end.
    pub checksum: u32,
}

/// When a component was called with the record that a call is an effect of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Take {
    /// The time from the record's own to the call of the component, in ns.
    pub after_ns: u64,
    /// How many calls this measurement represents: not each one is measured.
    pub calls: u32,
}

/// An external call with a key: its publisher makes it again after a failure, and it is recorded once.
///
/// ```
/// use millstream_wire::{Head, KeyedCall, Record, pack};
/// let head = Head { schema: 7, method: 1, arguments: 0 };
/// let contents = pack(Head::SIZE_MAX, |out| head.pack(out))?;
/// let call = KeyedCall { key: "8e03", contents: &contents };
/// let body = pack(call.size_max(), |out| call.pack(out))?;
/// assert_eq!(body, b"\x91\xa48e03\x92\x07\x01");
/// assert_eq!(KeyedCall::read(&body)?, Some(call));
/// assert!(matches!(Record::read(&body)?, Record::Call(None, found, _) if found == head));
/// # Ok::<(), Box<millstream_wire::WireError>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct KeyedCall<'a> {
    /// The key, which no other call of the journal has for a time.
    pub key: &'a str,
    /// The second part of the record: the schema, the method and the arguments.
    pub contents: &'a [u8],
}

/// A journal as records refer to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct InputName {
    /// The path under which it was opened: a hint for people.
    pub path: String,
    /// The lineage of its identity, which it shares with its copies under any path and on any machine.
    pub identity: u128,
}

/// The method of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The id of the schema.
    pub schema: u32,
    /// The number of the method in the schema, from 1.
    pub method: u64,
    /// How many arguments follow.
    pub arguments: usize,
}

/// A record that is not a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Note {
    /// The schema of calls that follow: `[0, "schema", schema]`.
    Schema(Schema),
    /// An input in the lineage of calls that follow: `[0, "input", number, path, identity]`.
    Input {
        /// Its number in a [`Lineage`].
        number: u32,
        /// Its journal.
        input: InputName,
    },
    /// A record that a component could not take, set aside: `[0, "dead", path, sequence, error, body, identity,
    /// service]`.
    Dead {
        /// The path of the journal that holds it: a hint for people.
        path: String,
        /// The identity of that journal. `None` for a tick of a timer of a service without output, which no journal
        /// records.
        identity: Option<u128>,
        /// The identity of the service's output journal, if it has one.
        service: Option<u128>,
        /// Its sequence number there.
        sequence: u64,
        /// Why it was not taken.
        error: String,
        /// The record in that journal.
        body: Vec<u8>,
    },
}

/// The body of a record.
#[derive(Debug)]
pub enum Record<'a> {
    /// A call: its cause (nothing when it came from an external system), its method, its arguments.
    Call(Option<Lineage>, Head, Unpacker<'a>),
    /// A note, for [`Note::from_bytes`].
    Note(&'a [u8]),
}

impl Lineage {
    /// How many bytes a lineage takes at most.
    #[doc(hidden)] // For the other crates of Millstream.
    pub const SIZE_MAX: usize = 1 + 5 + 9 + 5 + 9 + 5;

    /// Writes the first part of a record, and when its cause was taken.
    ///
    /// # Errors
    /// No space.
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn pack_taken(lineage: Self, take: Take, out: &mut Packer<'_>) -> Result<()> {
        out.array(LINEAGE_AND_TAKE)?;
        lineage.pack_values(out)?;
        out.uint(take.after_ns)?;
        out.uint(take.calls.into())
    }

    /// Writes the first part of a record.
    ///
    /// # Errors
    /// No space.
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn pack(lineage: Option<Self>, out: &mut Packer<'_>) -> Result<()> {
        let Some(lineage) = lineage else {
            return out.nil();
        };
        out.array(LINEAGE)?;
        lineage.pack_values(out)
    }

    #[inline]
    fn pack_values(self, out: &mut Packer<'_>) -> Result<()> {
        out.uint(self.input.into())?;
        out.uint(self.sequence)?;
        out.uint(self.checksum.into())
    }
}

impl Take {
    /// Reads the body of a record as far as the take of its cause. `None` where it is not measured.
    ///
    /// # Errors
    /// The first part is not one of a record.
    pub fn read(body: &[u8]) -> Result<Option<Self>> {
        let mut values = Unpacker::new(body);
        if values.take_nil()? || values.array()? != LINEAGE_AND_TAKE {
            return Ok(None);
        }
        let _input = values.uint()?;
        let _sequence = values.uint()?;
        let _checksum = values.uint()?;
        Ok(Some(Self {
            after_ns: values.uint()?,
            calls: values.narrow_int("u32")?,
        }))
    }
}

impl<'a> KeyedCall<'a> {
    /// How many bytes the record takes at most.
    #[must_use]
    pub fn size_max(&self) -> usize {
        1 + 5 + self.key.len() + self.contents.len()
    }

    /// Writes the record.
    ///
    /// # Errors
    /// No space.
    pub fn pack(&self, out: &mut Packer<'_>) -> Result<()> {
        out.array(KEY)?;
        out.str(self.key)?;
        out.raw(self.contents)
    }

    /// Reads the body of a record. `None` without a key.
    ///
    /// # Errors
    /// The first part is not one of a record.
    #[inline]
    pub fn read(body: &'a [u8]) -> Result<Option<Self>> {
        let mut values = Unpacker::new(body);
        if values.take_nil()? || values.array()? != KEY {
            return Ok(None);
        }
        let key = values.str()?;
        let contents = values.rest();
        Ok(Some(Self { key, contents }))
    }
}

impl InputName {
    /// Writes the path and the identity.
    ///
    /// # Errors
    /// No space.
    pub fn pack(&self, out: &mut Packer<'_>) -> Result<()> {
        out.str(&self.path)?;
        out.bytes(&self.identity.to_be_bytes())
    }

    /// Reads a path and an identity.
    ///
    /// # Errors
    /// There is no text, or there are not 16 bytes after it.
    pub fn unpack(values: &mut Unpacker<'_>) -> Result<Self> {
        Ok(Self {
            path: values.str()?.to_owned(),
            identity: unpack_identity(values)?,
        })
    }
}

/// Reads an identity: 16 bytes, the most significant one first.
fn unpack_identity(values: &mut Unpacker<'_>) -> Result<u128> {
    let bytes = values.bytes()?;
    let identity = <[u8; 16]>::try_from(bytes).map_err(|_| {
        values.misfit(Misfit::Length {
            expected: 16,
            found: bytes.len(),
        })
    })?;
    Ok(u128::from_be_bytes(identity))
}

fn pack_optional_identity(identity: Option<u128>, out: &mut Packer<'_>) -> Result<()> {
    match identity {
        Some(identity) => out.bytes(&identity.to_be_bytes()),
        None => out.nil(),
    }
}

fn unpack_optional_identity(values: &mut Unpacker<'_>) -> Result<Option<u128>> {
    if values.take_nil()? {
        Ok(None)
    } else {
        unpack_identity(values).map(Some)
    }
}

impl Head {
    /// How many bytes a head takes at most.
    #[doc(hidden)] // For the other crates of Millstream.
    pub const SIZE_MAX: usize = 5 + 5 + 9;

    /// Writes the head of the second part; the caller writes the arguments after it.
    ///
    /// # Errors
    /// No space.
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn pack(&self, out: &mut Packer<'_>) -> Result<()> {
        out.array(2 + self.arguments)?;
        out.uint(self.schema.into())?;
        out.uint(self.method)
    }
}

impl<'a> Record<'a> {
    /// Reads the body of a record as far as the arguments of a call.
    ///
    /// # Errors
    /// It is neither a call nor a note.
    #[inline]
    pub fn read(body: &'a [u8]) -> Result<Self> {
        let mut values = Unpacker::new(body);
        let lineage = if values.take_nil()? {
            None
        } else {
            match values.array()? {
                len @ (LINEAGE | LINEAGE_AND_TAKE) => {
                    let input = values.narrow_int("u32")?;
                    let sequence = values.uint()?;
                    let checksum = values.narrow_int("u32")?;
                    if len == LINEAGE_AND_TAKE {
                        values.uint()?;
                        values.uint()?;
                    }
                    Some(Lineage {
                        input,
                        sequence,
                        checksum,
                    })
                }
                len => Self::skip_key(len, &mut values)?,
            }
        };
        let second = values.rest();
        let len = values.array()?;
        if len < 2 {
            return Err(values.misfit(Misfit::Length {
                expected: 2,
                found: len,
            }));
        }
        let schema = values.narrow_int("u32")?;
        if schema == 0 {
            return Ok(Self::Note(second));
        }
        let method = values.uint()?;
        let arguments = len - 2;
        let head = Head {
            schema,
            method,
            arguments,
        };
        Ok(Self::Call(lineage, head, values))
    }

    /// The first part of a record that has no lineage: a key.
    #[cold]
    fn skip_key(len: usize, values: &mut Unpacker<'_>) -> Result<Option<Lineage>> {
        if len != KEY {
            return Err(values.misfit(Misfit::Length {
                expected: LINEAGE,
                found: len,
            }));
        }
        values.str()?;
        Ok(None)
    }
}

impl Note {
    /// The body of the record.
    ///
    /// # Errors
    /// None with a note whose parts are in memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        pack_growing(|out| {
            out.nil()?;
            match self {
                Self::Schema(schema) => {
                    out.array(3)?;
                    out.uint(0)?;
                    out.str("schema")?;
                    schema.pack(out)
                }
                Self::Input { number, input } => {
                    out.array(5)?;
                    out.uint(0)?;
                    out.str("input")?;
                    out.uint((*number).into())?;
                    input.pack(out)
                }
                Self::Dead {
                    path,
                    identity,
                    service,
                    sequence,
                    error,
                    body,
                } => {
                    out.array(8)?;
                    out.uint(0)?;
                    out.str("dead")?;
                    out.str(path)?;
                    out.uint(*sequence)?;
                    out.str(error)?;
                    out.bytes(body)?;
                    pack_optional_identity(*identity, out)?;
                    pack_optional_identity(*service, out)
                }
            }
        })
    }

    /// Reads the second part of the body of a record.
    ///
    /// # Errors
    /// This version knows no such note.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let values = &mut Unpacker::new(bytes);
        let len = values.array()?;
        values.uint()?;
        let note = match (values.str()?, len) {
            ("schema", 3) => Self::Schema(Schema::unpack(values)?),
            ("input", 5) => Self::Input {
                number: values.narrow_int("u32")?,
                input: InputName::unpack(values)?,
            },
            ("dead", 8) => Self::Dead {
                path: values.str()?.to_owned(),
                sequence: values.uint()?,
                error: values.str()?.to_owned(),
                body: values.bytes()?.to_owned(),
                identity: unpack_optional_identity(values)?,
                service: unpack_optional_identity(values)?,
            },
            (kind, _) => {
                let found = format!("{kind:?} of {len} values");
                let expected = "a note that this version knows";
                return Err(values.misfit(Misfit::Kind { expected, found }));
            }
        };
        values.end()?;
        Ok(note)
    }
}
