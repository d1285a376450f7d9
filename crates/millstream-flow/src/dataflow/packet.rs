//! What crosses from one timely operator to another: a batch or a watermark, addressed to one worker.
//!
//! All edges of a flow carry this one type, so that the engine is compiled once. Within a process the batch travels as
//! it is, boxed: one allocation for a batch, not for an item. Between processes it travels as bytes, made by the codec
//! of its edge before it is sent and read by the operator that receives it, which knows the codec too.
//!
//! A packet as bytes, little-endian:
//!
//! ```text
//! offset  bytes  field
//!      0      1  version of this layout: 1
//!      1      1  kind: 0 nothing, 1 batch, 2 watermark
//!      2      1  the sender of a watermark: 0 live, 1 idle, 2 ended
//!      3      1  0
//!      4      4  edge
//!      8      4  to: the worker that it is for
//!     12      4  from: the worker that sent it
//!     16      8  stamp: when the items were complete at their source
//!     24      8  number of items
//!     32      8  floor: the time to which the sender's other partitions have advanced
//!     40      8  watermark
//!     48      8  length of the body
//!     56         body: the batch, by the codec of the edge
//! ```
//!
//! Invariant: bytes that are not a packet become a packet that says so, which fails the flow where it is received.

use std::any::Any;
use std::io::Write;

use timely::Accountable;
use timely::bytes::arc::{Bytes, BytesMut};
use timely::communication::Push;
use timely::dataflow::channels::pushers::exchange::Distributor;
use timely::dataflow::channels::{ContainerBytes, Message};
use timely::progress::Stamp;

use crate::error::{Cause, chain};
use crate::time::{Sender, Watermark};

/// The version of the layout.
const VERSION: u8 = 1;
/// The kind of a batch without its bytes: no reader takes it.
const NOT_ENCODED: u8 = u8::MAX;
/// The bytes before the body.
const HEADER: usize = 56;

/// A batch in transit, or a watermark of its sender.
#[derive(Default)]
pub(crate) struct Packet {
    /// The number of the edge that it travels on.
    pub(crate) edge: usize,
    /// The worker that it is for.
    pub(crate) to: usize,
    /// When the items were complete at their source.
    pub(crate) stamp: u64,
    /// How many items there are.
    pub(crate) items: usize,
    /// The worker that sent it.
    pub(crate) from: usize,
    /// The time to which the sender's other partitions have advanced.
    pub(crate) floor: i64,
    pub(crate) content: Content,
}

/// What a packet carries.
#[derive(Default)]
pub(crate) enum Content {
    /// Nothing: an empty packet that the engine made.
    #[default]
    Nothing,
    /// A batch in the memory of this process.
    Batch(Box<dyn Any + Send>),
    /// A batch as the codec of the edge has written it.
    Bytes(Bytes),
    /// Event time has advanced to this, after the batches before.
    Watermark(Watermark),
    /// The bytes that arrived are not those of a packet.
    Damaged(String),
}

/// A batch as bytes, to be sent.
pub(crate) fn bytes(encoded: Vec<u8>) -> Bytes {
    BytesMut::from(encoded).freeze()
}

impl Packet {
    /// The packet as it arrives in another process, by the functions with which the engine sends it there.
    pub(crate) fn through_bytes(self) -> Self {
        let mut sent = Vec::with_capacity(self.length_in_bytes());
        self.into_bytes(&mut sent);
        debug_assert_eq!(sent.len(), self.length_in_bytes());
        Self::from_bytes(bytes(sent))
    }

    fn header(&self) -> [u8; HEADER] {
        let (kind, mark, length) = match &self.content {
            Content::Nothing => (0, None, 0),
            Content::Bytes(body) => (1, None, body.len()),
            // A batch that leaves the process is encoded before. If it were not, the receiver would fail: nothing is
            // lost in silence.
            Content::Batch(_) | Content::Damaged(_) => (NOT_ENCODED, None, 0),
            Content::Watermark(mark) => (2, Some(mark), 0),
        };
        let sender = match mark.map(|mark| mark.sender) {
            None | Some(Sender::Live) => 0,
            Some(Sender::Idle) => 1,
            Some(Sender::Ended) => 2,
        };
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&[VERSION, kind, sender, 0]);
        for (at, number) in [(4, self.edge), (8, self.to), (12, self.from)] {
            header[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
        }
        let at = mark.map_or(0, |mark| mark.at);
        let numbers = [
            self.stamp,
            self.items as u64,
            self.floor as u64,
            at as u64,
            length as u64,
        ];
        for (number, field) in numbers.iter().zip(header[16..].chunks_exact_mut(8)) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        header
    }

    /// The packet of which these are the bytes.
    fn read(mut bytes: Bytes) -> Result<Self, Cause> {
        let Some(header) = bytes.first_chunk::<HEADER>().copied() else {
            return Err(format!("a packet of {} bytes is truncated", bytes.len()).into());
        };
        let [version, kind, sender, zero, ..] = header;
        if version != VERSION {
            return Err(
                format!("a packet: version {version}, this program reads {VERSION}").into(),
            );
        }
        let narrow = |at: usize| u32::from_le_bytes(array(&header[at..])) as usize;
        let wide = |at: usize| u64::from_le_bytes(array(&header[at..]));
        drop(bytes.extract_to(HEADER));
        if wide(48) != bytes.len() as u64 {
            let told = wide(48);
            let found = bytes.len();
            return Err(format!("a packet with a body of {found} bytes, not {told}").into());
        }
        let sender = match sender {
            0 => Sender::Live,
            1 => Sender::Idle,
            2 => Sender::Ended,
            other => return Err(format!("a packet of a sender in state {other}").into()),
        };
        let content = match (kind, bytes.is_empty()) {
            (0, true) => Content::Nothing,
            (1, _) => Content::Bytes(bytes),
            (2, true) => Content::Watermark(Watermark {
                at: wide(40) as i64,
                sender,
            }),
            _ => return Err(format!("a packet of kind {kind}").into()),
        };
        if zero != 0 {
            return Err("a packet with a field that this version does not know".into());
        }
        Ok(Packet {
            edge: narrow(4),
            to: narrow(8),
            from: narrow(12),
            stamp: wide(16),
            items: usize::try_from(wide(24))?,
            floor: wide(32) as i64,
            content,
        })
    }
}

