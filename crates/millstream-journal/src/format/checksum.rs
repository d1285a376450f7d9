//! CRC32C, short and inline where the processor has an instruction for it.
//!
//! Frames are short: the call, the detection and the alignment of a general function cost as much as the checksum of 64
//! bytes. Long inputs go to the `crc32c` crate, which computes three parts of them at once.

/// The checksum of `bytes`, continued from `crc`, the checksum of the bytes before (0 for none).
#[inline]
pub(crate) fn append(crc: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT && std::arch::is_x86_feature_detected!("sse4.2") {
        #[expect(unsafe_code, reason = "instructions that not every processor has")]
        // SAFETY: this one has SSE4.2, as just detected.
        return unsafe { sse::append(crc, bytes) };
    }
    crc32c::crc32c_append(crc, bytes)
}

/// The checksum of three words and a half, little-endian, starting from `crc`.
#[inline]
pub(crate) fn append_words(crc: u32, words: [u64; 3], half: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        #[expect(unsafe_code, reason = "instructions that not every processor has")]
        // SAFETY: this one has SSE4.2, as just detected.
        return unsafe { sse::append_words(crc, words, half) };
    }
    let crc = words.iter().fold(crc, |crc, word| {
        crc32c::crc32c_append(crc, &word.to_le_bytes())
    });
    crc32c::crc32c_append(crc, &half.to_le_bytes())
}

/// From this length on three parts at once are faster than one.
#[cfg(target_arch = "x86_64")]
const SHORT: usize = 512;

#[cfg(target_arch = "x86_64")]
mod sse {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u32, _mm_crc32_u64};

    #[target_feature(enable = "sse4.2")]
    #[inline]
    pub fn append(crc: u32, bytes: &[u8]) -> u32 {
        let (words, rest) = bytes.as_chunks::<8>();
        let mut state = u64::from(!crc);
        for word in words {
            state = _mm_crc32_u64(state, u64::from_le_bytes(*word));
        }
        let mut state = state as u32;
        let (half, rest) = rest.as_chunks::<4>();
        for half in half {
            state = _mm_crc32_u32(state, u32::from_le_bytes(*half));
        }
        !rest
            .iter()
            .fold(state, |state, byte| _mm_crc32_u8(state, *byte))
    }

    #[target_feature(enable = "sse4.2")]
    #[inline]
    pub fn append_words(crc: u32, words: [u64; 3], half: u32) -> u32 {
        let state = words
            .iter()
            .fold(u64::from(!crc), |state, word| _mm_crc32_u64(state, *word));
        !_mm_crc32_u32(state as u32, half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_crate_at_every_length_and_alignment() {
        let bytes: Vec<u8> = (0..2_000_u32).map(|at| (at * 31 % 251) as u8).collect();
        // Miri is a thousand times slower.
        let all = if cfg!(miri) { 30 } else { 600 };
        for start in 0..9 {
            for end in (start..all).chain([1_000, 2_000]) {
                let part = &bytes[start..end];
                assert_eq!(
                    append(7, part),
                    crc32c::crc32c_append(7, part),
                    "{start}..{end}"
                );
            }
        }
        assert_eq!(
            append(0, b"123456789"),
            0xE306_9283,
            "the check value of CRC-32C"
        );
    }

    #[test]
    fn words_are_their_bytes() {
        let words = [1, u64::MAX, 0x0123_4567_89AB_CDEF];
        let half = 0xDEAD_BEEF_u32;
        let mut bytes: Vec<u8> = words
            .iter()
            .flat_map(|word: &u64| word.to_le_bytes())
            .collect();
        bytes.extend(half.to_le_bytes());
        assert_eq!(
            append_words(5, words, half),
            crc32c::crc32c_append(5, &bytes)
        );
    }
}
