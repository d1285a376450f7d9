//! How a journal is opened: durability, sizes, limits, retention.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::copies::identity::Identity;
use crate::error::{Error, Result};
use crate::format::frame;
use crate::format::segment::{self, Size};
use crate::host::Host;
use crate::times;

/// Half of all numbers: what is counted from there does not overflow.
const FIRST_SEQUENCE_MAX: u64 = 1 << 63;

/// When what was appended is made to survive a loss of power.
///
/// In every mode it survives the death of any process as soon as `append` has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When the kernel writes pages back, typically within 30 seconds.
    Never,
    /// In the background, so that a loss of power loses at most the records acknowledged within this time.
    Every(Duration),
    /// Before `append` returns. Appends at the same time share one sync.
    Always,
}

impl FromStr for Sync {
    type Err = String;

    /// `never`, `always`, or a time above 0 like `100ms`.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "never" => return Ok(Sync::Never),
            "always" => return Ok(Sync::Always),
            _ => {}
        }
        match times::parse(text) {
            Some(time) if !time.is_zero() => Ok(Sync::Every(time)),
            _ => Err(format!(
                "\"{text}\" is none of never, always, or a time above 0 like 100ms"
            )),
        }
    }
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sync::Never => f.write_str("never"),
            Sync::Always => f.write_str("always"),
            Sync::Every(every) => f.write_str(&times::text_of(*every)),
        }
    }
}

/// What may be removed from the front of a journal, whole segments at a time. A limit that is `None` removes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Keep at most about this many bytes of segments.
    pub bytes: Option<u64>,
    /// Remove segments whose last record is older.
    pub age: Option<Duration>,
    /// Never remove what a named cursor has not passed; with no other limit, remove all that every cursor has passed.
    pub keep_for_cursors: bool,
}

/// How a journal is opened. The defaults are safe for one machine with several processes.
#[derive(Clone, Debug)]
pub struct Options {
    /// When appended records survive a loss of power.
    pub sync: Sync,
    /// The size of a segment in bytes. An existing journal keeps the size that it was created with.
    pub segment_bytes: u64,
    /// The size in bytes of the first segment, for a journal whose segments grow: each has twice the size of the one
    /// before, up to `segment_bytes`, so that a journal with few records takes little room. A multiple of 4096 from
    /// 16,384 on. Only an `exclusive` opening may grow segments; `None` makes all of one size.
    #[doc(hidden)] // For the other crates of Millstream.
    pub segment_bytes_first: Option<u64>,
    /// The longest record that this opening appends, in bytes.
    pub record_bytes_max: u32,
    /// What is removed in the background at each new segment.
    pub retention: Retention,
    /// Refuse other openings that could write, and be refused by them.
    pub exclusive: bool,
    /// Refuse other writers, and be refused by them. Others may still read, keep cursors and prune. A copy of a journal
    /// needs this, since only its follower may append.
    pub sole_writer: bool,
    /// Refuse other writers, as a sole one does, and append to a journal that is claimed: for its owner.
    #[doc(hidden)] // For the other crates of Millstream.
    pub claims: bool,
    /// Make the journal when there is none.
    pub create: bool,
    /// Create the journal, and refuse an existing one.
    pub create_new: bool,
    /// The sequence number of the first record of a journal that is made: a copy continues with the numbers of the
    /// original.
    #[doc(hidden)] // For the other crates of Millstream.
    pub first_sequence: u64,
    /// The identity of a journal that is made, for a copy. Without, it begins a lineage of its own.
    #[doc(hidden)] // For the other crates of Millstream.
    pub identity: Option<Identity>,
    /// Only read: nothing is created, locked or repaired, and a torn end is skipped, not truncated. The only store is
    /// one word in the file `control`, where that is permitted: the reader asks to be woken.
    pub read_only: bool,
    /// How long an append waits for another that does not end.
    pub busy_timeout: Duration,
    /// The clocks and the randomness.
    #[doc(hidden)] // For the other crates of Millstream.
    pub host: Host,
}

