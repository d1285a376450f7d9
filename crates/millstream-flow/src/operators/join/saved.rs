//! The saved state of a join:
//! `[[[time, watermark, is left, value]...], left, right, expires]`, where `left` and `right` are
//! `[[time, alone, value]...]`.
//!
//! What has changed is `[taken, waiting, left, right, expires]`, where `left` and `right` are
//! `[taken, [[time, alone, value]...], [place...]]`: the places are those of older items that have found a partner.

use super::side::{JoinState, Retained, Side, wait};
use crate::checkpoint::{Codec, StateCodec, pack};
use crate::error::Cause;
use crate::saved::raw::{RAW, Raw, read};
use crate::state::backlog::{Backlog, Chain};
use crate::time::Timed;

/// The codec of the state of a key.
pub(super) struct JoinStateCodec<L, R> {
    pub(super) left: Codec<L>,
    pub(super) right: Codec<R>,
}

impl<L, R> JoinStateCodec<L, R> {
    fn save_waiting(&self, item: &Timed<Side<L, R>>, out: &mut Vec<u8>) -> Result<(), Cause> {
        pack::list(4, out);
        pack::integer(item.time, out);
        pack::integer(item.watermark, out);
        pack::flag(matches!(item.value, Side::Left(_)), out);
        match &item.value {
            Side::Left(value) => self.left.save(value, out),
            Side::Right(value) => self.right.save(value, out),
        }
    }

    fn load_waiting(&self, from: &mut &[u8]) -> Result<Timed<Side<L, R>>, Cause> {
        pack::take_members(4, from)?;
        let time = pack::take_integer(from)?;
        let watermark = pack::take_integer(from)?;
        let value = if pack::take_flag(from)? {
            Side::Left(self.left.load(from)?)
        } else {
            Side::Right(self.right.load(from)?)
        };
        Ok(Timed {
            time,
            watermark,
            value,
        })
    }
}

impl JoinState<Raw, Raw> {
    /// Reads a state without its types.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Cause> {
        let (left, right) = (RAW, RAW);
        read(&JoinStateCodec { left, right }, bytes)
    }
}

impl<L, R> StateCodec<JoinState<L, R>> for JoinStateCodec<L, R> {
    fn save(&self, held: &JoinState<L, R>, out: &mut Vec<u8>) -> Result<(), Cause> {
        let start = out.len();
        pack::list(4, out);
        held.waiting
            .save(out, |item, out| self.save_waiting(item, out))?;
        held.left
            .save(out, |item, out| save_retained(&self.left, item, out))?;
        held.right
            .save(out, |item, out| save_retained(&self.right, item, out))?;
        pack::integer(held.expires, out);
        held.chain.saved_complete(out.len() - start);
        Ok(())
    }

    fn load(&self, from: &mut &[u8]) -> Result<JoinState<L, R>, Cause> {
        let before = from.len();
        pack::take_members(4, from)?;
        let held = JoinState {
            waiting: Backlog::load(from, |from| self.load_waiting(from))?,
            left: Backlog::load(from, |from| load_retained(&self.left, from))?,
            right: Backlog::load(from, |from| load_retained(&self.right, from))?,
            expires: pack::take_integer(from)?,
            chain: Chain::default(),
        };
        held.chain.saved_complete(before - from.len());
        Ok(held)
    }

    fn layout(&self, out: &mut Vec<&'static str>) {
        out.push("join");
    }
    fn save_added(&self, held: &JoinState<L, R>, out: &mut Vec<u8>) -> Result<bool, Cause> {
        if !held.chain.takes_changes() {
            return Ok(false);
        }
        let start = out.len();
        pack::list(5, out);
        held.waiting
            .save_changes(out, |item, out| self.save_waiting(item, out))?;
        save_retained_changes(&self.left, &held.left, out)?;
        save_retained_changes(&self.right, &held.right, out)?;
        pack::integer(held.expires, out);
        held.chain.saved_changes(out.len() - start);
        Ok(true)
    }

    fn load_added(&self, held: &mut JoinState<L, R>, from: &mut &[u8]) -> Result<(), Cause> {
        let before = from.len();
        pack::take_members(5, from)?;
        held.waiting
            .load_changes(from, |from| self.load_waiting(from), wait)?;
        load_retained_changes(&self.left, &mut held.left, from)?;
        load_retained_changes(&self.right, &mut held.right, from)?;
        held.expires = pack::take_integer(from)?;
        held.chain.saved_changes(before - from.len());
        Ok(())
    }
}

fn save_retained<T>(codec: &Codec<T>, item: &Retained<T>, out: &mut Vec<u8>) -> Result<(), Cause> {
    pack::list(3, out);
    pack::integer(item.time, out);
    pack::flag(item.alone, out);
    item.saved_alone.set(item.alone);
    codec.save(&item.value, out)
}

fn load_retained<T>(codec: &Codec<T>, from: &mut &[u8]) -> Result<Retained<T>, Cause> {
    pack::take_members(3, from)?;
    let time = pack::take_integer(from)?;
    let alone = pack::take_flag(from)?;
    Ok(Retained::new(time, alone, codec.load(from)?))
}

fn save_retained_changes<T>(
    codec: &Codec<T>,
    all: &Backlog<Retained<T>>,
    out: &mut Vec<u8>,
) -> Result<(), Cause> {
    let saved = all.saved().enumerate();
    let paired = saved.filter(|(_, item)| item.alone != item.saved_alone.get());
    let paired: Vec<usize> = paired.map(|(place, _)| place).collect();
    pack::list(3, out);
    all.save_changes(out, |item, out| save_retained(codec, item, out))?;
    pack::list(paired.len(), out);
    for place in paired {
        pack::integer(place as i64, out);
    }
    all.iter().for_each(|item| item.saved_alone.set(item.alone));
    Ok(())
}

fn load_retained_changes<T>(
    codec: &Codec<T>,
    all: &mut Backlog<Retained<T>>,
    from: &mut &[u8],
) -> Result<(), Cause> {
    pack::take_members(3, from)?;
    all.load_changes(from, |from| load_retained(codec, from), Backlog::push_back)?;
    for _ in 0..pack::take_list(from)? {
        let place = usize::try_from(pack::take_count(from)?)?;
        let item = all
            .iter_mut()
            .nth(place)
            .ok_or("it has no item at this place")?;
        item.alone = false;
        item.saved_alone.set(false);
    }
    Ok(())
}
