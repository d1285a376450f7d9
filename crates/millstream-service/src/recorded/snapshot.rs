//! Saved states of a component, so that a start need not repeat all inputs: a journal beside the output journal.
//!
//! A snapshot is one or more records with a piece of the state each (MessagePack bytes), and a record after them that
//! completes it: `[1, time in ns, outputs, checksum, schedule, checksum, pieces, [[path, identity, position, checksum],
//! ...], [[timer, name, due, length], ...], state version]`. Positions are the sequence numbers that come next, of the
//! outputs, of the [schedule](crate::recorded::schedule) after the announcement of the snapshot, and of each input,
//! which is named by its identity; each with the checksum of the record before it. Then come the one-off timers, with
//! their times in ns, and the version of the state. The last two snapshots are kept: after a loss of power that removed
//! outputs which the newest one covers, the other one remains.

use std::path::PathBuf;

use millstream_journal::{
    Bookmark, Cursor, CursorMode, Journal, Options, Retention, Sync, Writer, chain,
};
use millstream_wire::{Cause, InputName, Packer, Unpacker, WireError, pack};

use crate::error::ServiceError;
use crate::recorded::schedule::{pack_bookmark, unpack_bookmark};
use crate::timers::Pending;

/// The version of the records.
const VERSION: u64 = 1;
/// How many bytes of a state go into one record.
const PIECE_BYTES: usize = 256 << 10;
/// The size of a segment: old snapshots are removed by segments.
const SEGMENT_BYTES: u64 = 4 << 20;
/// The size of a record besides its names and its piece, at most.
const HEAD_BYTES: usize = 64;

/// A component whose state can be saved. The state must include everything that later outputs depend on.
///
/// ```
/// use millstream_service::Snapshot;
/// use millstream_wire::{Cause, packed, unpacked};
///
/// struct Desk {
///     prices: Vec<f64>,
/// }
///
/// impl Snapshot for Desk {
///     const VERSION: u64 = 2; // version 1 had the last price only
///
///     fn snapshot(&self) -> Result<Vec<u8>, Cause> {
///         Ok(packed(&self.prices)?)
///     }
///     fn restore(&mut self, state: &[u8]) -> Result<(), Cause> {
///         self.prices = unpacked(state)?;
///         Ok(())
///     }
///     fn migrate(state: &[u8], version: u64) -> Result<Vec<u8>, Cause> {
///         match version {
///             1 => Ok(packed(&vec![unpacked::<f64>(state)?])?),
///             _ => Err(format!("there is no version {version}").into()),
///         }
///     }
/// }
/// ```
pub trait Snapshot {
    /// The version of the state. A new one calls for [`migrate`](Self::migrate).
    const VERSION: u64 = 1;

    /// The state as bytes. [`packed`](millstream_wire::packed) encodes any type that is
    /// [`Wire`](macro@millstream_wire::Wire).
    ///
    /// # Errors
    /// The state cannot be kept; the service ends with that.
    fn snapshot(&self) -> Result<Vec<u8>, Cause>;

    /// Turns the state of another version into one of this version.
    ///
    /// # Errors
    /// It cannot be turned, as by default: then a start rebuilds the state from the inputs, if they are all there.
    fn migrate(state: &[u8], version: u64) -> Result<Vec<u8>, Cause> {
        let _ = state;
        let own = Self::VERSION;
        Err(format!(
            "its state has version {version}, and the component version {own} and no migrate"
        )
        .into())
    }

    /// Restores a saved state in a new component.
    ///
    /// # Errors
    /// The bytes are no state of this component; the service does not start.
    fn restore(&mut self, state: &[u8]) -> Result<(), Cause>;
}

type Save<C> = Box<dyn FnMut(&mut C) -> Result<Vec<u8>, Cause> + Send>;
type Restore<C> = Box<dyn FnMut(&mut C, &[u8], u64) -> Result<(), RestoreError> + Send>;

/// Why a state cannot be restored.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum RestoreError {
    /// It cannot be read or migrated, and the component is as it was: the inputs may rebuild the state.
    Unreadable(Cause),
    /// The component failed.
    Failed(Cause),
}

/// How the state of a component is saved, and how often.
pub(crate) struct Snapshotter<C> {
    /// Calls from one snapshot to the next.
    pub every: u64,
    /// Calls since the last one.
    pub since: u64,
    /// The version of the states that it saves.
    pub version: u64,
    pub save: Save<C>,
    pub restore: Restore<C>,
}

/// The position of a service at a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// The latest time that the component had seen.
    pub time_ns: i64,
    pub outputs: Bookmark,
    /// The position after the announcement of the snapshot.
    pub schedule: Bookmark,
    pub inputs: Vec<(InputName, Bookmark)>,
    /// The one-off timers that had not come due.
    pub timers: Vec<Pending>,
    /// The version of the state.
    pub version: u64,
}

