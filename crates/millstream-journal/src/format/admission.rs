//! The admission of a follower's copy, in the file of its cursor: which copy [counts](crate::copies::followers).
//!
//! The invariant: a copy is complete on the disk before any process counts it. Damage leaves a copy that is known and
//! does not count.

use std::io;

use crate::error::{Error, Result};
use crate::storage::{Region, Storage};

/// The start of the name of a follower's cursor.
#[doc(hidden)] // For the other crates of Millstream.
pub const FOLLOWER: &str = "follower.";

/// Where a cursor's file has the state of the admission, the copy, and the checksum of that.
const STATE: u64 = 192;
const COPY: u64 = 200;
const CHECK: u64 = 208;
const END: u64 = 216;
/// The admission has begun. It is done once the copy is on the disk.
const BEGUN: u64 = u64::from_le_bytes(*b"MSADMIT\x01");
const DONE: u64 = u64::from_le_bytes(*b"MSCOUNT\x01");

/// Whether a copy was admitted under the name of a follower, and which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Admission {
    /// None.
    #[default]
    None,
    /// This one, and a crash came before that was complete: it is known, and does not count.
    Begun(u64),
    /// This one.
    Done(u64),
}

impl Admission {
    /// Whether the position of a copy counts.
    #[must_use]
    pub fn counts(self, copy: u64) -> bool {
        self == Admission::Done(copy)
    }

    /// The copy that is known, also before its admission is complete.
    #[must_use]
    pub fn known(self) -> Option<u64> {
        match self {
            Admission::None => None,
            Admission::Begun(copy) | Admission::Done(copy) => Some(copy),
        }
    }
}

/// Store an admission, on the disk too.
pub(crate) fn write<R: Region>(region: &R, copy: u64) -> io::Result<()> {
    region.publish(STATE, BEGUN);
    region.publish(COPY, copy);
    region.publish(CHECK, checksum(copy));
    region.sync(STATE, END)?;
    region.publish(STATE, DONE);
    region.sync(STATE, END)
}

/// End an admission, on the disk too.
pub(crate) fn end<R: Region>(region: &R) -> io::Result<()> {
    region.publish(STATE, 0);
    region.sync(STATE, END)
}

/// What a file says. Damage leaves a copy that is known, and does not count.
#[inline]
pub(crate) fn read<R: Region>(region: &R) -> Admission {
    let copy = region.load(COPY);
    let check = region.load(CHECK);
    // Last: it is complete after the others are.
    match region.load(STATE) {
        DONE if check == checksum(copy) => Admission::Done(copy),
        0 => Admission::None,
        _ => Admission::Begun(copy),
    }
}

/// The damage of an admission, if any.
pub(crate) fn check<S: Storage>(storage: &S, name: &str, region: &S::Region) -> Result<()> {
    let state = region.load(STATE);
    let copy = region.load(COPY);
    let check = region.load(CHECK);
    let is_sound = match state {
        // A crash may leave a part of the rest.
        0 | BEGUN => true,
        DONE => check == checksum(copy),
        _ => false,
    };
    if is_sound {
        return Ok(());
    }
    Err(Error::Damage {
        path: storage.path(&format!("cursors/{name}")),
        offset: STATE,
        what: "the copy that was admitted does not match its checksum: it does not count until it is admitted again".to_owned(),
    })
}

fn checksum(copy: u64) -> u64 {
    crc32c::crc32c(&copy.to_le_bytes()).into()
}
