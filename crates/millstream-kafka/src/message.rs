//! A message as bytes: how it passes from the client to the steps, and how it waits in an outbox.
//!
//! Format, integers little-endian: `version << 4 | flags` (1 byte), length of the topic (2), topic, partition (4),
//! offset (8), time in milliseconds (8), length of the key (4), key, headers if there are any, and the value up to the
//! end. A flag says that headers were left out because their names are not UTF-8. Headers are their number (2), and for
//! each the length of its name (2), name, length of its value (4, `u32::MAX` for none), value. What is unknown is -1,
//! the time `i64::MIN`.

use crate::error::Error;

const VERSION: u8 = 1;
const HAS_KEY: u8 = 1;
const HAS_VALUE: u8 = 2;
const HAS_HEADERS: u8 = 4;
/// Headers are left out, whose names the client library does not pass on.
const LACKS_HEADERS: u8 = 8;
const NO_TIME: i64 = i64::MIN;
/// The bytes of an encoded message besides topic, key, headers and value.
pub(crate) const FIXED_BYTES: usize = 1 + 2 + 4 + 8 + 8 + 4;

/// The headers of a message, in order: names may occur several times.
pub type Headers = Vec<(String, Option<Vec<u8>>)>;

/// A message that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The name of the topic.
    pub topic: String,
    /// The number of the partition.
    pub partition: i32,
    /// The offset in the partition.
    pub offset: i64,
    /// The time of the message in milliseconds since 1970.
    pub time_ms: Option<i64>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers.
    pub headers: Headers,
}

impl Message {
    /// Reads a message from its bytes.
    ///
    /// # Errors
    /// [`Error::HeaderName`] for a message with a header whose name is not UTF-8, [`Error::Format`] for damaged bytes.
    pub fn decode(frame: &[u8]) -> Result<Self, Error> {
        let view = View::of(frame)?;
        view.check_headers()?;
        Ok(Message {
            topic: view.topic().to_owned(),
            partition: view.partition(),
            offset: view.offset(),
            time_ms: view.time_ms(),
            key: view.key().map(<[u8]>::to_vec),
            value: view.value().map(<[u8]>::to_vec),
            headers: view.headers()?,
        })
    }
}

/// A message to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outgoing {
    /// The name of the topic; `None` is the topic of the sink.
    pub topic: Option<String>,
    /// The partition; `None` lets the key decide.
    pub partition: Option<i32>,
    /// The time in milliseconds since 1970; `None` is the time of delivery.
    pub time_ms: Option<i64>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// The headers.
    pub headers: Headers,
}

impl Outgoing {
    /// Appends the message as bytes. Of a name, only the first 65,535 bytes are kept, and of headers the first 65,535.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let parts = Parts {
            topic: self.topic.as_deref().unwrap_or_default(),
            partition: self.partition.unwrap_or(-1),
            offset: -1,
            time_ms: self.time_ms,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
        };
        parts.encode(out, |each| {
            for (name, value) in &self.headers {
                each(name, value.as_deref());
            }
            0
        });
    }
}

/// The parts of a message without its headers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) offset: i64,
    pub(crate) time_ms: Option<i64>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
}

impl Parts<'_> {
    /// Appends the message; `headers` calls its argument for each header, and returns how many cannot be read.
    pub(crate) fn encode(
        &self,
        out: &mut Vec<u8>,
        headers: impl FnOnce(&mut dyn FnMut(&str, Option<&[u8]>)) -> usize,
    ) {
        let start = out.len();
        let present = |part: Option<&[u8]>, flag| if part.is_some() { flag } else { 0 };
        let flags = present(self.key, HAS_KEY) | present(self.value, HAS_VALUE);
        out.push(VERSION << 4 | flags);
        put_short(out, self.topic.as_bytes());
        out.extend_from_slice(&self.partition.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.time_ms.unwrap_or(NO_TIME).to_le_bytes());
        put_long(out, self.key.unwrap_or_default());
        let at = out.len();
        let mut count = 0u16;
        let unread = headers(&mut |name, value| {
            if count == 0 {
                out.extend_from_slice(&[0, 0]);
            }
            if count < u16::MAX {
                count += 1;
                put_short(out, name.as_bytes());
                match value {
                    Some(value) => put_long(out, value),
                    None => out.extend_from_slice(&u32::MAX.to_le_bytes()),
                }
            }
        });
        if unread > 0 {
            out[start] |= LACKS_HEADERS;
        }
        if count > 0 {
            out[start] |= HAS_HEADERS;
            out[at..at + 2].copy_from_slice(&count.to_le_bytes());
        }
        out.extend_from_slice(self.value.unwrap_or_default());
    }
}

fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = bytes.len().min(usize::from(u16::MAX));
    out.extend_from_slice(&(length as u16).to_le_bytes());
    out.extend_from_slice(&bytes[..length]);
}

fn put_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// A message in its bytes, of which nothing is copied.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct View<'a> {
    flags: u8,
    parts: Parts<'a>,
    /// Headers and value.
    rest: &'a [u8],
}

impl<'a> View<'a> {
    /// Reads the fixed part of a message. Headers and value are found when they are asked for.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn of(frame: &'a [u8]) -> Result<Self, Error> {
        let mut input = Input(frame);
        let first = input.bytes(1)?[0];
        if first >> 4 != VERSION {
            return Err(Error::Format("it is of another version of Millstream"));
        }
        let topic = input.short()?;
        let topic =
            std::str::from_utf8(topic).map_err(|_| Error::Format("its topic is not text"))?;
        let partition = i32::from_le_bytes(input.array()?);
        let offset = i64::from_le_bytes(input.array()?);
        let time_ms = i64::from_le_bytes(input.array()?);
        let key = input.long()?;
        let mut view = View {
            flags: first & 0x0f,
            parts: Parts {
                topic,
                partition,
                offset,
                time_ms: (time_ms != NO_TIME).then_some(time_ms),
                key: (first & HAS_KEY != 0).then_some(key),
                value: None,
            },
            rest: input.0,
        };
        if view.flags & HAS_HEADERS != 0 {
            view.each_header(|_, _| ())?;
        }
        view.parts.value = (first & HAS_VALUE != 0).then(|| view.body()).transpose()?;
        Ok(view)
    }

    /// The name of the topic; empty for the topic of the sink.
    #[must_use]
    pub fn topic(&self) -> &'a str {
        self.parts.topic
    }
    /// The partition, or -1.
    #[must_use]
    pub fn partition(&self) -> i32 {
        self.parts.partition
    }
    /// The offset, or -1.
    #[must_use]
    pub fn offset(&self) -> i64 {
        self.parts.offset
    }
    /// Topic, partition and offset, for people.
    #[must_use]
    pub fn position(&self) -> String {
        let topic = self.topic();
        let partition = self.partition();
        let offset = self.offset();
        format!("topic \"{topic}\", partition {partition}, offset {offset}")
    }
    /// The time in milliseconds since 1970.
    #[must_use]
    pub fn time_ms(&self) -> Option<i64> {
        self.parts.time_ms
    }
    /// The key.
    #[must_use]
    pub fn key(&self) -> Option<&'a [u8]> {
        self.parts.key
    }
    /// The value.
    #[must_use]
    pub fn value(&self) -> Option<&'a [u8]> {
        self.parts.value
    }

    /// Checks that all headers of the message are there: those whose names are not UTF-8 are left out.
    ///
    /// # Errors
    /// [`Error::HeaderName`].
    pub fn check_headers(&self) -> Result<(), Error> {
        match self.flags & LACKS_HEADERS {
            0 => Ok(()),
            _ => Err(Error::HeaderName {
                topic: self.topic().to_owned(),
                partition: self.partition(),
                offset: self.offset(),
            }),
        }
    }

    /// The headers, without those whose names are not UTF-8.
    ///
    /// # Errors
    /// [`Error::Format`].
    pub fn headers(&self) -> Result<Headers, Error> {
        let mut headers = Vec::new();
        self.each_header(|name, value| {
            headers.push((name.to_owned(), value.map(<[u8]>::to_vec)));
        })?;
        Ok(headers)
    }

    /// Calls `each` for each header, and returns what follows them.
    pub(crate) fn each_header(
        &self,
        mut each: impl FnMut(&'a str, Option<&'a [u8]>),
    ) -> Result<&'a [u8], Error> {
        let mut input = Input(self.rest);
        if self.flags & HAS_HEADERS == 0 {
            return Ok(self.rest);
        }
        for _ in 0..u16::from_le_bytes(input.array()?) {
            let name = std::str::from_utf8(input.short()?);
            let name = name.map_err(|_| Error::Format("the name of a header is not text"))?;
            let length = u32::from_le_bytes(input.array()?);
            each(
                name,
                match length {
                    u32::MAX => None,
                    length => Some(input.bytes(length as usize)?),
                },
            );
        }
        Ok(input.0)
    }

    fn body(&self) -> Result<&'a [u8], Error> {
        self.each_header(|_, _| ())
    }
}

