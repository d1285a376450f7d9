//! The codec of items of one of two streams.

use super::side::Side;
use crate::batch::{Data, option_pair};
use crate::checkpoint::{BoxedCodec, Codecs, StateCodec};
use crate::error::Cause;
use crate::key::Key;
use crate::operators::keyed::KeyedStream;
use crate::time::Timed;

/// Merges the items of two streams, and adds the rules for their codecs and those of their pairs.
pub(super) fn both_sides<K: Key, L: Data, R: Data>(
    left: &KeyedStream<K, Timed<L>>,
    right: &KeyedStream<K, Timed<R>>,
) -> KeyedStream<K, Timed<Side<L, R>>> {
    left.derive(side::<L, R>);
    left.derive(option_pair::<L, R>);
    let left = left.map(|item| item.map(Side::Left));
    let right = right.map(|item| item.map(Side::Right));
    left.merge(&[right])
}

/// The same for streams without times.
pub(super) fn both_untimed<K: Key, L: Data, R: Data>(
    left: &KeyedStream<K, L>,
    right: &KeyedStream<K, R>,
) -> KeyedStream<K, Side<L, R>> {
    left.derive(side::<L, R>);
    left.derive(option_pair::<L, R>);
    left.map(Side::Left).merge(&[right.map(Side::Right)])
}

/// The rule for items of both streams: a byte for the stream, then the item.
pub(crate) fn side<L: 'static, R: 'static>(
    codecs: &Codecs,
) -> Result<BoxedCodec<Side<L, R>>, Cause> {
    Ok(Box::new(SideCodec(codecs.item()?, codecs.item()?)))
}

const LEFT: u8 = 0;
const RIGHT: u8 = 1;

struct SideCodec<L, R>(BoxedCodec<L>, BoxedCodec<R>);

impl<L, R> StateCodec<Side<L, R>> for SideCodec<L, R> {
    fn save(&self, side: &Side<L, R>, out: &mut Vec<u8>) -> Result<(), Cause> {
        match side {
            Side::Left(item) => {
                out.push(LEFT);
                self.0.save(item, out)
            }
            Side::Right(item) => {
                out.push(RIGHT);
                self.1.save(item, out)
            }
        }
    }
    fn load(&self, from: &mut &[u8]) -> Result<Side<L, R>, Cause> {
        let (which, rest) = from.split_first().ok_or("it is truncated")?;
        *from = rest;
        match *which {
            LEFT => Ok(Side::Left(self.0.load(from)?)),
            RIGHT => Ok(Side::Right(self.1.load(from)?)),
            other => Err(format!("an item of stream {other} of a join").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_is_encoded_and_decoded() {
        let mut codecs = Codecs::default();
        codecs.derive(side::<u64, String>);
        let codec = codecs.item::<Side<u64, String>>().unwrap();
        for item in [Side::Left(7), Side::Right("seven".to_owned())] {
            let mut saved = Vec::new();
            codec.save(&item, &mut saved).unwrap();
            let mut rest = &saved[..];
            assert_eq!(codec.load(&mut rest).unwrap(), item);
            assert!(rest.is_empty());
            for length in 0..saved.len() {
                assert!(codec.load(&mut &saved[..length]).is_err());
            }
            saved[0] = 2;
            assert!(codec.load(&mut &saved[..]).is_err());
        }
    }
}
