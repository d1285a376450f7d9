//! The calls in a journal, read with the schemas that the journal itself holds.
//!
//! Notes in the journal hold the schemas of its calls and the names of its inputs. Records are read in order, from any
//! one on. Notes before that one are looked for when a call needs them: a segment at a time towards the front, and each
//! once. (A writer repeats its notes in each segment, but a copy of the journal may have its segments end elsewhere.)
//!
//! ```
//! use millstream_journal::{Journal, Options};
//! use millstream_service::{Calls, Content, publisher};
//!
//! #[millstream_wire::interface]
//! trait Orders {
//!     fn place(&mut self, symbol: &str, quantity: u32);
//! }
//!
//! # fn main() -> Result<(), millstream_wire::Cause> {
//! # let folder = tempfile::tempdir()?;
//! let orders = Journal::open(folder.path().join("orders"), Options::default())?;
//! publisher::<dyn Orders>(&orders)?.place("VOD.L", 100);
//!
//! let mut calls = Calls::of(&orders);
//! let mut reader = orders.reader()?;
//! let record = reader.read(1)?; // record 0 holds the schema
//! let Content::Call(call, _) = calls.read(record.sequence, record.body)? else { unreachable!() };
//! assert_eq!((call.method.as_str(), call.arguments[1].0.as_str()), ("place", "quantity"));
//! # Ok(())
//! # }
//! ```

use millstream_journal::Journal;
use millstream_wire::{Call, Catalog, Cause, InputName, Lineage, Note, Record, Schema, WireError};

/// The contents of a record of a journal of calls.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Content {
    /// A call, and the input that it is an effect of; `None` for an external call.
    Call(Call, Option<Lineage>),
    /// Something about the journal.
    Note(Note),
}

/// Reads the calls of a journal.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Calls {
    journal: Journal,
    catalog: Catalog,
    /// All notes are known from this record up to the one that is read; `None` at first.
    known_from: Option<u64>,
}

impl Calls {
    /// Reads calls of this journal.
    #[must_use]
    pub fn of(journal: &Journal) -> Self {
        Self {
            journal: journal.clone(),
            catalog: Catalog::default(),
            known_from: None,
        }
    }

    /// Reads the body of the record `sequence`.
    ///
    /// # Errors
    /// It is neither a call nor a note; a call does not fit its schema, or no note holds the schema; the records before
    /// it cannot be read.
    pub fn read(&mut self, sequence: u64, body: &[u8]) -> Result<Content, Cause> {
        match Record::read(body)? {
            Record::Note(note) => Ok(Content::Note(self.learn(sequence, note)?)),
            Record::Call(lineage, head, arguments) => {
                let schema = self.schema(head.schema, sequence)?;
                let call = Call::unpack(schema.method(head.method)?, arguments, schema)?;
                Ok(Content::Call(call, lineage))
            }
        }
    }

    /// The call in a record as a document of YAML, with its time and, as a comment, its sequence number; nothing for a
    /// note.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn document(
        &mut self,
        record: &millstream_journal::Record<'_>,
    ) -> Result<Option<String>, Cause> {
        let Content::Call(call, _) = self.read(record.sequence, record.body)? else {
            return Ok(None);
        };
        let at = i64::try_from(record.time_ns).ok();
        let text = Call { at, ..call }.to_text();
        Ok(Some(format!("# record {}\n{text}", record.sequence)))
    }

    /// Learns a note, which is the record `sequence`.
    ///
    /// # Errors
    /// It is none that this version knows; two schemas have one id.
    pub(crate) fn learn(&mut self, sequence: u64, note: &[u8]) -> Result<Note, Cause> {
        self.known_from.get_or_insert(sequence);
        let note = Note::from_bytes(note)?;
        self.catalog.learn(note.clone())?;
        Ok(note)
    }

    /// Whether a note with a schema has been read so far.
    #[must_use]
    pub fn has_schemas(&self) -> bool {
        self.catalog.schemas().next().is_some()
    }

    /// The schema of an id in the record `sequence`.
    ///
    /// # Errors
    /// No note holds it; the records before it cannot be read.
    pub fn schema(&mut self, id: u32, sequence: u64) -> Result<&Schema, Cause> {
        while self.catalog.schema(id).is_none() && self.search_back(sequence)? {}
        let unknown = || Box::new(WireError::UnknownSchema { id });
        Ok(self.catalog.schema(id).ok_or_else(unknown)?)
    }

    /// The journal of an input in the lineage of the record `sequence`.
    ///
    /// # Errors
    /// No note holds it; the records before it cannot be read.
    pub fn input(&mut self, number: u32, sequence: u64) -> Result<&InputName, Cause> {
        while self.catalog.input(number).is_none() && self.search_back(sequence)? {}
        let unknown = || format!("no note holds the name of input {number}");
        Ok(self.catalog.input(number).ok_or_else(unknown)?)
    }

    /// How many inputs the notes read so far have named.
    pub(crate) fn inputs(&self) -> usize {
        self.catalog.inputs()
    }

    /// Reads the notes of the segment before those that are known. False when there is none.
    #[cold]
    fn search_back(&mut self, sequence: u64) -> Result<bool, Cause> {
        let end = *self.known_from.get_or_insert(sequence);
        if end <= self.journal.first()? {
            return Ok(false);
        }
        let mut reader = self.journal.reader()?;
        reader.seek(end - 1)?;
        let start = reader.segment_start()?;
        reader.seek(start)?;
        // A segment that cannot be read is not tried again for each record.
        self.known_from = Some(start);
        let mut older = Catalog::default();
        while reader.position() < end
            && let Some(record) = reader.next()?
        {
            if let Ok(Record::Note(note)) = Record::read(record.body)
                && let Ok(note) = Note::from_bytes(note)
            {
                older.learn(note)?;
            }
        }
        self.catalog.learn_older(older);
        Ok(true)
    }
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Calls({})", self.journal.path().display())
    }
}
