//! One input of a service: reads the calls of a journal and calls the component.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use millstream_journal::{Journal, Reader, Wait};
use millstream_wire::{
    Adapter, CallError, Catalog, Cause, Head, Lineage, Note, Record, Schema, Unpacker, WireError,
};

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

pub(super) struct Inlet<C> {
    pub number: u32,
    pub name: String,
    reader: Reader,
    /// The interface as the component knows it.
    schema: Arc<Schema>,
    versions: Versions,
    dispatch: Dispatch<C>,
}

impl<C> Inlet<C> {
    pub fn new(
        number: u32,
        journal: &Journal,
        schema: Schema,
        dispatch: Dispatch<C>,
    ) -> Result<Self, ServiceError> {
        let schema = Arc::new(schema);
        Ok(Self {
            number,
            name: journal.path().display().to_string(),
            reader: journal.reader()?,
            versions: Versions {
                journal: journal.clone(),
                ours: Arc::clone(&schema),
                catalog: Catalog::default(),
                adapters: HashMap::new(),
            },
            schema,
            dispatch,
        })
    }

    /// The record that comes next.
    pub fn position(&self) -> u64 {
        self.reader.position()
    }

    pub fn seek(&mut self, sequence: u64) -> Result<(), ServiceError> {
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
            Ok(Record::Call(_, head, arguments)) if head.schema == self.schema.id() => {
                progress.begin(lineage, time_ns);
                (self.dispatch)(component, head.method, arguments).map_err(Cause::from)
            }
            Ok(Record::Call(_, head, arguments)) => {
                progress.begin(lineage, time_ns);
                match self.versions.number(head, arguments, sequence) {
                    Ok(Some((method, arguments))) => {
                        (self.dispatch)(component, method, arguments).map_err(Cause::from)
                    }
                    Ok(None) => Ok(()),
                    Err(cause) => Err(cause),
                }
            }
            Ok(Record::Note(note)) => match self.versions.learn(note) {
                Ok(()) => return Ok(Taken::Note),
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

/// Calls of other versions of the interface than the component's own, and of other interfaces.
struct Versions {
    journal: Journal,
    ours: Arc<Schema>,
    /// What the journal's writers have told.
    catalog: Catalog,
    /// For each other version of the interface that has been met, how to read it.
    adapters: HashMap<u32, Adapter>,
}

impl Versions {
    fn learn(&mut self, note: &[u8]) -> Result<(), Cause> {
        Ok(self.catalog.learn(Note::from_bytes(note)?)?)
    }

    /// Our number of the method and its arguments as we know them; nothing for a call of another interface.
    #[cold]
    fn number<'a>(
        &'a mut self,
        head: Head,
        arguments: Unpacker<'a>,
        sequence: u64,
    ) -> Result<Option<(u64, Unpacker<'a>)>, Cause> {
        if self.catalog.schema(head.schema).is_none() {
            learn_segment(&self.journal, sequence, &mut self.catalog)?;
        }
        let Some(theirs) = self.catalog.schema(head.schema) else {
            return Err(Box::new(WireError::UnknownSchema { id: head.schema }));
        };
        if theirs.interface() != self.ours.interface() {
            return Ok(None);
        }
        let adapter = match self.adapters.entry(head.schema) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Adapter::new(theirs, &self.ours)?),
        };
        match adapter.adapt(head.method, arguments)? {
            Some(adapted) => Ok(Some(adapted)),
            None => Err(self
                .ours
                .unknown_method(&theirs.method(head.method)?.name)
                .into()),
        }
    }
}

/// Learns from the notes that stand before a record in its segment: a reader that began in the middle has not met them.
pub(super) fn learn_segment(
    journal: &Journal,
    sequence: u64,
    catalog: &mut Catalog,
) -> Result<(), Cause> {
    let mut reader = journal.reader()?;
    reader.seek(sequence)?;
    reader.seek(reader.segment_start()?)?;
    while let Some(record) = reader.next()? {
        if record.sequence >= sequence {
            break;
        }
        if let Ok(Record::Note(note)) = Record::read(record.body) {
            catalog.learn(Note::from_bytes(note)?)?;
        }
    }
    Ok(())
}
