//! Keys, their hashes, and their assignment to workers.
//!
//! A key is hashed with XXH3-64 over a canonical encoding, so that all processes and languages compute the same
//! hash. Its low bits are the number of a shard, of 256 by default; shards are assigned to workers round-robin.
//! State and rescaling are organised by shard, so that a key's shard does not depend on the number of workers.
//!
//! | key | hash |
//! |---|---|
//! | text | `xxh3_64(utf-8 bytes, seed 1)` |
//! | bytes | `xxh3_64(bytes, seed 2)` |
//! | integer of at most 128 bits | `xxh3_64(two's complement, little-endian, in the least multiple of 8 bytes that holds it, seed 3)` |
//! | boolean | as the integer 0 or 1, to which it is equal in Python |
//! | tuple | `xxh3_64(the members' hashes, 8 bytes little-endian each, seed 4)` |
//!
//! A `char` is text, an `Option` a tuple of one member or none. [`Key`](macro@crate::Key) derives the trait for structs
//! and enums.
//!
//! ```
//! use millstream_flow::key::Key;
//! assert_eq!("a".stable_hash(), String::from("a").stable_hash());
//! assert_ne!("a".stable_hash(), b"a".stable_hash());
//! assert_eq!(7u8.stable_hash(), 7i64.stable_hash());
//! ```

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::batch::Data;
use crate::error::FlowError;
use crate::named::shards;

/// The number of shards into which the keys of a flow are divided: a power of two, chosen at the first start and kept
/// with the state. The workers of all processes are at most as many.
///
/// ```
/// use millstream_flow::key::Shards;
///
/// assert_eq!(Shards::default().count(), 256);
/// assert_eq!(Shards::new(1024)?.of(0x1234_5678), 0x278);
/// assert!(Shards::new(1000).is_err());
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "usize", into = "usize")]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Shards(usize);

impl Default for Shards {
    fn default() -> Self {
        Shards(256)
    }
}

impl TryFrom<usize> for Shards {
    type Error = FlowError;

    fn try_from(count: usize) -> Result<Self, FlowError> {
        Shards::new(count)
    }
}

impl From<Shards> for usize {
    fn from(shards: Shards) -> usize {
        shards.0
    }
}

impl Shards {
    /// The largest number of shards.
    pub const MAX: usize = 32_768;

    /// Checks a number of shards.
    ///
    /// # Errors
    /// It is no power of two from 1 to [`MAX`](Self::MAX).
    pub fn new(count: usize) -> Result<Self, FlowError> {
        match count {
            1..=Self::MAX if count.is_power_of_two() => Ok(Shards(count)),
            _ => Err(FlowError::Usage(format!(
                "the number of shards is a power of two from 1 to {}, not {count}",
                Self::MAX
            ))),
        }
    }

    /// Returns the number.
    #[must_use]
    pub fn count(self) -> usize {
        self.0
    }

    /// Returns the shard of a hash.
    #[must_use]
    pub fn of(self, hash: u64) -> usize {
        hash as usize & (self.0 - 1)
    }

    /// Returns the worker, of `workers`, to which a hash belongs.
    #[must_use]
    pub fn worker(self, hash: u64, workers: usize) -> usize {
        worker_of(self.of(hash), workers)
    }

    /// Checks that each worker of all processes can have a shard.
    pub(crate) fn check_workers(self, workers: usize) -> Result<(), FlowError> {
        if workers <= self.0 {
            return Ok(());
        }
        Err(FlowError::Usage(format!(
            "{workers} workers in all are more than the {} shards of the flow, and some would have no keys; a flow begins with more by \
             {}",
            self.0,
            shards(workers.next_power_of_two())
        )))
    }
}

