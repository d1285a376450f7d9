//! Saved values that are read without their types, to show them: the bytes of each.

use super::codec::{Codec, StateCodec};
use super::json;
use crate::error::Cause;

/// A value as it was saved, and what was added to it: each is one value of MessagePack.
pub(crate) struct Raw(pub(crate) Vec<u8>);

/// The codec of one value.
pub(crate) const RAW: Codec<Raw> = Codec {
    save: |raw, out| {
        out.extend(&raw.0);
        Ok(())
    },
    load: |from| {
        let all = *from;
        json::skip(from).ok_or("it is not MessagePack")?;
        Ok(Raw(all[..all.len() - from.len()].to_vec()))
    },
};

/// The codec of a value to which others are added.
pub(crate) struct RawState;

impl StateCodec<Raw> for RawState {
    fn save(&self, raw: &Raw, out: &mut Vec<u8>) -> Result<(), Cause> {
        RAW.save(raw, out)
    }
    fn load(&self, from: &mut &[u8]) -> Result<Raw, Cause> {
        RAW.load(from)
    }
    fn load_added(&self, raw: &mut Raw, from: &mut &[u8]) -> Result<(), Cause> {
        raw.0.extend(RAW.load(from)?.0);
        Ok(())
    }
}

/// Reads a state with all that was added to it.
pub(crate) fn read<S>(codec: &dyn StateCodec<S>, mut bytes: &[u8]) -> Result<S, Cause> {
    let mut state = codec.load(&mut bytes)?;
    while !bytes.is_empty() {
        codec.load_added(&mut state, &mut bytes)?;
    }
    Ok(state)
}
