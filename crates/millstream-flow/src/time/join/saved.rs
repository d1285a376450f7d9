//! The saved state of a join:
//! `[[[time, watermark, is left, value]...], left, right, expires]`, where `left` and `right` are
//! `[[time, alone, value]...]`.

use std::collections::VecDeque;

use super::side::{JoinState, Retained, Side};
use crate::checkpoint::{Codec, StateCodec, pack};
use crate::error::Cause;
use crate::time::Timed;

/// The codec of the state of a key.
pub(super) struct JoinStateCodec<L, R> {
    pub(super) left: Codec<L>,
    pub(super) right: Codec<R>,
}

impl<L, R> StateCodec<JoinState<L, R>> for JoinStateCodec<L, R> {
    fn save(&self, held: &JoinState<L, R>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(4, out);
        pack::list(held.waiting.len(), out);
        for item in &held.waiting {
            pack::list(4, out);
            pack::integer(item.time, out);
            pack::integer(item.watermark, out);
            pack::flag(matches!(item.value, Side::Left(_)), out);
            match &item.value {
                Side::Left(value) => self.left.save(value, out)?,
                Side::Right(value) => self.right.save(value, out)?,
            }
        }
        save_retained(&self.left, &held.left, out)?;
        save_retained(&self.right, &held.right, out)?;
        pack::integer(held.expires, out);
        Ok(())
    }

    fn load(&self, from: &mut &[u8]) -> Result<JoinState<L, R>, Cause> {
        if pack::take_list(from)? != 4 {
            return Err("it was saved with a watermark of each key, not of the partition".into());
        }
        let mut waiting = VecDeque::new();
        for _ in 0..pack::take_list(from)? {
            pack::take_members(4, from)?;
            let (time, watermark) = (pack::take_integer(from)?, pack::take_integer(from)?);
            let value = match pack::take_flag(from)? {
                true => Side::Left(self.left.load(from)?),
                false => Side::Right(self.right.load(from)?),
            };
            waiting.push_back(Timed {
                time,
                watermark,
                value,
            });
        }
        Ok(JoinState {
            waiting,
            left: load_retained(&self.left, from)?,
            right: load_retained(&self.right, from)?,
            expires: pack::take_integer(from)?,
        })
    }
}

fn save_retained<T>(
    codec: &Codec<T>,
    all: &VecDeque<Retained<T>>,
    out: &mut Vec<u8>,
) -> Result<(), Cause> {
    pack::list(all.len(), out);
    for item in all {
        pack::list(3, out);
        pack::integer(item.time, out);
        pack::flag(item.alone, out);
        codec.save(&item.value, out)?;
    }
    Ok(())
}

fn load_retained<T>(codec: &Codec<T>, from: &mut &[u8]) -> Result<VecDeque<Retained<T>>, Cause> {
    let mut all = VecDeque::new();
    for _ in 0..pack::take_list(from)? {
        pack::take_members(3, from)?;
        all.push_back(Retained {
            time: pack::take_integer(from)?,
            alone: pack::take_flag(from)?,
            value: codec.load(from)?,
        });
    }
    Ok(all)
}
