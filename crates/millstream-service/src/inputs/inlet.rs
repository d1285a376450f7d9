//! One input of a service: reads the calls of a journal and calls the component.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use millstream_journal::{Bookmark, Cursor, Error as JournalError, Host, Journal, Reader, Wait};
use millstream_wire::{Adapter, CallError, Cause, Head, Lineage, Record, Schema, Unpacker};

use crate::error::ServiceError;
use crate::inputs::admit;
use crate::inputs::calls::Calls;
use crate::outputs::progress::Progress;
use crate::panics::call;

/// Calls a component with the arguments of the method of this number.
pub(crate) type Dispatch<C> =
    Box<dyn FnMut(&mut C, u64, Unpacker<'_>) -> Result<(), CallError> + Send>;

/// The outcome of taking an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Outcome {
    /// The component was called.
    Call,
    /// The record is no call for the component.
    Note,
    /// There is no record yet.
    Nothing,
}

/// A journal, and the interfaces of the component whose calls are in it.
pub(crate) struct Inlet<C> {
    pub number: u32,
    pub name: String,
    /// The first record that the service took in any run.
    pub start: u64,
    /// Whether the first record that the service takes is known.
    pub placed: bool,
    /// Whether it was empty at the last announcement, so that it may have become a copy of another journal since.
    pub was_empty: bool,
    /// Protects the records that the service still needs from pruning. `None` for a journal that may only be read.
    pub cursor: Option<Cursor>,
    pub journal: Journal,
    reader: Reader,
    /// The next record, if it has been pruned.
    missing: Option<u64>,
    seen: Seen,
    /// Whether pruned records are skipped.
    pub skip_pruned: bool,
    faces: Vec<Face<C>>,
    /// The schemas and names that the journal's writers have noted.
    calls: Calls,
}

/// When an input was looked at, and the end of its records then if the next one was from the future.
#[derive(Default)]
struct Seen {
    at_ns: u64,
    end: u64,
}

/// An interface as the component knows it.
struct Face<C> {
    schema: Schema,
    /// The adapter for each other version of the interface that was read.
    adapters: HashMap<u32, Adapter>,
    dispatch: Dispatch<C>,
}

impl<C> Inlet<C> {
    pub fn new(number: u32, journal: &Journal) -> Result<Self, ServiceError> {
        let reader = journal.reader()?;
        Ok(Self {
            number,
            name: journal.path().display().to_string(),
            start: reader.position(),
            placed: false,
            was_empty: false,
            cursor: None,
            missing: None,
            seen: Seen::default(),
            skip_pruned: false,
            reader,
            journal: journal.clone(),
            faces: Vec::new(),
            calls: Calls::of(journal),
        })
    }

    /// Calls of this interface are for the component, too.
    pub fn also(&mut self, schema: Schema, dispatch: Dispatch<C>) {
        self.faces.push(Face {
            schema,
            adapters: HashMap::new(),
            dispatch,
        });
    }

    /// Refuses a journal with records of which none is for the component.
    pub fn check_calls(&self) -> Result<(), ServiceError> {
        let schemas: Vec<_> = self.faces.iter().map(|face| &face.schema).collect();
        admit::has_calls_of(&self.journal, &schemas)
    }

    /// The sequence number after the last record that is there now.
    pub fn end(&self) -> Result<u64, ServiceError> {
        Ok(self.journal.next()?)
    }

    /// The sequence number of the next record.
    #[inline]
    pub fn position(&self) -> u64 {
        self.missing.unwrap_or(self.reader.position())
    }

    /// The oldest record that is there.
    pub fn first(&self) -> Result<u64, ServiceError> {
        Ok(self.journal.first()?)
    }

    /// Protects records from this one on from pruning, if there is a cursor.
    pub fn protect_from(&self, sequence: u64) -> Result<(), ServiceError> {
        if let Some(cursor) = &self.cursor {
            cursor.set(sequence.max(self.first()?).min(self.end()?))?;
        }
        Ok(())
    }

    /// Checks that a record has not been pruned.
    pub fn needs(&self, sequence: u64) -> Result<(), ServiceError> {
        let first = self.first()?;
        if sequence >= first || self.skip_pruned {
            return Ok(());
        }
        Err(ServiceError::Pruned {
            journal: self.name.clone(),
            needed: sequence,
            first,
        })
    }

    /// Moves to a record, which must exist.
    pub fn seek(&mut self, sequence: u64) -> Result<(), ServiceError> {
        self.needs(sequence)?;
        self.go_to(sequence)
    }

    /// Moves to a record, or to the end if it does not exist yet. One that was pruned is [needed](Self::needs) then.
    pub fn go_to(&mut self, sequence: u64) -> Result<(), ServiceError> {
        // Notes in the records that were skipped have not been read.
        self.calls = Calls::of(&self.journal);
        let first = self.first()?;
        self.missing = (sequence < first && !self.skip_pruned).then_some(sequence);
        Ok(self.reader.seek(sequence.max(first).min(self.end()?))?)
    }

