//! Encodes what steps store around the values of their keys as MessagePack: lists of a known or unknown length,
//! numbers and flags.
//!
//! ```
//! use millstream_flow::checkpoint::pack;
//!
//! let mut saved = Vec::new();
//! pack::list(2, &mut saved);
//! pack::integer(-7, &mut saved);
//! pack::flag(true, &mut saved);
//! let mut rest = &saved[..];
//! pack::take_members(2, &mut rest)?;
//! assert_eq!((pack::take_integer(&mut rest)?, pack::take_flag(&mut rest)?), (-7, true));
//! # Ok::<(), millstream_flow::error::Cause>(())
//! ```

use crate::error::Cause;

/// Appends the header of a list; its members follow.
pub fn list(members: usize, out: &mut Vec<u8>) {
    // Writing to memory does not fail, here and below.
    let _ = rmp::encode::write_array_len(out, u32::try_from(members).unwrap_or(u32::MAX));
}

/// Appends a number.
pub fn integer(number: i64, out: &mut Vec<u8>) {
    let _ = rmp::encode::write_sint(out, number);
}

/// Appends a boolean.
pub fn flag(flag: bool, out: &mut Vec<u8>) {
    let _ = rmp::encode::write_bool(out, flag);
}

/// Reads the header of a list; returns the number of members that follow.
///
/// # Errors
/// The bytes are not a list.
pub fn take_list(from: &mut &[u8]) -> Result<usize, Cause> {
    Ok(rmp::decode::read_array_len(from)? as usize)
}

/// Reads the header of a list with a known number of members.
///
/// # Errors
/// The bytes are not a list, or it has another length.
pub fn take_members(members: usize, from: &mut &[u8]) -> Result<(), Cause> {
    match take_list(from)? {
        found if found == members => Ok(()),
        found => Err(format!("it has {found} parts where {members} were expected").into()),
    }
}

/// Reads a number.
///
/// # Errors
/// The bytes are not a number.
pub fn take_integer(from: &mut &[u8]) -> Result<i64, Cause> {
    Ok(rmp::decode::read_int(from)?)
}

/// Reads a number that is 0 or greater.
///
/// # Errors
/// The bytes are not a number, or it is negative.
pub fn take_count(from: &mut &[u8]) -> Result<u64, Cause> {
    Ok(take_integer(from)?.try_into()?)
}

/// Reads a boolean.
///
/// # Errors
/// The bytes are not a boolean.
pub fn take_flag(from: &mut &[u8]) -> Result<bool, Cause> {
    Ok(rmp::decode::read_bool(from)?)
}
