//! Keys and where they live.
//!
//! A key is hashed with XXH3-64 over a canonical encoding, so that every process and language
//! agrees on it. The low eight bits name one of 256 shards; shards are dealt to workers in turn.
//! State and rescaling are organised by shard, which is why the number does not depend on the
//! number of workers.
//!
//! | key | hash |
//! |---|---|
//! | text | `xxh3_64(utf-8 bytes, seed 1)` |
//! | bytes | `xxh3_64(bytes, seed 2)` |
//! | integer | `xxh3_64(two's complement, little-endian, in the least multiple of 8 bytes that holds it, seed 3)` |
//! | tuple | `xxh3_64(the members' hashes, 8 bytes little-endian each, seed 4)` |
//!
//! ```
//! use millstream_flow::key::Key;
//! assert_eq!("a".stable_hash(), String::from("a").stable_hash());
//! assert_ne!("a".stable_hash(), b"a".stable_hash());
//! assert_eq!(7u8.stable_hash(), 7i64.stable_hash());
//! ```

use std::fmt::Debug;
use std::hash::Hash;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::batch::Data;

/// How many shards there are, in every flow.
pub const SHARDS: usize = 256;

/// The hash of a text key, given as UTF-8.
#[must_use]
pub fn hash_text(utf8: &[u8]) -> u64 {
    xxh3_64_with_seed(utf8, 1)
}
/// The hash of a key of bytes.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    xxh3_64_with_seed(bytes, 2)
}
/// The hash of an integer, given as two's complement in a multiple of 8 little-endian bytes.
#[must_use]
pub fn hash_integer(little_endian: &[u8]) -> u64 {
    xxh3_64_with_seed(little_endian, 3)
}
/// The hash of a tuple, from the hashes of its members.
#[must_use]
pub fn hash_tuple(members: &[u64]) -> u64 {
    let mut bytes = Vec::with_capacity(members.len() * 8);
    for member in members {
        bytes.extend_from_slice(&member.to_le_bytes());
    }
    xxh3_64_with_seed(&bytes, 4)
}

/// The shard of a hash.
#[must_use]
pub fn shard(hash: u64) -> usize {
    (hash as usize) % SHARDS
}
/// The worker, of `workers`, to which a shard belongs.
#[must_use]
pub fn worker_of(shard: usize, workers: usize) -> usize {
    shard % workers
}

/// What can be a key: text, bytes, integers, and tuples of them.
pub trait Key: Data + Eq + Hash + Debug {
    /// The hash that every process and language agrees on.
    fn stable_hash(&self) -> u64;
}

impl Key for String {
    fn stable_hash(&self) -> u64 {
        hash_text(self.as_bytes())
    }
}
impl Key for &'static str {
    fn stable_hash(&self) -> u64 {
        hash_text(self.as_bytes())
    }
}
impl Key for Vec<u8> {
    fn stable_hash(&self) -> u64 {
        hash_bytes(self)
    }
}
impl<const N: usize> Key for [u8; N] {
    fn stable_hash(&self) -> u64 {
        hash_bytes(self)
    }
}
impl<const N: usize> Key for &'static [u8; N] {
    fn stable_hash(&self) -> u64 {
        hash_bytes(&self[..])
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
        }
    )*};
}
integer_keys!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, i128);

impl<A: Key, B: Key> Key for (A, B) {
    fn stable_hash(&self) -> u64 {
        hash_tuple(&[self.0.stable_hash(), self.1.stable_hash()])
    }
}
impl<A: Key, B: Key, C: Key> Key for (A, B, C) {
    fn stable_hash(&self) -> u64 {
        hash_tuple(&[
            self.0.stable_hash(),
            self.1.stable_hash(),
            self.2.stable_hash(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Format version 1: saved state is laid out by shard, so that another value here is another
    /// format. The tests of the Python package hold the same table.
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
    fn shards_cover_all_workers() {
        for workers in 1..=5 {
            let mut seen = vec![0usize; workers];
            for key in 0..10_000u32 {
                seen[worker_of(shard(key.stable_hash()), workers)] += 1;
            }
            assert!(
                seen.iter().all(|&n| n > 10_000 / workers / 2),
                "{workers}: {seen:?}"
            );
        }
    }
}