    /// The time by which the next record is ordered among several inputs: when it was written. Records from the future
    /// count from when they were seen, so that the other inputs do not hold them up until then.
    pub fn peek_order(&mut self, host: &Host) -> Result<Option<(u64, u32)>, ServiceError> {
        let Some((time_ns, checksum)) = self.peek()? else {
            return Ok(None);
        };
        if time_ns > self.seen.at_ns && self.position() >= self.seen.end {
            let at_ns = host.time_ns();
            let end = if time_ns > at_ns { self.end()? } else { 0 };
            self.seen = Seen { end, at_ns };
        }
        Ok(Some((time_ns.min(self.seen.at_ns), checksum)))
    }

    /// Passes the next record without calling the component.
    pub fn pass(&mut self) -> Result<(), ServiceError> {
        if let Some(record) = self.reader.next()?
            && let Ok(Record::Note(note)) = Record::read(record.body)
        {
            // A note that this version does not know is an error for the call that needs it.
            let _known = self.calls.learn(record.sequence, note);
        }
        Ok(())
    }

    /// When the next record was written, and its checksum.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<(u64, u32)>, ServiceError> {
        let next = self.reader.peek()?;
        Ok(next.map(|record| (record.time_ns, record.checksum())))
    }

    /// The position of the next record, with the checksum of the one before.
    pub fn bookmark(&self) -> Result<Bookmark, ServiceError> {
        match self.missing {
            Some(next) => {
                let checksum = None;
                Ok(Bookmark { next, checksum })
            }
            None => Ok(self.reader.bookmark()?),
        }
    }

    /// Makes all existing records durable, if there is a next one. A journal that was opened
    /// to read is as durable as its writers make it.
    #[cold]
    pub fn make_durable(&self) -> Result<(), ServiceError> {
        let at = self.reader.position();
        if self.journal.durable() > at || self.journal.next()? <= at {
            return Ok(());
        }
        match self.journal.sync() {
            Ok(_) | Err(JournalError::ReadOnly { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    pub fn wait(&mut self, wait: Wait, limit: Duration) -> Result<bool, ServiceError> {
        Ok(self.reader.wait(wait, Some(limit))?)
    }

    /// Takes the next record, if there is one.
    #[inline]
    pub fn take(
        &mut self,
        component: &mut C,
        progress: &mut Progress,
    ) -> Result<Outcome, ServiceError> {
        let Some(record) = self.reader.next()? else {
            return Ok(Outcome::Nothing);
        };
        let sequence = record.sequence;
        let time_ns = record.time_ns;
        let body = record.body;
        let lineage = Lineage {
            input: self.number,
            sequence,
            checksum: record.checksum(),
        };
        let called = match Record::read(body) {
            Ok(Record::Call(_, head, arguments)) => {
                progress.begin(lineage, time_ns);
                let known = self
                    .faces
                    .iter_mut()
                    .find(|face| face.schema.id() == head.schema);
                match known {
                    Some(face) => call(component, |component| {
                        (face.dispatch)(component, head.method, arguments).map_err(Cause::from)
                    }),
                    // A call of no interface that the component knows in just this version.
                    None => self.calls.schema(head.schema, sequence).and_then(|theirs| {
                        call_adapted(&mut self.faces, component, theirs, head, arguments)
                    }),
                }
            }
            Ok(Record::Note(note)) => match self.calls.learn(sequence, note) {
                Ok(_) => return Ok(Outcome::Note),
                Err(error) => Err(error),
            },
            Err(error) => Err(error.into()),
        };
        match called {
            Ok(()) => progress.end(&self.name, sequence, body)?,
            Err(cause) => progress.failed(&self.name, sequence, body, cause)?,
        }
        Ok(Outcome::Call)
    }
}

/// Calls the component with a call of another version of one of its interfaces; one of another interface is skipped.
#[cold]
fn call_adapted<C>(
    faces: &mut [Face<C>],
    component: &mut C,
    theirs: &Schema,
    head: Head,
    arguments: Unpacker<'_>,
) -> Result<(), Cause> {
    let ours = |face: &&mut Face<C>| face.schema.interface() == theirs.interface();
    let Some(face) = faces.iter_mut().find(ours) else {
        return Ok(());
    };
    let adapter = match face.adapters.entry(head.schema) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(place) => place.insert(Adapter::new(theirs, &face.schema)?),
    };
    match adapter.adapt(head.method, arguments)? {
        Some((method, arguments)) => call(component, |component| {
            (face.dispatch)(component, method, arguments).map_err(Cause::from)
        }),
        None => Err(face
            .schema
            .unknown_method(&theirs.method(head.method)?.name)
            .into()),
    }
}
