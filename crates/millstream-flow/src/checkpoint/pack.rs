//! What steps keep around the values of their keys, as MessagePack: lists of a known or unknown length, and
//! numbers.
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

/// Appends the head of a list, whose members follow.
pub fn list(members: usize, out: &mut Vec<u8>) {
    // Writing to memory does not fail, here and below.
    let _ = rmp::encode::write_array_len(out, u32::try_from(members).unwrap_or(u32::MAX));
}

/// Appends a number.
pub fn integer(number: i64, out: &mut Vec<u8>) {
    let _ = rmp::encode::write_sint(out, number);
}

/// Appends true or false.
pub fn flag(flag: bool, out: &mut Vec<u8>) {
    let _ = rmp::encode::write_bool(out, flag);
}

/// Takes the head of a list; gives how many members follow.
///
/// # Errors
/// There is none, here and below.
pub fn take_list(from: &mut &[u8]) -> Result<usize, Cause> {
    Ok(rmp::decode::read_array_len(from)? as usize)
}

/// Takes the head of a list of so many members.
///
/// # Errors
/// The list has another length, too.
pub fn take_members(members: usize, from: &mut &[u8]) -> Result<(), Cause> {
    match take_list(from)? {
        found if found == members => Ok(()),
        found => Err(format!("it has {found} parts where {members} were expected").into()),
    }
}

/// Takes a number.
///
/// # Errors
/// There is none.
pub fn take_integer(from: &mut &[u8]) -> Result<i64, Cause> {
    Ok(rmp::decode::read_int(from)?)
}

/// Takes a number of things.
///
/// # Errors
/// It is less than nothing, too.
pub fn take_count(from: &mut &[u8]) -> Result<u64, Cause> {
    Ok(take_integer(from)?.try_into()?)
}

/// Takes true or false.
///
/// # Errors
/// There is neither.
pub fn take_flag(from: &mut &[u8]) -> Result<bool, Cause> {
    Ok(rmp::decode::read_bool(from)?)
}
