//! Streams of test data by name: what `millstream generate` and `millstream send --generate` offer.
//!
//! The invariant: kind, count and seed determine every byte.
//!
//! ```
//! use millstream_cli::data::Kind;
//!
//! let mut stream = Vec::new();
//! Kind::Votes.write(3, 1, &Kind::Votes.framing(), &mut stream)?;
//! assert_eq!(stream.len(), 15);
//! # Ok::<(), std::io::Error>(())
//! ```

mod market_spread;

use std::io::{self, Write};

use clap::ValueEnum;
use millstream_flow::framing::{Framing, encode};
use millstream_journal::random::Random;

use self::market_spread::{
    RUNNING_MESSAGES, SYMBOLS, initial_quotes, running_orders, running_quotes,
};

/// What to generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Market Spread: one quote for each of 350 symbols, 15 of them with a rejecting spread.
    MarketSpreadInitial,
    /// Market Spread: running quotes (NBBO).
    MarketSpreadNbbo,
    /// Market Spread: running orders, 5 of a file for rejecting symbols.
    MarketSpreadOrders,
    /// A letter A to Z and a count of votes (u32, big-endian).
    Votes,
    /// A temperature (f32, big-endian).
    Celsius,
    /// Lines of words.
    Lines,
}

impl Kind {
    /// The framing that the kind has by itself.
    pub fn framing(self) -> Framing {
        match self {
            Self::MarketSpreadInitial | Self::MarketSpreadNbbo | Self::MarketSpreadOrders => {
                Framing::U32
            }
            Self::Votes => Framing::Fixed(5),
            Self::Celsius => Framing::Fixed(4),
            Self::Lines => Framing::Lines,
        }
    }

    /// The default number of messages.
    pub fn default_count(self) -> u64 {
        if self == Self::MarketSpreadInitial {
            SYMBOLS as u64
        } else {
            RUNNING_MESSAGES
        }
    }

    /// Write `count` messages in the given framing. Of the initial quotes there are never more than 350.
    ///
    /// # Errors
    /// The framing cannot hold these messages, or `out` cannot be written.
    pub fn write(
        self,
        count: u64,
        seed: u64,
        framing: &Framing,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let mut random = Random::new(seed);
        let take = usize::try_from(count).unwrap_or(usize::MAX);
        match self {
            Self::MarketSpreadInitial => write_all(initial_quotes(seed).take(take), framing, out),
            Self::MarketSpreadNbbo => write_all(running_quotes(count, seed), framing, out),
            Self::MarketSpreadOrders => write_all(running_orders(count, seed), framing, out),
            Self::Votes => write_all((0..count).map(|_| vote(&mut random)), framing, out),
            Self::Celsius => write_all((0..count).map(|_| celsius(&mut random)), framing, out),
            Self::Lines => write_all((0..count).map(|_| line(&mut random)), framing, out),
        }
    }
}

fn write_all<M: AsRef<[u8]>>(
    messages: impl Iterator<Item = M>,
    framing: &Framing,
    out: &mut impl Write,
) -> io::Result<()> {
    const CHUNK_BYTES: usize = 64 * 1024;
    let mut chunk = Vec::with_capacity(2 * CHUNK_BYTES);
    for message in messages {
        encode(framing, message.as_ref(), &mut chunk)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        if chunk.len() >= CHUNK_BYTES {
            out.write_all(&chunk)?;
            chunk.clear();
        }
    }
    out.write_all(&chunk)
}

fn vote(random: &mut Random) -> [u8; 5] {
    let letter = b'A' + random.below(26) as u8;
    let [a, b, c, d] = (1 + random.below(1000) as u32).to_be_bytes();
    [letter, a, b, c, d]
}

fn celsius(random: &mut Random) -> [u8; 4] {
    // Tenths of a degree from -40.0 to 49.9.
    ((random.below(900) as f32 - 400.0) / 10.0).to_be_bytes()
}

fn line(random: &mut Random) -> String {
    const WORDS: [&str; 24] = [
        "the", "water", "of", "a", "stream", "and", "mill", "in", "wheel", "turns", "stone",
        "grain", "to", "flour", "river", "The", "by", "slow", "bread", "over", "rain", "Stone",
        "race", "sluice",
    ];
    let mut line = String::new();
    for _ in 0..3 + random.below(10) {
        // The smaller of two numbers, so that some words are common and others rare.
        let word = random
            .below(WORDS.len() as u64)
            .min(random.below(WORDS.len() as u64));
        line.push_str(if line.is_empty() { "" } else { " " });
        line.push_str(WORDS[word as usize]);
    }
    line
}

#[cfg(test)]
mod tests {
    use millstream_flow::framing::Cutter;

    use super::*;

    fn generate(kind: Kind, count: u64, seed: u64, framing: &Framing) -> Vec<Vec<u8>> {
        let mut stream = Vec::new();
        let mut spans = Vec::new();
        kind.write(count, seed, framing, &mut stream).unwrap();
        let consumed = Cutter::new(framing.clone(), 1000)
            .cut(&stream, 0, &mut spans)
            .unwrap();
        assert_eq!(consumed, stream.len());
        spans
            .iter()
            .map(|&(start, end)| stream[start as usize..end as usize].to_vec())
            .collect()
    }

    #[test]
    fn every_kind_has_its_count_and_length_and_repeats_from_its_seed() {
        let lengths = [Some(42), Some(42), Some(53), Some(5), Some(4), None];
        for (&kind, length) in Kind::value_variants().iter().zip(lengths) {
            let frames = generate(kind, 300, 7, &kind.framing());
            assert_eq!(frames.len(), 300, "{kind:?}");
            assert!(
                frames
                    .iter()
                    .all(|frame| length.is_none_or(|length| frame.len() == length)),
                "{kind:?}"
            );
            assert_eq!(frames, generate(kind, 300, 7, &kind.framing()), "{kind:?}");
            assert_ne!(
                generate(kind, 350, 7, &Framing::U16),
                generate(kind, 350, 8, &Framing::U16),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn votes_temperatures_and_lines_are_what_they_say() {
        for vote in generate(Kind::Votes, 1000, 1, &Framing::Fixed(5)) {
            let votes = u32::from_be_bytes(vote[1..].try_into().unwrap());
            assert!(vote[0].is_ascii_uppercase() && (1..=1000).contains(&votes));
        }
        for degrees in generate(Kind::Celsius, 1000, 1, &Framing::U32) {
            assert!((-40.0..50.0).contains(&f32::from_be_bytes(degrees.try_into().unwrap())));
        }
        for line in generate(Kind::Lines, 1000, 1, &Framing::Lines) {
            assert!((3..=12).contains(&String::from_utf8(line).unwrap().split(' ').count()));
        }
    }

    #[test]
    fn a_framing_that_cannot_hold_the_messages_is_an_error() {
        let error = Kind::Votes
            .write(1, 1, &Framing::Fixed(4), &mut Vec::new())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "a frame of 5 bytes cannot be written: every frame must have 4"
        );
    }
}
