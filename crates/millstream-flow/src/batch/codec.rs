//! How batches become bytes between processes.
//!
//! Items follow one another without a count, each written by the codec of its type ([`Codecs`]); frames travel as the
//! bytes that they are, with the ends of each. Numbers are little-endian.
//!
//! Invariant: bytes that `encode` did not write are an error or another batch, never a panic.

use crate::error::Cause;
use crate::framing::Frames;
use crate::key::{self, Key};
use crate::saved::codec::{BoxedCodec, Codecs, StateCodec};
use crate::time::Timed;

/// Writes and reads the batches of one edge.
#[doc(hidden)] // For the other crates of Millstream.
pub trait BatchCodec<B> {
    /// Appends a batch.
    ///
    /// # Errors
    /// An item that cannot be written: a [`Failure`](crate::Failure) with the key and the item, where these are known.
    /// The sender adds the name of its step.
    fn encode(&self, batch: &B, out: &mut Vec<u8>) -> Result<(), Cause>;
    /// The batch of which these are the bytes, all of them.
    ///
    /// # Errors
    /// They are not those of a batch.
    fn decode(&self, bytes: &[u8]) -> Result<B, Cause>;
}

/// Lists of items.
pub(super) struct Items<T>(pub(super) BoxedCodec<T>);

impl<T> BatchCodec<Vec<T>> for Items<T> {
    fn encode(&self, batch: &Vec<T>, out: &mut Vec<u8>) -> Result<(), Cause> {
        batch.iter().try_for_each(|item| self.0.save(item, out))
    }
    fn decode(&self, mut bytes: &[u8]) -> Result<Vec<T>, Cause> {
        let mut batch = Vec::new();
        while !bytes.is_empty() {
            let before = bytes.len();
            batch.push(self.0.load(&mut bytes)?);
            if bytes.len() == before {
                return Err("an item of no bytes".into());
            }
        }
        Ok(batch)
    }
}

/// The two outputs of a step: the length of the first in bytes, then both.
pub(super) struct Halves<A, B>(
    pub(super) Box<dyn BatchCodec<A>>,
    pub(super) Box<dyn BatchCodec<B>>,
);

impl<A, B> BatchCodec<(A, B)> for Halves<A, B> {
    fn encode(&self, (first, second): &(A, B), out: &mut Vec<u8>) -> Result<(), Cause> {
        let at = out.len();
        out.extend([0; 8]);
        self.0.encode(first, out)?;
        let length = (out.len() - at - 8) as u64;
        out[at..at + 8].copy_from_slice(&length.to_le_bytes());
        self.1.encode(second, out)
    }
    fn decode(&self, mut bytes: &[u8]) -> Result<(A, B), Cause> {
        let length = u64::from_le_bytes(take(&mut bytes)?);
        let halves = usize::try_from(length)
            .ok()
            .and_then(|at| bytes.split_at_checked(at));
        let (first, second) = halves.ok_or_else(truncated)?;
        Ok((self.0.decode(first)?, self.1.decode(second)?))
    }
}

/// Frames: their place in the stream, how many there are, where each begins and ends, and their bytes.
pub(super) struct FrameBytes;

impl BatchCodec<Frames> for FrameBytes {
    fn encode(&self, frames: &Frames, out: &mut Vec<u8>) -> Result<(), Cause> {
        // Bytes outside the frames, of those that were taken out before, stay here.
        let begin = frames.spans.first().map_or(0, |(start, _)| *start);
        let end = frames.spans.last().map_or(begin, |(_, end)| *end);
        out.extend((frames.offset + u64::from(begin)).to_le_bytes());
        out.extend(u32::try_from(frames.spans.len())?.to_le_bytes());
        for (start, end) in &frames.spans {
            out.extend((start - begin).to_le_bytes());
            out.extend((end - begin).to_le_bytes());
        }
        out.extend_from_slice(&frames.data[begin as usize..end as usize]);
        Ok(())
    }
    fn decode(&self, mut bytes: &[u8]) -> Result<Frames, Cause> {
        let offset = u64::from_le_bytes(take(&mut bytes)?);
        let count = u32::from_le_bytes(take(&mut bytes)?) as usize;
        let length = bytes.len().checked_sub(count * 8).ok_or_else(truncated)?;
        let mut spans = Vec::with_capacity(count);
        let mut reached = 0;
        for _ in 0..count {
            let start = u32::from_le_bytes(take(&mut bytes)?);
            let end = u32::from_le_bytes(take(&mut bytes)?);
            if start < reached || end < start || end as usize > length {
                return Err(format!("a frame from {start} to {end} of {length} bytes").into());
            }
            spans.push((start, end));
            reached = end;
        }
        if reached as usize != length {
            return Err(format!("{length} bytes for frames of {reached}").into());
        }
        if offset.checked_add(length as u64).is_none() {
            return Err(format!("frames at {offset} of their stream").into());
        }
        Ok(Frames {
            data: bytes.to_vec(),
            spans,
            offset,
            origin: None,
            numbers: Vec::new(),
        })
    }
}

