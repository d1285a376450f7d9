//! A seeded generator of numbers, for generated data and simulations that are the same on every machine and in every
//! release.
//!
//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014): one addition and two
//! multiplications per number, any seed is good. It is for data, never for secrets. A seed names a file, and the seed
//! of a failed world repeats that world, so the sequence must not change; a crate's generator may.
//!
//! ```
//! use millstream_journal::random::Random;
//!
//! let (mut one, mut two) = (Random::new(7), Random::new(7));
//! assert_eq!(one.next_u64(), two.next_u64());
//! ```

/// A sequence of numbers that its seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number, uniform over all of `u64`.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, but not including, `limit` (0 if that is 0).
    ///
    /// By multiplication (Lemire); its bias is below `limit / 2^64`.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // From the reference implementation, seed 1234567.
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn numbers_stay_below_their_limit() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|limit| random.below(limit) < limit.max(1)));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