/// The journal of the snapshots of a service.
pub(crate) struct Snapshots {
    pub name: String,
    journal: Journal,
    writer: Writer,
    /// The cursor of the journal: records before it may be pruned.
    cursor: Cursor,
    /// A snapshot survives a loss of power before it replaces earlier ones.
    durable: bool,
    /// The first record of the newest snapshot that was made since the start.
    last: Option<u64>,
}

impl Snapshots {
    /// Opens the snapshots of the service that writes to `output`: its directory with `.snapshots` after its name.
    pub fn beside(output: &Journal) -> Result<Self, ServiceError> {
        let mut path = output.path().into_os_string();
        path.push(".snapshots");
        let path = PathBuf::from(path);
        let journal = Journal::open(&path, Options::default().with_segment_bytes(SEGMENT_BYTES))?;
        Ok(Self {
            name: path.display().to_string(),
            writer: journal.writer()?,
            cursor: journal.cursor("kept", CursorMode::Exclusive)?,
            durable: output.sync_mode() != Sync::Never,
            journal,
            last: None,
        })
    }

    /// Appends a snapshot, and removes those before the last one.
    pub fn append(&mut self, position: &Position, state: &[u8]) -> Result<(), ServiceError> {
        let first = self.journal.next()?;
        let pieces = state.chunks(PIECE_BYTES);
        let count = pieces.len() as u64;
        for piece in pieces {
            let body = pack(piece.len() + HEAD_BYTES, |out| out.bytes(piece))?;
            self.writer.append(&body)?;
        }
        let names: usize = position
            .inputs
            .iter()
            .map(|(name, _)| name.path.len() + HEAD_BYTES)
            .sum();
        let timers = position.timers.iter();
        let timers = timers.map(|it| it.timer.len() + it.name.len() + HEAD_BYTES);
        let head = pack(names + timers.sum::<usize>() + HEAD_BYTES, |out| {
            position.pack(count, out)
        })?;
        self.writer.append(&head)?;
        if self.durable {
            self.journal.sync()?;
        }
        if let Some(last) = self.last.replace(first) {
            self.cursor.set(last)?;
            let passed = Retention {
                keep_for_cursors: true,
                ..Retention::default()
            };
            self.journal.prune(&passed)?;
        }
        Ok(())
    }

    /// The newest snapshot whose position `fits` accepts, with its state and its sequence number.
    pub fn newest(
        &self,
        mut fits: impl FnMut(&Position) -> Result<bool, ServiceError>,
    ) -> Result<Option<(Position, Vec<u8>, u64)>, ServiceError> {
        let mut reader = self.journal.reader()?;
        let first = self.journal.first()?;
        for sequence in (first..self.journal.next()?).rev() {
            let body = reader.read(sequence)?.body;
            let found = Position::unpack(body).map_err(|error| self.fault(sequence, error))?;
            let Some((position, pieces)) = found else {
                continue; // a piece
            };
            if sequence - first < pieces || !fits(&position)? {
                continue;
            }
            let mut state = Vec::new();
            for piece in sequence - pieces..sequence {
                let mut values = Unpacker::new(reader.read(piece)?.body);
                state.extend(values.bytes().map_err(|error| self.fault(piece, error))?);
            }
            return Ok(Some((position, state, sequence)));
        }
        Ok(None)
    }

    /// A snapshot that cannot be read.
    pub fn unreadable(&self, sequence: u64, cause: &Cause) -> String {
        format!(
            "{}, record {sequence}: the state cannot be read: {}",
            self.name,
            chain(&**cause)
        )
    }

    /// A snapshot that the component could not restore.
    pub fn not_restored(&self, sequence: u64, cause: Cause) -> ServiceError {
        ServiceError::NotRestored {
            journal: self.name.clone(),
            sequence,
            cause,
        }
    }

    /// What is wrong with a snapshot.
    pub fn fault(&self, sequence: u64, cause: impl Into<Cause>) -> ServiceError {
        ServiceError::Snapshot {
            journal: self.name.clone(),
            sequence,
            cause: cause.into(),
        }
    }
}

impl Position {
    fn pack(&self, pieces: u64, out: &mut Packer<'_>) -> Result<(), Box<WireError>> {
        out.array(10)?;
        out.uint(VERSION)?;
        out.int(self.time_ns)?;
        pack_bookmark(self.outputs, out)?;
        pack_bookmark(self.schedule, out)?;
        out.uint(pieces)?;
        out.array(self.inputs.len())?;
        for (name, position) in &self.inputs {
            out.array(4)?;
            name.pack(out)?;
            pack_bookmark(*position, out)?;
        }
        out.array(self.timers.len())?;
        for it in &self.timers {
            out.array(4)?;
            out.str(&it.timer)?;
            out.str(&it.name)?;
            out.int(it.due_ns)?;
            out.int(it.length_ns)?;
        }
        out.uint(self.version)
    }

