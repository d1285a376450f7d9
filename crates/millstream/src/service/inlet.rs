//! One input of a service: reads the calls of a journal and calls the component.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use millstream_journal::{Journal, Reader, Wait};
use millstream_wire::{Adapter, CallError, Cause, Head, Lineage, Record, Schema, Unpacker};

use super::calls::Calls;
use super::error::ServiceError;
use super::progress::Progress;

/// Calls a component with the arguments of the method of this number.
pub(super) type Dispatch<C> =
    Box<dyn FnMut(&mut C, u64, Unpacker<'_>) -> Result<(), CallError> + Send>;

/// What came of looking for an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// The component was called.
    Call,
    /// A record that is no call for the component.
    Note,
    /// There is nothing, so far.
    Nothing,
}

/// A journal, and the interfaces of the component whose calls are in it.
pub(super) struct Inlet<C> {
    pub number: u32,
    pub name: String,
    reader: Reader,
    journal: Journal,
    faces: Vec<Face<C>>,
    /// What the journal's writers have told.
    calls: Calls,
}

/// An interface as the component knows it.
struct Face<C> {
    schema: Schema,
    /// For each other version of the interface that has been met, how to read it.
    adapters: HashMap<u32, Adapter>,
    dispatch: Dispatch<C>,
}

impl<C> Inlet<C> {
    pub fn new(number: u32, journal: &Journal) -> Result<Self, ServiceError> {
        Ok(Self {
            number,
            name: journal.path().display().to_string(),
            reader: journal.reader()?,
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

    /// Behind the last record that is there now.
    pub fn end(&self) -> Result<u64, ServiceError> {
        Ok(self.journal.next()?)
    }

    /// The record that comes next.
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    pub fn seek(&mut self, sequence: u64) -> Result<(), ServiceError> {
        // What was told in between has not been heard.
        self.calls = Calls::of(&self.journal);
        Ok(self.reader.seek(sequence)?)
    }

    /// When the next record was written.
    pub fn peek_time(&mut self) -> Result<Option<u64>, ServiceError> {
        Ok(self.reader.peek_time()?)
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
    ) -> Result<Taken, ServiceError> {
        let Some(record) = self.reader.next()? else {
            return Ok(Taken::Nothing);
        };
        let (sequence, time_ns, body) = (record.sequence, record.time_ns, record.body);
        let lineage = Lineage {
            input: self.number,
            sequence,
        };
        let called = match Record::read(body) {
            Ok(Record::Call(_, head, arguments)) => {
                progress.begin(lineage, time_ns);
                let known = self
                    .faces
                    .iter_mut()
                    .find(|face| face.schema.id() == head.schema);
                match known {
                    Some(face) => {
                        (face.dispatch)(component, head.method, arguments).map_err(Cause::from)
                    }
                    // A call of no interface that the component knows in just this version.
                    None => self.calls.schema(head.schema, sequence).and_then(|theirs| {
                        call_adapted(&mut self.faces, component, theirs, head, arguments)
                    }),
                }
            }
            Ok(Record::Note(note)) => match self.calls.learn(sequence, note) {
                Ok(_) => return Ok(Taken::Note),
                Err(error) => Err(error),
            },
            Err(error) => Err(error.into()),
        };
        match called {
            Ok(()) => progress.end(&self.name, sequence)?,
            Err(cause) => progress.failed(&self.name, sequence, body, cause)?,
        }
        Ok(Taken::Call)
    }
}

/// Calls the component with a call of another version of one of its interfaces; one of another interface is passed over.
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
        Some((method, arguments)) => {
            (face.dispatch)(component, method, arguments).map_err(Cause::from)
        }
        None => Err(face
            .schema
            .unknown_method(&theirs.method(head.method)?.name)
            .into()),
    }
}
