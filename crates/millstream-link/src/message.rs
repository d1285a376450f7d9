//! Messages as the payload of a frame: MessagePack, by serde.
//!
//! A struct is an array of its fields, in order. A variant without fields is its name, one with fields a map of one
//! entry, from its name to them. An option is nil or its value, bytes are `bin`, a `u128` is `bin` of 16 bytes, the
//! most significant first.
//!
//! The invariant: a message has one form. [`decode`] accepts what [`encode`] writes and nothing else: no field too few
//! or too many, no other variant, no byte after the end.
//!
//! ```
//! use millstream_link::{decode, encode};
//!
//! let payload = encode(&("orders", 7_u64));
//! assert_eq!(payload, b"\x92\xa6orders\x07");
//! assert_eq!(decode::<(String, u64)>(&payload)?, ("orders".to_owned(), 7));
//! # Ok::<(), millstream_link::LinkError>(())
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::LinkError;

/// How deep a message is nested at most.
const DEPTH_MAX: usize = 32;
/// The longest text that one side says to the other before both are authenticated, in characters.
const TEXT_CHARS_MAX: usize = 250;

/// Returns a message as bytes.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn encode<T: Serialize + ?Sized>(message: &T) -> Vec<u8> {
    let mut out = Vec::new();
    let written = rmp_serde::encode::write(&mut out, message);
    // Memory takes all bytes; types of messages have no values without a form.
    debug_assert!(written.is_ok(), "{written:?}");
    out
}

/// Returns the message of these bytes. Memory is allocated for items that were received; for a list, up to 1 MiB before
/// its first.
///
/// # Errors
/// Bytes that [`encode`] does not write.
#[doc(hidden)] // For the other crates of Millstream.
pub fn decode<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Result<T, LinkError> {
    let mut from = rmp_serde::Deserializer::from_read_ref(bytes);
    from.set_max_depth(DEPTH_MAX);
    // The error is left out: it may quote what the other side likes.
    let message = T::deserialize(&mut from).ok();
    message
        .filter(|message| encode(message) == bytes)
        .ok_or_else(|| LinkError::protocol("a message is not as it should be"))
}

/// Returns the beginning of a text for the other side, or of one from there, without control characters.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn plain_text(text: &str) -> String {
    let text = text.chars().filter(|c| !c.is_control());
    text.take(TEXT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Message {
        Alive,
        Names(Vec<String>),
        At { id: u128, next: Option<u64> },
    }

    fn is_refused(bytes: &[u8]) -> bool {
        decode::<Message>(bytes).is_err()
    }

    #[test]
    fn a_message_has_one_form() {
        let at = |next| Message::At { id: 5, next };
        let id = [&b"\xc4\x10"[..], &[0; 15], &[5]].concat();
        for (message, expected) in [
            (Message::Alive, b"\xa5Alive".to_vec()),
            (
                Message::Names(vec!["a".to_owned()]),
                b"\x81\xa5Names\x91\xa1a".to_vec(),
            ),
            (at(None), [b"\x81\xa2At\x92", &id[..], b"\xc0"].concat()),
            (at(Some(7)), [b"\x81\xa2At\x92", &id[..], b"\x07"].concat()),
        ] {
            let bytes = encode(&message);
            assert_eq!(bytes, expected);
            assert_eq!(decode::<Message>(&bytes).unwrap(), message);
            for length in 0..bytes.len() {
                assert!(is_refused(&bytes[..length]), "{message:?}: {length}");
            }
            assert!(is_refused(&[&bytes[..], &[0xc0]].concat()), "{message:?}");
        }
        // A variant by its number, a struct as a map, one of another name, a number in more bytes than it needs, a
        // field too many.
        assert!(is_refused(b"\x00"));
        assert!(is_refused(
            &[b"\x81\xa2At\x82\xa2id", &id[..], b"\xa4next\xc0"].concat()
        ));
        assert!(is_refused(b"\xa5Other"));
        assert!(is_refused(
            &[b"\x81\xa2At\x92", &id[..], b"\xcc\x07"].concat()
        ));
        assert!(is_refused(
            &[b"\x81\xa2At\x93", &id[..], b"\x07\x07"].concat()
        ));
    }

    #[test]
    fn hostile_lengths_and_depths_are_errors() {
        for hostile in [
            &b"\x81\xa5Names\xdd\xff\xff\xff\xff"[..],
            b"\x81\xa5Names\x91\xdb\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            &[0x91; 1 << 16],
            &[0x81; 1 << 16],
        ] {
            assert!(is_refused(hostile));
        }
        assert_eq!(plain_text("gone\x1b[2J\n"), "gone[2J");
        assert_eq!(plain_text(&"ä".repeat(1_000)).len(), 2 * TEXT_CHARS_MAX);
    }
}