    /// The position and the number of pieces before it; `None` for a piece.
    fn unpack(body: &[u8]) -> Result<Option<(Self, u64)>, Cause> {
        let mut values = Unpacker::new(body);
        if values.clone().bytes().is_ok() {
            return Ok(None);
        }
        values.array()?;
        let version = values.uint()?;
        if version != VERSION {
            return Err(
                format!("a snapshot of version {version}; this program reads {VERSION}").into(),
            );
        }
        let time_ns = values.int()?;
        let outputs = unpack_bookmark(&mut values)?;
        let schedule = unpack_bookmark(&mut values)?;
        let pieces = values.uint()?;
        let inputs = unpack_inputs(&mut values)?;
        let timers = unpack_timers(&mut values)?;
        let state_version = values.uint()?;
        values.end()?;
        let position = Self {
            time_ns,
            outputs,
            schedule,
            inputs,
            timers,
            version: state_version,
        };
        Ok(Some((position, pieces)))
    }
}

fn unpack_inputs(values: &mut Unpacker<'_>) -> Result<Vec<(InputName, Bookmark)>, Box<WireError>> {
    let count = values.array()?;
    let input = |_| {
        values.array_of(4)?;
        Ok((InputName::unpack(values)?, unpack_bookmark(values)?))
    };
    (0..count).map(input).collect()
}

fn unpack_timers(values: &mut Unpacker<'_>) -> Result<Vec<Pending>, Box<WireError>> {
    let count = values.array()?;
    let timer = |_| {
        values.array_of(4)?;
        Ok(Pending {
            timer: values.str()?.to_owned(),
            name: values.str()?.to_owned(),
            due_ns: values.int()?,
            length_ns: values.int()?,
        })
    };
    (0..count).map(timer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, identity: u128) -> InputName {
        InputName {
            path: path.to_owned(),
            identity,
        }
    }

    fn at(next: u64) -> Bookmark {
        let checksum = (next > 0).then_some(5);
        Bookmark { next, checksum }
    }

    fn position(outputs: u64) -> Position {
        Position {
            time_ns: -1,
            outputs: at(outputs),
            schedule: at(7),
            inputs: vec![
                (named("orders", 9), at(outputs * 3)),
                (named("limits", 8), at(0)),
            ],
            timers: vec![Pending {
                timer: "expire".to_owned(),
                name: "A-1".to_owned(),
                due_ns: 5,
                length_ns: 3,
            }],
            version: 4,
        }
    }

    #[test]
    fn the_newest_that_fits_is_found_and_old_ones_go() {
        let folder = tempfile::tempdir().unwrap();
        let output = Journal::open(folder.path().join("out"), Options::default()).unwrap();
        let state = |number: u64| vec![number as u8; 1_000_000 + number as usize];
        let mut snapshots = Snapshots::beside(&output).unwrap();
        assert_eq!(snapshots.newest(|_| Ok(true)).unwrap(), None);
        for number in 0..20 {
            snapshots.append(&position(number), &state(number)).unwrap();
        }
        assert!(
            snapshots.journal.first().unwrap() > 0,
            "nothing was removed"
        );
        drop(snapshots);
        let snapshots = Snapshots::beside(&output).unwrap();
        for number in [19, 18] {
            let found = snapshots
                .newest(|at| Ok(at.outputs.next <= number))
                .unwrap();
            let (at, kept, _) = found.unwrap();
            assert_eq!(at, position(number));
            assert!(kept == state(number));
        }
    }

    #[test]
    fn a_component_without_state_has_snapshots_too() {
        let folder = tempfile::tempdir().unwrap();
        let output = Journal::open(folder.path().join("out"), Options::default()).unwrap();
        let mut snapshots = Snapshots::beside(&output).unwrap();
        snapshots.append(&position(1), b"").unwrap();
        let (at, kept, sequence) = snapshots.newest(|_| Ok(true)).unwrap().unwrap();
        assert_eq!((at, kept, sequence), (position(1), Vec::new(), 0));
    }

    #[test]
    fn a_snapshot_is_these_bytes() {
        let id = |last: u8| [&b"\xc4\x10"[..], &[0; 15], &[last]].concat();
        let bytes = [
            &b"\x9a\x01\xff\x02\x05\x07\x05\x03\x92\x94\xa6orders"[..],
            &id(9),
            b"\x06\x05\x94\xa6limits",
            &id(8),
            b"\x00\xc0\x91\x94\xa6expire\xa3A-1\x05\x03\x04",
        ]
        .concat();
        let packed = pack(128, |out| position(2).pack(3, out)).unwrap();
        assert_eq!(packed, bytes);
        assert_eq!(Position::unpack(&bytes).unwrap(), Some((position(2), 3)));
        for cut in 0..bytes.len() {
            assert!(Position::unpack(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn a_snapshot_of_a_later_version_is_refused_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let output = Journal::open(folder.path().join("out"), Options::default()).unwrap();
        let snapshots = Snapshots::beside(&output).unwrap();
        let later = pack(8, |out| {
            out.array(1)?;
            out.uint(2)
        });
        snapshots.writer.append(&later.unwrap()).unwrap();
        let error = format!("{:?}", snapshots.newest(|_| Ok(true)).unwrap_err());
        assert!(
            error.ends_with(
                "out.snapshots, record 0: a snapshot of version 2; this program reads 1"
            ),
            "{error}"
        );
    }
}