/// The hash of a text key, given as UTF-8.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn hash_text(utf8: &[u8]) -> u64 {
    xxh3_64_with_seed(utf8, 1)
}
/// The hash of a key of bytes.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, 2)
}
/// The hash of an integer, given as two's complement in a multiple of 8 little-endian bytes.
#[must_use]
pub(crate) fn hash_integer(little_endian: &[u8]) -> u64 {
    xxh3_64_with_seed(little_endian, 3)
}
/// The hash of a tuple, from the hashes of its members.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn hash_tuple(members: &[u64]) -> u64 {
    // Most tuples are short, and need no memory.
    let mut short = [0; 64];
    let mut long = Vec::new();
    let bytes = match short.get_mut(..members.len() * 8) {
        Some(bytes) => bytes,
        None => {
            long.resize(members.len() * 8, 0);
            &mut long[..]
        }
    };
    for (bytes, member) in bytes.chunks_exact_mut(8).zip(members) {
        bytes.copy_from_slice(&member.to_le_bytes());
    }
    xxh3_64_with_seed(bytes, 4)
}

/// A worker among all, with the shards into which keys are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) shards: Shards,
    pub(crate) worker: usize,
    pub(crate) workers: usize,
}

impl Place {
    /// Says what is wrong if a key that a step of this worker has just received under `hash` has another one now, or
    /// one that belongs to another worker.
    pub(crate) fn fault<K: Key>(self, key: &K, hash: u64) -> Option<String> {
        let again = key.stable_hash();
        let owner = self.shards.worker(hash, self.workers);
        let found = if again != hash {
            format!("it was {hash:#x}, and then {again:#x}")
        } else if owner != self.worker {
            format!(
                "the item was sent to worker {}, and its hash is that of worker {owner}",
                self.worker
            )
        } else {
            return None;
        };
        Some(format!(
            "the hash of the key is not stable: {found}; `Key::stable_hash` of {} must depend on nothing but the contents of the key; \
             #[derive(millstream::Key)] makes such a hash",
            std::any::type_name::<K>()
        ))
    }
}

/// Returns the worker, of `workers`, to which a shard belongs.
#[must_use]
pub(crate) fn worker_of(shard: usize, workers: usize) -> usize {
    shard % workers
}

/// Returns the key under which a worker saves state that belongs to no key: the first key in the shard of the
/// worker's number. With fewer workers another worker restores it; the state of the first worker always stays
/// there.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn key_of_worker(worker: usize, shards: Shards) -> u64 {
    let own = |key: &u64| shards.of(key.stable_hash()) == worker % shards.count();
    (0..).find(own).unwrap_or_default()
}

/// A key: text, bytes, an integer, a boolean, or a tuple of keys. [Derived](macro@crate::Key) for structs and enums.
///
/// ```
/// use millstream_flow::Key;
///
/// #[derive(Clone, Debug, PartialEq, Eq, Hash, Key)]
/// struct User(u64);
///
/// #[derive(Clone, Debug, PartialEq, Eq, Hash, Key)]
/// enum Place {
///     Home(User),
///     Abroad { country: String, city: Option<String> },
///     Unknown,
/// }
///
/// let place = Place::Home(User(7));
/// let mut saved = Vec::new();
/// place.save(&mut saved);
/// assert_eq!(Place::load(&mut &saved[..]), Some(place.clone()));
/// assert_eq!(place.stable_hash(), ("Home", 7u64).stable_hash());
/// assert_eq!(Place::Unknown.stable_hash(), "Unknown".stable_hash());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a key",
    label = "not a key",
    note = "structs and enums of your own need `#[derive(Clone, Debug, PartialEq, Eq, Hash, millstream::Key)]`; a key is text, bytes, an \
            integer, `bool`, `char`, or an `Option` or a tuple of up to eight of keys: not a float, and not borrowed"
)]
pub trait Key: Data + Eq + Hash + Debug {
    /// Returns the hash, which is the same in all processes and languages.
    fn stable_hash(&self) -> u64;
    /// Appends the key as MessagePack: text, bytes, an integer, a boolean, or an array of those.
    fn save(&self, out: &mut Vec<u8>);
    /// Reads a saved key from the start of `bytes`; `None` if it is not of this type.
    fn load(bytes: &mut &[u8]) -> Option<Self>;
}

/// The extension type of integers of more than 64 bits: 16 bytes, big-endian.
const WIDE: i8 = 1;

