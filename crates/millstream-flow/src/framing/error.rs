//! The errors of framing.

use super::Framing;

/// The reason why bytes could not be divided into frames, or a frame not be encoded.
///
/// An `offset` counts bytes from the start of the stream to the first byte of the faulty frame, including its
/// prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FramingError {
    /// A frame is longer than the limit of the cutter.
    #[error(
        "the frame at offset {offset} is {length} bytes long, over the limit of {limit} (wrong framing, or raise the limit)"
    )]
    FrameTooLong {
        /// The offset of the frame in the stream.
        offset: u64,
        /// Its length; of an unfinished line, the length read so far.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The stream ended in the middle of a frame.
    #[error("the stream ended inside the frame at offset {offset}: {have} of {need} bytes arrived")]
    Truncated {
        /// The offset of the frame in the stream.
        offset: u64,
        /// The number of bytes that arrived, including the prefix.
        have: usize,
        /// The number of bytes of the frame, including the prefix; of the prefix alone if that is truncated.
        need: usize,
    },
    /// A frame does not fit its length prefix.
    #[error("a frame of {length} bytes does not fit the framing {framing}, whose limit is {limit}")]
    PrefixTooNarrow {
        /// The length of the frame.
        length: usize,
        /// The longest frame that the prefix can express.
        limit: usize,
        /// The framing.
        framing: Framing,
    },
    /// A frame does not have the length that all frames must have.
    #[error("a frame of {length} bytes cannot be written: every frame must have {need}")]
    WrongLength {
        /// The length of the frame.
        length: usize,
        /// The length of all frames.
        need: usize,
    },
    /// A frame that is written as a line contains a line end, or ends with CR: it would not be read back
    /// unchanged.
    #[error("a frame with a line end at byte {at} cannot be written as a line")]
    LineEndInside {
        /// The position of the first invalid byte in the frame.
        at: usize,
    },
    /// A batch of frames is too large for its spans.
    #[error("a batch of output is larger than 4 GiB")]
    BatchTooLarge,
    /// `Framing::Fixed(0)`: a stream would contain any number of such frames.
    #[error("frames of fixed length need at least 1 byte")]
    ZeroLength,
    /// A text is not the name of a framing.
    #[error("unknown framing '{text}': expected u8, u16, u16le, u32, u32le, lines or fixed:N")]
    Unknown {
        /// The text.
        text: String,
    },
}
