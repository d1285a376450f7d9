//! Records to append: each differs from all others, and each world has its own lengths.

use std::sync::Arc;

use millstream_journal::random::Random;

/// How long records are.
#[derive(Clone, Copy, Debug)]
enum Lengths {
    /// All the same: a new record fits exactly into the place of one that was torn off.
    Fixed(u64),
    /// Up to this.
    Mixed(u64),
}

/// Makes bodies.
pub struct Bodies {
    lengths: Lengths,
    made: u64,
}

impl Bodies {
    pub fn new(random: &mut Random) -> Self {
        const LENGTHS: [u64; 7] = [8, 16, 64, 200, 1_000, 4_080, 12_000];
        let length = LENGTHS[random.below(LENGTHS.len() as u64) as usize];
        let lengths = if random.below(2) == 0 {
            Lengths::Fixed(length)
        } else {
            Lengths::Mixed(length)
        };
        Bodies { lengths, made: 0 }
    }

    /// A body that begins with its number, as far as there is room.
    pub fn make(&mut self, random: &mut Random) -> Arc<[u8]> {
        let length = match self.lengths {
            Lengths::Fixed(length) => length,
            Lengths::Mixed(limit) => random.below(limit + 1),
        };
        self.made += 1;
        let number = self.made.to_le_bytes();
        let fill = random.next_u64() as u8;
        (0..length as usize)
            .map(|at| number.get(at).copied().unwrap_or(fill ^ at as u8))
            .collect()
    }
}