/// Appends a text key.
#[doc(hidden)] // For the other crates of Millstream.
pub fn save_text(text: &str, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = rmp::encode::write_str(out, text);
}
/// Appends a key of bytes.
#[doc(hidden)] // For the other crates of Millstream.
pub fn save_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    let _ = rmp::encode::write_bin(out, bytes);
}
/// Appends an integer key.
#[doc(hidden)] // For the other crates of Millstream.
pub fn save_integer(number: i128, out: &mut Vec<u8>) {
    if let Ok(number) = u64::try_from(number) {
        let _ = rmp::encode::write_uint(out, number);
    } else if let Ok(number) = i64::try_from(number) {
        let _ = rmp::encode::write_sint(out, number);
    } else {
        let _ = rmp::encode::write_ext_meta(out, 16, WIDE);
        out.extend(number.to_be_bytes());
    }
}
/// Appends a boolean key.
#[doc(hidden)] // For the other crates of Millstream.
pub fn save_bool(flag: bool, out: &mut Vec<u8>) {
    let _ = rmp::encode::write_bool(out, flag);
}
/// Appends the header of a tuple; its members follow.
#[doc(hidden)] // For the other crates of Millstream.
pub fn save_tuple(members: u32, out: &mut Vec<u8>) {
    let _ = rmp::encode::write_array_len(out, members);
}

/// A saved key of any type.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum AnyKey {
    /// Text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An integer.
    Integer(i128),
    /// A boolean.
    Bool(bool),
    /// A tuple.
    Tuple(Vec<AnyKey>),
}

impl AnyKey {
    /// How deep tuples are nested at most.
    pub const DEPTH_MAX: usize = 16;

    /// Reads a saved key from the start of `bytes`. Tuples are nested at most [`DEPTH_MAX`](Self::DEPTH_MAX) deep.
    #[must_use]
    pub fn load(bytes: &mut &[u8]) -> Option<Self> {
        Self::load_within(bytes, Self::DEPTH_MAX)
    }

    fn load_within(bytes: &mut &[u8], depth: usize) -> Option<Self> {
        use rmp::Marker::{Array16, Array32, Bin8, Bin16, Bin32, FixArray, FixExt16};
        use rmp::Marker::{False, FixStr, Str8, Str16, Str32, True};
        let take = |bytes: &mut &[u8], length: usize| {
            let (taken, rest) = bytes.split_at_checked(length)?;
            *bytes = rest;
            Some(taken.to_vec())
        };
        match rmp::Marker::from_u8(*bytes.first()?) {
            FixStr(_) | Str8 | Str16 | Str32 => {
                let length = rmp::decode::read_str_len(bytes).ok()?;
                let text = take(bytes, length as usize)?;
                Some(AnyKey::Text(String::from_utf8(text).ok()?))
            }
            Bin8 | Bin16 | Bin32 => {
                let length = rmp::decode::read_bin_len(bytes).ok()?;
                Some(AnyKey::Bytes(take(bytes, length as usize)?))
            }
            FixArray(_) | Array16 | Array32 => {
                let members = rmp::decode::read_array_len(bytes).ok()?;
                let depth = depth.checked_sub(1)?;
                let members = (0..members).map(|_| Self::load_within(bytes, depth));
                Some(AnyKey::Tuple(members.collect::<Option<_>>()?))
            }
            FixExt16 => {
                let meta = rmp::decode::read_ext_meta(bytes).ok()?;
                let number = take(bytes, 16)?.try_into().ok()?;
                (meta.typeid == WIDE).then_some(AnyKey::Integer(i128::from_be_bytes(number)))
            }
            False | True => Some(AnyKey::Bool(rmp::decode::read_bool(bytes).ok()?)),
            _ => {
                let number = rmp::decode::read_int(bytes).ok()?;
                Some(AnyKey::Integer(number))
            }
        }
    }
}

impl std::fmt::Display for AnyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnyKey::Text(text) => write!(f, "{text:?}"),
            AnyKey::Bytes(bytes) => write!(f, "b\"{}\"", bytes.escape_ascii()),
            AnyKey::Integer(number) => write!(f, "{number}"),
            AnyKey::Bool(flag) => write!(f, "{flag}"),
            AnyKey::Tuple(members) => {
                write!(f, "(")?;
                for (place, member) in members.iter().enumerate() {
                    write!(f, "{}{member}", if place > 0 { ", " } else { "" })?;
                }
                write!(f, "{}", if members.len() == 1 { ",)" } else { ")" })
            }
        }
    }
}