/// The rule for a key beside a value: the key as saved state has it, then the value.
///
/// # Errors
/// The value has no codec.
pub(crate) fn key_and_value<K: Key, V: 'static>(
    codecs: &Codecs,
) -> Result<BoxedCodec<(K, V)>, Cause> {
    struct KeyAndValue<V>(BoxedCodec<V>);
    impl<K: Key, V> StateCodec<(K, V)> for KeyAndValue<V> {
        fn save(&self, (key, value): &(K, V), out: &mut Vec<u8>) -> Result<(), Cause> {
            key.save(out);
            self.0.save(value, out)
        }
        fn load(&self, from: &mut &[u8]) -> Result<(K, V), Cause> {
            let saved = *from;
            let key = K::load(from)
                .ok_or_else(|| format!("a key that is {} cannot be one here", key::show(saved)))?;
            Ok((key, self.0.load(from)?))
        }
    }
    Ok(Box::new(KeyAndValue(codecs.item()?)))
}

/// The rule for a value with its time: time and watermark, then the value.
///
/// # Errors
/// The value has no codec.
#[doc(hidden)] // For the other crates of Millstream.
pub fn timed<T: 'static>(codecs: &Codecs) -> Result<BoxedCodec<Timed<T>>, Cause> {
    struct AtTime<T>(BoxedCodec<T>);
    impl<T> StateCodec<Timed<T>> for AtTime<T> {
        fn save(&self, item: &Timed<T>, out: &mut Vec<u8>) -> Result<(), Cause> {
            out.extend(item.time.to_le_bytes());
            out.extend(item.watermark.to_le_bytes());
            self.0.save(&item.value, out)
        }
        fn load(&self, from: &mut &[u8]) -> Result<Timed<T>, Cause> {
            Ok(Timed {
                time: i64::from_le_bytes(take(from)?),
                watermark: i64::from_le_bytes(take(from)?),
                value: self.0.load(from)?,
            })
        }
    }
    Ok(Box::new(AtTime(codecs.item()?)))
}

/// What a join pairs.
type OptionPair<L, R> = (Option<L>, Option<R>);

/// The rule for what a join makes: which of the two are present, then these.
///
/// # Errors
/// A value has no codec.
pub(crate) fn option_pair<L: 'static, R: 'static>(
    codecs: &Codecs,
) -> Result<BoxedCodec<OptionPair<L, R>>, Cause> {
    struct Pair<L, R>(BoxedCodec<L>, BoxedCodec<R>);
    impl<L, R> StateCodec<(Option<L>, Option<R>)> for Pair<L, R> {
        fn save(
            &self,
            (left, right): &(Option<L>, Option<R>),
            out: &mut Vec<u8>,
        ) -> Result<(), Cause> {
            out.push(u8::from(left.is_some()) | u8::from(right.is_some()) << 1);
            left.iter().try_for_each(|left| self.0.save(left, out))?;
            right.iter().try_for_each(|right| self.1.save(right, out))
        }
        fn load(&self, from: &mut &[u8]) -> Result<(Option<L>, Option<R>), Cause> {
            let [present] = take(from)?;
            if present > 3 {
                return Err(format!("a pair of the kind {present}").into());
            }
            let left = (present & 1 != 0).then(|| self.0.load(from)).transpose()?;
            let right = (present & 2 != 0).then(|| self.1.load(from)).transpose()?;
            Ok((left, right))
        }
    }
    Ok(Box::new(Pair(codecs.item()?, codecs.item()?)))
}

