//! Where a publisher's calls go: straight into the mapped memory of a journal.
//!
//! The schema, and the names of the inputs, are repeated before the first call in each segment. So a segment can be read without the
//! ones before it, and retention, which removes whole segments, takes away nothing that later records need.

use std::sync::Arc;

use millstream_journal::{Journal, Writer};
use millstream_wire::{
    Cause, Interface, Lineage, Note, Packer, Publisher, Result as WireResult, Schema, Transport,
};

use super::current::Current;
use super::error::ServiceError;

/// A publisher's end of a journal.
pub struct Outlet {
    writer: Writer,
    current: Arc<Current>,
    schemas: Vec<Arc<Schema>>,
    /// The segment in which the notes have been written, by its first record.
    announced: Option<u64>,
}

/// A publisher that is no part of a service: calls from outside, at the head of all lineage.
///
/// # Errors
/// The journal cannot be written; the interface contradicts itself.
pub fn publisher<I: Interface + ?Sized>(journal: &Journal) -> Result<Publisher<I, Outlet>, Cause> {
    Publisher::new(Outlet::outside(journal)?)
}

impl Outlet {
    /// An end for calls from outside: with no lineage.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn outside(journal: &Journal) -> Result<Self, ServiceError> {
        Self::new(journal, Arc::default())
    }

    pub(super) fn new(journal: &Journal, current: Arc<Current>) -> Result<Self, ServiceError> {
        Ok(Self {
            writer: journal.writer()?,
            current,
            schemas: Vec::new(),
            announced: None,
        })
    }

    /// Writes the notes into the segment that is written to now.
    #[cold]
    fn announce_here(&mut self) -> Result<(), Cause> {
        let schemas = self.schemas.iter();
        let mut notes: Vec<Note> = schemas
            .map(|schema| Note::Schema(Schema::clone(schema)))
            .collect();
        let inputs = self.current.input_names()?;
        notes.extend(
            (0..)
                .zip(inputs)
                .map(|(number, input)| Note::Input { number, input }),
        );
        let mut start = None;
        for note in notes {
            let body = note.to_bytes()?;
            let mut claim = self.writer.claim(body.len())?;
            // A segment that ends between two notes is one that the first of them is missing in.
            start = start.or(Some(claim.segment_start()));
            claim.copy_from_slice(&body);
            claim.commit(body.len())?;
        }
        self.announced = start;
        Ok(())
    }

    #[inline]
    fn write(
        &mut self,
        size_max: usize,
        write: impl FnOnce(&mut Packer<'_>) -> WireResult<()>,
    ) -> Result<(), Cause> {
        loop {
            let mut claim = self.writer.claim(Lineage::SIZE_MAX + size_max)?;
            if self.announced != Some(claim.segment_start()) {
                drop(claim);
                self.announce_here()?;
                continue;
            }
            let mut out = Packer::new(&mut claim);
            Lineage::pack(self.current.lineage(), &mut out)?;
            write(&mut out)?;
            let len = out.len();
            claim.commit(len)?;
            return Ok(());
        }
    }
}

impl Transport for Outlet {
    fn announce(&mut self, schema: &Arc<Schema>) -> Result<(), Cause> {
        self.schemas.push(Arc::clone(schema));
        self.announced = None;
        Ok(())
    }

    #[inline]
    fn publish(
        &mut self,
        size_max: usize,
        write: impl FnOnce(&mut Packer<'_>) -> WireResult<()>,
    ) -> Result<(), Cause> {
        if self.current.holds_back() {
            return Ok(());
        }
        let written = self.write(size_max, write);
        if let Err(cause) = &written {
            self.current.fail(&cause.to_string());
        }
        written
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outlet({})", self.writer.journal().path().display())
    }
}