/// Formats a saved key for an error.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn show(mut saved: &[u8]) -> String {
    match AnyKey::load(&mut saved) {
        Some(key) => crate::error::shorten(&key.to_string()),
        None => format!("of {} bytes that are not a key", saved.len()),
    }
}

/// Reads the header of a saved tuple with a known number of members.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn load_tuple(bytes: &mut &[u8], members: u32) -> Option<()> {
    (rmp::decode::read_array_len(bytes).ok()? == members).then_some(())
}

impl Key for String {
    fn stable_hash(&self) -> u64 {
        hash_text(self.as_bytes())
    }
    fn save(&self, out: &mut Vec<u8>) {
        save_text(self, out);
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        match AnyKey::load(bytes)? {
            AnyKey::Text(text) => Some(text),
            _ => None,
        }
    }
}
/// A loaded key is never freed: a program has few keys of this type.
impl Key for &'static str {
    fn stable_hash(&self) -> u64 {
        hash_text(self.as_bytes())
    }
    fn save(&self, out: &mut Vec<u8>) {
        save_text(self, out);
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        Some(String::load(bytes)?.leak())
    }
}
impl Key for Vec<u8> {
    fn stable_hash(&self) -> u64 {
        hash_bytes(self)
    }
    fn save(&self, out: &mut Vec<u8>) {
        save_bytes(self, out);
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        match AnyKey::load(bytes)? {
            AnyKey::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}
impl<const N: usize> Key for [u8; N] {
    fn stable_hash(&self) -> u64 {
        hash_bytes(self)
    }
    fn save(&self, out: &mut Vec<u8>) {
        save_bytes(self, out);
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        Vec::load(bytes)?.try_into().ok()
    }
}
/// A loaded key is never freed: a program has few keys of this type.
impl<const N: usize> Key for &'static [u8; N] {
    fn stable_hash(&self) -> u64 {
        hash_bytes(&self[..])
    }
    fn save(&self, out: &mut Vec<u8>) {
        save_bytes(&self[..], out);
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        let key: Box<[u8; N]> = Box::new(<[u8; N]>::load(bytes)?);
        Some(Box::leak(key))
    }
}
macro_rules! integer_keys {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn stable_hash(&self) -> u64 {
                let wide = i128::try_from(*self).unwrap_or(i128::MAX);
                match i64::try_from(wide) {
                    Ok(narrow) => hash_integer(&narrow.to_le_bytes()),
                    Err(_) => hash_integer(&wide.to_le_bytes()),
                }
            }
            fn save(&self, out: &mut Vec<u8>) {
                save_integer(i128::try_from(*self).unwrap_or(i128::MAX), out);
            }
            fn load(bytes: &mut &[u8]) -> Option<Self> {
                match AnyKey::load(bytes)? {
                    AnyKey::Integer(number) => number.try_into().ok(),
                    _ => None,
                }
            }
        }
    )*};
}
integer_keys!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, i128);

/// Reads the name of a saved variant, and returns it with the number of its fields, which follow.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn load_variant(bytes: &mut &[u8]) -> Option<(String, u32)> {
    use rmp::Marker::{Array16, Array32, FixArray};
    let fields = match rmp::Marker::from_u8(*bytes.first()?) {
        FixArray(_) | Array16 | Array32 => {
            // A variant without fields is text.
            let members = rmp::decode::read_array_len(bytes).ok()?;
            members.checked_sub(1).filter(|fields| *fields > 0)?
        }
        _ => 0,
    };
    Some((String::load(bytes)?, fields))
}