/// Takes so many bytes off the front.
fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Cause> {
    let (taken, rest) = from.split_first_chunk().ok_or_else(truncated)?;
    *from = rest;
    Ok(*taken)
}

fn truncated() -> Cause {
    "the batch is truncated".into()
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::batch::Batch;

    /// What was written is read; truncated anywhere, it is an error or fewer items; with a byte changed it is no panic.
    fn there_and_back<B: Batch + PartialEq + Debug>(codecs: &Codecs, batch: &B) {
        let codec = B::codec(codecs).unwrap();
        let mut bytes = Vec::new();
        codec.encode(batch, &mut bytes).unwrap();
        assert_eq!(&codec.decode(&bytes).unwrap(), batch);
        for length in 0..bytes.len() {
            if let Ok(found) = codec.decode(&bytes[..length]) {
                assert!(
                    found.len() < batch.len(),
                    "{length} bytes of {}",
                    bytes.len()
                );
            }
        }
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= flip;
                // An error or another batch that can be used.
                if let Ok(mut found) = codec.decode(&damaged) {
                    let _ = (found.take_first(1), found.clone());
                }
            }
        }
    }

    fn codecs() -> Codecs {
        let mut codecs = Codecs::default();
        codecs.derive(timed::<String>);
        codecs.derive(key_and_value::<(String, u8), Timed<String>>);
        codecs.derive(option_pair::<u64, String>);
        codecs
    }

    #[test]
    fn items_become_bytes_and_are_read_again() {
        let codecs = codecs();
        there_and_back(&codecs, &vec![7u64, 0, u64::MAX]);
        there_and_back(&codecs, &Vec::<u64>::new());
        there_and_back(&codecs, &vec![(); 3]);
        there_and_back(&codecs, &vec![Some("ä".to_owned()), None]);
        let item = |time, text: &str| Timed {
            time,
            watermark: i64::MIN,
            value: text.to_owned(),
        };
        let keyed = |text: &str, time| ((text.to_owned(), 9u8), item(time, text));
        there_and_back(&codecs, &vec![keyed("a", -1), keyed("b", i64::MAX)]);
        let pairs = vec![
            (Some(1u64), Some("one".to_owned())),
            (None, Some(String::new())),
            (Some(3), None),
            (None, None),
        ];
        there_and_back(&codecs, &pairs);
        there_and_back(&codecs, &(vec![1u64, 2], vec!["three".to_owned()]));
    }

    #[test]
    fn frames_become_bytes_and_know_their_origin() {
        let frames = Frames {
            data: b"ab\ncd\n".to_vec(),
            spans: vec![(0, 2), (3, 5)],
            offset: 100,
            origin: None,
            numbers: Vec::new(),
        };
        let codec = Frames::codec(&Codecs::default()).unwrap();
        for taken in 0..=2 {
            let mut rest = frames.clone();
            let _ = rest.take_first(taken);
            let mut bytes = Vec::new();
            codec.encode(&rest, &mut bytes).unwrap();
            let read = codec.decode(&bytes).unwrap();
            let all = |frames: &Frames| -> Vec<(u64, Vec<u8>)> {
                let spans = frames.spans.iter();
                spans
                    .zip(frames.iter())
                    .map(|(span, body)| (frames.offset + u64::from(span.0), body.to_vec()))
                    .collect()
            };
            assert_eq!(all(&read), all(&rest), "{taken} taken");
            for length in 0..bytes.len() {
                assert!(codec.decode(&bytes[..length]).is_err(), "{length} bytes");
            }
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 0x81;
                if let Ok(mut found) = codec.decode(&damaged) {
                    let _ = (found.take_first(1), found.iter().count());
                }
            }
        }
    }

    #[test]
    fn a_type_that_was_not_announced_is_named() {
        #[derive(Clone)]
        struct Own;
        let error = Vec::<Own>::codec(&Codecs::default())
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("Own has no codec"), "{error}");
        assert!(error.contains("flow.saves::<"), "{error}");
    }
}