impl Default for Options {
    fn default() -> Self {
        Options::on(Host::real())
    }
}

impl Options {
    /// Whether no other opening appends.
    pub(crate) fn is_alone(&self) -> bool {
        self.sole_writer || self.claims
    }

    /// The defaults on this host, real or simulated.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn on(host: Host) -> Self {
        Options {
            sync: Sync::Never,
            segment_bytes: 64 << 20,
            segment_bytes_first: None,
            record_bytes_max: 16 << 20,
            retention: Retention::default(),
            exclusive: false,
            sole_writer: false,
            claims: false,
            create: true,
            create_new: false,
            first_sequence: 0,
            identity: None,
            read_only: false,
            busy_timeout: Duration::from_secs(10),
            host,
        }
    }

    /// Options to read a journal that exists.
    #[must_use]
    pub fn read_only() -> Self {
        Options {
            read_only: true,
            create: false,
            ..Options::default()
        }
    }

    /// These options with another `sync`.
    #[must_use]
    pub fn with_sync(self, sync: Sync) -> Self {
        Options { sync, ..self }
    }

    /// These options with another size of segments, in bytes.
    #[must_use]
    pub fn with_segment_bytes(self, segment_bytes: u64) -> Self {
        Options {
            segment_bytes,
            ..self
        }
    }

    /// These options with another `retention`.
    #[must_use]
    pub fn with_retention(self, retention: Retention) -> Self {
        Options { retention, ..self }
    }

    /// The size of the first segment of a journal that is made.
    pub(crate) fn size_of_first(&self) -> Size {
        Size {
            bytes: self.segment_bytes_first.unwrap_or(self.segment_bytes),
            bytes_max: self.segment_bytes,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let least = segment::BYTES_MIN;
        let most = segment::BYTES_MAX;
        if !(least..=most).contains(&self.segment_bytes)
            || !self.segment_bytes.is_multiple_of(segment::BLOCK)
        {
            return Err(Error::Option {
                name: "segment_bytes",
                value: self.segment_bytes,
                expected: format!("a multiple of {} from {least} to {most}", segment::BLOCK),
            });
        }
        let least = segment::SMALL_BYTES_MIN;
        let step = segment::SMALL_STEP;
        if let Some(first) = self.segment_bytes_first
            && (!(least..=self.segment_bytes).contains(&first)
                || !first.is_multiple_of(step)
                || !self.exclusive)
        {
            return Err(Error::Option {
                name: "segment_bytes_first",
                value: first,
                expected: format!(
                    "a multiple of {step} from {least} to segment_bytes, in an exclusive opening"
                ),
            });
        }
        if self.record_bytes_max > frame::BODY_BYTES_MAX {
            return Err(Error::Option {
                name: "record_bytes_max",
                value: self.record_bytes_max.into(),
                expected: format!("at most {}", frame::BODY_BYTES_MAX),
            });
        }
        if self.first_sequence > FIRST_SEQUENCE_MAX {
            return Err(Error::Option {
                name: "first_sequence",
                value: self.first_sequence,
                expected: format!("at most {FIRST_SEQUENCE_MAX}"),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_is_a_word_or_a_time() {
        for (text, sync) in [
            ("never", Sync::Never),
            ("always", Sync::Always),
            ("50ms", Sync::Every(Duration::from_millis(50))),
        ] {
            assert_eq!(text.parse(), Ok(sync));
        }
        for wrong in ["", "0s", "sometimes", "-1s"] {
            assert!(wrong.parse::<Sync>().is_err(), "{wrong}");
        }
        let sync = Sync::Every(Duration::from_millis(1500));
        assert_eq!(sync.to_string(), "1s 500ms");
        assert_eq!(sync.to_string().parse(), Ok(sync));
    }
}