impl Key for bool {
    fn stable_hash(&self) -> u64 {
        u8::from(*self).stable_hash()
    }
    fn save(&self, out: &mut Vec<u8>) {
        save_bool(*self, out);
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        match AnyKey::load(bytes)? {
            AnyKey::Bool(flag) => Some(flag),
            _ => None,
        }
    }
}
impl Key for char {
    fn stable_hash(&self) -> u64 {
        hash_text(self.encode_utf8(&mut [0; 4]).as_bytes())
    }
    fn save(&self, out: &mut Vec<u8>) {
        save_text(self.encode_utf8(&mut [0; 4]), out);
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        let text = String::load(bytes)?;
        let mut chars = text.chars();
        chars.next().filter(|_| chars.next().is_none())
    }
}
macro_rules! text_keys {
    ($($t:ty),*) => {$(
        impl Key for $t {
            fn stable_hash(&self) -> u64 {
                hash_text(self.as_bytes())
            }
            fn save(&self, out: &mut Vec<u8>) {
                save_text(self, out);
            }
            fn load(bytes: &mut &[u8]) -> Option<Self> {
                String::load(bytes).map(Self::from)
            }
        }
    )*};
}
text_keys!(Arc<str>, Box<str>);

/// `None` is an empty tuple, `Some` a tuple of one member.
impl<K: Key> Key for Option<K> {
    fn stable_hash(&self) -> u64 {
        match self {
            Some(key) => hash_tuple(&[key.stable_hash()]),
            None => hash_tuple(&[]),
        }
    }
    fn save(&self, out: &mut Vec<u8>) {
        save_tuple(u32::from(self.is_some()), out);
        if let Some(key) = self {
            key.save(out);
        }
    }
    fn load(bytes: &mut &[u8]) -> Option<Self> {
        match rmp::decode::read_array_len(bytes).ok()? {
            0 => Some(None),
            1 => K::load(bytes).map(Some),
            _ => None,
        }
    }
}

