//! What can go wrong between bytes and frames.

use super::Framing;

/// Why bytes could not be cut into frames, or a frame not be written as bytes.
///
/// An `offset` counts bytes from the start of the stream to the first byte of the frame at fault, its prefix included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramingError {
    /// A frame is longer than the limit that the cutter was given.
    #[error(
        "the frame at offset {offset} is {length} bytes long, over the limit of {limit} (wrong framing, or raise the limit)"
    )]
    FrameTooLong {
        /// Where the frame starts in the stream.
        offset: u64,
        /// Its length; of an unfinished line, what has been seen of it.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The stream ended in the middle of a frame.
    #[error("the stream ended inside the frame at offset {offset}: {have} of {need} bytes arrived")]
    Truncated {
        /// Where the frame starts in the stream.
        offset: u64,
        /// How many of its bytes are there, with the prefix.
        have: usize,
        /// How many there should be, with the prefix; only the prefix, when that is cut too.
        need: usize,
    },
    /// A frame to be written does not fit its length prefix.
    #[error("a frame of {length} bytes does not fit the framing {framing}, which ends at {limit}")]
    PrefixTooNarrow {
        /// The length of the frame.
        length: usize,
        /// The longest frame that the prefix can announce.
        limit: usize,
        /// The framing.
        framing: Framing,
    },
    /// A frame to be written has not the length that all frames must have.
    #[error("a frame of {length} bytes cannot be written: every frame must have {need}")]
    WrongLength {
        /// The length of the frame.
        length: usize,
        /// The length of all frames.
        need: usize,
    },
    /// A frame to be written as a line has a line end inside, or a CR at its end: it would be read back as something else.
    #[error("a frame with a line end at byte {at} cannot be written as a line")]
    LineEndInside {
        /// The position of the first byte at fault in the frame.
        at: usize,
    },
    /// A batch of frames to be written has more bytes than its spans can tell.
    #[error("a batch of output is larger than 4 GiB")]
    BatchTooLarge,
    /// `Framing::Fixed(0)`: a stream would hold any number of such frames.
    #[error("frames of fixed length need at least 1 byte")]
    ZeroLength,
    /// A text that names no framing.
    #[error("unknown framing '{text}': expected u8, u16, u16le, u32, u32le, lines or fixed:N")]
    Unknown {
        /// The text.
        text: String,
    },
}