/// The first bytes of a slice that is long enough.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

impl Accountable for Packet {
    fn record_count(&self) -> i64 {
        i64::from(!matches!(self.content, Content::Nothing))
    }
}

impl ContainerBytes for Packet {
    fn from_bytes(bytes: Bytes) -> Self {
        Self::read(bytes).unwrap_or_else(|error| Packet {
            content: Content::Damaged(chain(&*error).to_string()),
            ..Packet::default()
        })
    }
    fn length_in_bytes(&self) -> usize {
        HEADER
            + match &self.content {
                Content::Bytes(body) => body.len(),
                _ => 0,
            }
    }
    fn into_bytes<W: Write>(&self, writer: &mut W) {
        let written = writer
            .write_all(&self.header())
            .and_then(|()| match &self.content {
                Content::Bytes(body) => writer.write_all(body),
                _ => Ok(()),
            });
        // The engine writes to memory of `length_in_bytes`, which does not fail; if it did, the receiver would find the
        // packet truncated.
        debug_assert!(written.is_ok());
    }
}

/// Passes each packet to the worker that it names.
pub(crate) struct ByAddress;

impl Distributor<Packet> for ByAddress {
    fn partition<T: Clone, P: Push<Message<T, Packet>>>(
        &mut self,
        packet: &mut Packet,
        stamp: &Stamp<T>,
        pushers: &mut [P],
    ) {
        let to = packet.to;
        Message::push_at(packet, stamp.clone(), &mut pushers[to]);
    }
    fn flush<T: Clone, P: Push<Message<T, Packet>>>(&mut self, _: &Stamp<T>, _: &mut [P]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(content: Content) -> Packet {
        Packet {
            edge: 1,
            to: 2,
            stamp: u64::MAX - 3,
            items: 4,
            from: 5,
            floor: -6,
            content,
        }
    }

    fn watermark(at: i64, sender: Sender) -> Packet {
        packet(Content::Watermark(Watermark { at, sender }))
    }

    fn written(packet: &Packet) -> Vec<u8> {
        let mut written = Vec::new();
        packet.into_bytes(&mut written);
        assert_eq!(written.len(), packet.length_in_bytes());
        written
    }

    fn read(written: &[u8]) -> Packet {
        Packet::from_bytes(bytes(written.to_vec()))
    }

    fn damage(packet: &Packet) -> Option<&str> {
        match &packet.content {
            Content::Damaged(error) => Some(error),
            _ => None,
        }
    }

    #[test]
    fn each_field_arrives() {
        let body = packet(Content::Bytes(bytes(b"body".to_vec()))).through_bytes();
        let numbers = (body.edge, body.to, body.stamp, body.items, body.from);
        assert_eq!(numbers, (1, 2, u64::MAX - 3, 4, 5));
        assert_eq!((body.floor, body.record_count()), (-6, 1));
        assert!(matches!(&body.content, Content::Bytes(found) if found[..] == *b"body"));
        for sender in [Sender::Live, Sender::Idle, Sender::Ended] {
            for at in [i64::MIN, -1, 0, i64::MAX] {
                let found = watermark(at, sender).through_bytes();
                assert!(matches!(
                    found.content,
                    Content::Watermark(mark) if mark == Watermark { at, sender }
                ));
                assert_eq!((found.from, found.record_count()), (5, 1));
            }
        }
        let nothing = Packet::default().through_bytes();
        assert!(matches!(nothing.content, Content::Nothing));
        assert_eq!(nothing.record_count(), 0);
    }

    #[test]
    fn the_layout_is_that_of_version_1() {
        let written = written(&packet(Content::Bytes(bytes(b"body".to_vec()))));
        let hex: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = "01010000010000000200000005000000fcffffffffffffff0400000000000000\
                        faffffffffffffff00000000000000000400000000000000626f6479";
        assert_eq!(hex, expected);
    }

    #[test]
    fn a_batch_that_was_not_encoded_is_an_error_and_not_an_empty_packet() {
        let found = packet(Content::Batch(Box::new(vec![1u8]))).through_bytes();
        assert_eq!(damage(&found), Some("a packet of kind 255"));
    }

    #[test]
    fn damaged_bytes_are_an_error_and_still_count_as_a_packet() {
        let body = written(&packet(Content::Bytes(bytes(b"body".to_vec()))));
        for length in 0..body.len() {
            let found = read(&body[..length]);
            assert!(damage(&found).is_some(), "{length} bytes");
            assert_eq!(found.record_count(), 1);
        }
        let longer = [&body[..], b"!"].concat();
        assert!(damage(&read(&longer)).is_some());
        for (at, value, expected) in [
            (0, 2, "a packet: version 2, this program reads 1"),
            (1, 3, "a packet of kind 3"),
            (2, 9, "a packet of a sender in state 9"),
            (48, 5, "a packet with a body of 4 bytes, not 5"),
        ] {
            let mut damaged = body.clone();
            damaged[at] = value;
            assert_eq!(damage(&read(&damaged)), Some(expected));
        }
        for at in 0..body.len() {
            for flip in 1..=255 {
                let mut damaged = body.clone();
                damaged[at] ^= flip;
                let _ = read(&damaged);
            }
        }
    }
}