/// The value of a message of a source with [`values`](crate::ReadKafka::values): `None` is a tombstone.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn value(frame: &[u8]) -> Option<&[u8]> {
    match frame.split_first() {
        Some((1, body)) => Some(body),
        _ => None,
    }
}

/// Appends a value as [`value`] reads it.
pub(crate) fn put_value(value: Option<&[u8]>, out: &mut Vec<u8>) {
    out.push(u8::from(value.is_some()));
    out.extend_from_slice(value.unwrap_or_default());
}

/// The rest of what is read.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or(Error::Format("it is too short"))?;
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let taken = self.bytes(N)?;
        taken
            .try_into()
            .map_err(|_| Error::Format("it is too short"))
    }
    fn short(&mut self) -> Result<&'a [u8], Error> {
        let length = u16::from_le_bytes(self.array()?);
        self.bytes(usize::from(length))
    }
    fn long(&mut self) -> Result<&'a [u8], Error> {
        let length = u32::from_le_bytes(self.array()?);
        self.bytes(length as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing() -> Outgoing {
        Outgoing {
            topic: Some("orders".to_owned()),
            partition: Some(3),
            time_ms: Some(-1),
            key: Some(Vec::new()),
            value: Some(b"body".to_vec()),
            headers: vec![
                ("a".to_owned(), Some(b"1".to_vec())),
                ("a".to_owned(), None),
            ],
        }
    }

    fn round_trip(message: &Outgoing) -> Message {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        Message::decode(&frame).unwrap()
    }

    #[test]
    fn every_part_is_read_back() {
        let read = round_trip(&outgoing());
        assert_eq!((read.topic.as_str(), read.partition), ("orders", 3));
        assert_eq!((read.offset, read.time_ms), (-1, Some(-1)));
        assert_eq!(read.key, Some(Vec::new()));
        assert_eq!(read.value, Some(b"body".to_vec()));
        assert_eq!(read.headers, outgoing().headers);
    }

    #[test]
    fn nothing_and_emptiness_differ() {
        let nothing = round_trip(&Outgoing::default());
        assert_eq!(
            (nothing.key, nothing.value, nothing.time_ms),
            (None, None, None)
        );
        let empty = Outgoing {
            key: Some(Vec::new()),
            value: Some(Vec::new()),
            ..Outgoing::default()
        };
        let empty = round_trip(&empty);
        assert_eq!(
            (empty.key, empty.value),
            (Some(Vec::new()), Some(Vec::new()))
        );
    }

    #[test]
    fn a_part_of_a_message_is_an_error() {
        let mut frame = Vec::new();
        outgoing().encode(&mut frame);
        let value = frame.len() - b"body".len();
        for length in 0..value {
            assert!(Message::decode(&frame[..length]).is_err(), "{length} bytes");
        }
        frame[0] ^= 0x30;
        let error = Message::decode(&frame).unwrap_err();
        assert!(error.to_string().contains("another version"), "{error}");
    }

    #[test]
    fn a_message_that_lacks_headers_is_an_error_with_its_position_and_keeps_its_other_parts() {
        let parts = Parts {
            topic: "in",
            partition: 2,
            offset: 7,
            time_ms: Some(1),
            key: Some(b"k"),
            value: Some(b"v"),
        };
        let mut frame = Vec::new();
        parts.encode(&mut frame, |each| {
            each("a", None);
            1
        });
        let error = Message::decode(&frame).unwrap_err().to_string();
        let place = "topic \"in\", partition 2, offset 7: ";
        assert!(error.starts_with(place), "{error}");
        let view = View::of(&frame).unwrap();
        assert_eq!((view.key(), view.value()), (parts.key, parts.value));
        assert_eq!(view.headers(), Ok(vec![("a".to_owned(), None)]));
    }

    #[test]
    fn values_keep_tombstones_apart() {
        for each in [None, Some(&b""[..]), Some(&b"x"[..])] {
            let mut frame = Vec::new();
            put_value(each, &mut frame);
            assert_eq!(value(&frame), each);
        }
    }
}