macro_rules! tuple_keys {
    ($count:literal: $($name:ident $place:tt),+) => {
        impl<$($name: Key),+> Key for ($($name,)+) {
            fn stable_hash(&self) -> u64 {
                hash_tuple(&[$(self.$place.stable_hash()),+])
            }
            fn save(&self, out: &mut Vec<u8>) {
                save_tuple($count, out);
                $(self.$place.save(out);)+
            }
            fn load(bytes: &mut &[u8]) -> Option<Self> {
                load_tuple(bytes, $count)?;
                Some(($($name::load(bytes)?,)+))
            }
        }
    };
}
tuple_keys!(1: A 0);
tuple_keys!(2: A 0, B 1);
tuple_keys!(3: A 0, B 1, C 2);
tuple_keys!(4: A 0, B 1, C 2, D 3);
tuple_keys!(5: A 0, B 1, C 2, D 3, E 4);
tuple_keys!(6: A 0, B 1, C 2, D 3, E 4, F 5);
tuple_keys!(7: A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple_keys!(8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

#[cfg(test)]
mod tests {
    use super::*;

    /// Format version 1: saved state is arranged by shard, so that a change of a value here is a change of the
    /// format. The tests of the Python package have the same table.
    #[test]
    fn hashes_are_those_of_format_version_1() {
        for (key, hash) in [
            ("".stable_hash(), 0x4dc5_b0cc_826f_6703),
            ("millstream".stable_hash(), 0xf6d9_5279_8c3a_ed4a),
            (String::from("ä€🌊").stable_hash(), 0xb612_3ec6_d49c_21f3),
            (b"".stable_hash(), 0xf36c_f7ec_d1fc_fda0),
            (b"millstream".stable_hash(), 0x25b4_b3cf_4e1a_b17b),
            (0u8.stable_hash(), 0xd4eb_d778_23c7_899a),
            (7u16.stable_hash(), 0xa939_5e52_e7c5_0b79),
            ((-1i32).stable_hash(), 0xa692_96be_964d_b6e3),
            (i64::MAX.stable_hash(), 0x42b7_c655_37a9_99e0),
            (i64::MIN.stable_hash(), 0x0f06_3aef_9d22_9627),
            ((1u64 << 63).stable_hash(), 0xece8_f935_6848_32ae),
            (u64::MAX.stable_hash(), 0x2356_5ea8_3fa3_c9f1),
            ((-(1i128 << 63) - 1).stable_hash(), 0x4959_491b_8f57_6a7d),
            (i128::MAX.stable_hash(), 0xa0dc_9cd4_aa06_50a8),
            (("a", 7).stable_hash(), 0x9e63_0789_af9b_e3f7),
            (("a", b"b", -1).stable_hash(), 0x02c5_b9d3_2de3_68d7),
            ((("a", 7), 1).stable_hash(), 0x6606_9620_7de5_f117),
        ] {
            assert_eq!(key, hash, "{key:#x}");
        }
    }

    #[test]
    fn keys_are_saved_and_loaded() {
        fn there_and_back<K: Key>(key: K, text: &str) {
            let mut saved = Vec::new();
            key.save(&mut saved);
            assert_eq!(show(&saved), text);
            let mut rest = &saved[..];
            assert_eq!(K::load(&mut rest), Some(key));
            assert!(rest.is_empty());
            // Cut at any length, it is not a key.
            for cut in 0..saved.len() {
                assert_eq!(K::load(&mut &saved[..cut]), None);
            }
        }
        there_and_back(String::from("ä"), "\"ä\"");
        there_and_back("text", "\"text\"");
        there_and_back(vec![0u8, 65], "b\"\\x00A\"");
        there_and_back(*b"IBM ", "b\"IBM \"");
        for number in [0i64, 127, 128, -1, -33, i64::MIN, i64::MAX] {
            there_and_back(number, &number.to_string());
        }
        there_and_back(u64::MAX, &u64::MAX.to_string());
        there_and_back(i128::MIN, &i128::MIN.to_string());
        there_and_back(("a", 7u8), "(\"a\", 7)");
        there_and_back((7u8,), "(7,)");
        there_and_back((1, 2, 3, 4, 5, 6, 7, 'h'), "(1, 2, 3, 4, 5, 6, 7, \"h\")");
        there_and_back('ä', "\"ä\"");
        there_and_back(true, "true");
        there_and_back(Arc::<str>::from("text"), "\"text\"");
        there_and_back(Box::<str>::from("text"), "\"text\"");
        there_and_back(None::<u8>, "()");
        there_and_back(Some(Some(7u8)), "((7,),)");
        there_and_back((1u8, (b"b", -1i32), "c"), "(1, (b\"b\", -1), \"c\")");
        let mut text = Vec::new();
        "7".save(&mut text);
        assert_eq!(u64::load(&mut &text[..]), None);
    }

    #[test]
    fn a_saved_boolean_is_no_integer() {
        for flag in [false, true] {
            let mut saved = Vec::new();
            save_bool(flag, &mut saved);
            assert_eq!(show(&saved), flag.to_string());
            assert_eq!(AnyKey::load(&mut &saved[..]), Some(AnyKey::Bool(flag)));
            assert_eq!(u8::load(&mut &saved[..]), None);
        }
    }

    #[test]
    fn tuples_are_nested_as_deep_as_the_limit_says() {
        let nested = |depth| {
            let mut saved = Vec::new();
            (0..depth).for_each(|_| save_tuple(1, &mut saved));
            save_text("inner", &mut saved);
            AnyKey::load(&mut &saved[..])
        };
        assert!(nested(AnyKey::DEPTH_MAX).is_some());
        assert_eq!(nested(AnyKey::DEPTH_MAX + 1), None);
    }

    #[test]
    fn shards_cover_all_workers() {
        let counts = [8, 256, Shards::MAX];
        let shards = counts.map(|count| Shards::new(count).unwrap());
        for (workers, shards) in (1..=5).flat_map(|workers| shards.map(|shards| (workers, shards)))
        {
            let mut seen = vec![0usize; workers];
            for key in 0..10_000u32 {
                seen[shards.worker(key.stable_hash(), workers)] += 1;
            }
            assert!(
                seen.iter().all(|&n| n > 10_000 / workers / 3),
                "{workers}: {seen:?}"
            );
            for worker in 0..workers {
                let key = key_of_worker(worker, shards);
                assert_eq!(shards.worker(key.stable_hash(), workers), worker);
            }
        }
    }
}
