//! The transport of a publisher: writes calls straight into the mapped memory of a journal.
//!
//! The schema, and the names of the inputs, are repeated before the first call in each segment. So a segment can be
//! read without the ones before it, and retention, which removes whole segments, removes nothing that later records
//! need.

use std::sync::Arc;
use std::time::Duration;

use millstream_journal::{Error, Journal, Writer, chain};
use millstream_wire::{
    Cause, Interface, KeyedCall, Lineage, Note, Packer, Publisher, Refused, Result as WireResult,
    Schema, Transport,
};

use crate::error::ServiceError;
use crate::outputs::current::Current;
use crate::outputs::keys::{Key, Keys, Once};
use millstream_replication::Followers;

/// A publisher's end of a journal.
pub struct Outlet {
    writer: Writer,
    current: Arc<Current>,
    /// Whether its calls are no effects of inputs of a service.
    is_outside: bool,
    schemas: Vec<Arc<Schema>>,
    /// The contents of a call that may be recorded already.
    scratch: Vec<u8>,
    /// The segment in which the notes have been written, by its first record, and how often inputs had been renamed by
    /// then.
    announced: Option<(u64, u32)>,
    /// The last call that was recorded.
    last: Option<u64>,
    followed: Option<Followed>,
}

/// Which followers must have a call before it returns.
struct Followed {
    followers: Followers,
    count: usize,
    limit: Duration,
}

/// A publisher that is no part of a service: its calls are external and have no lineage.
///
/// # Errors
/// The journal cannot be written; the interface contradicts itself.
pub fn publisher<I: Interface + ?Sized>(journal: &Journal) -> Result<Publisher<I, Outlet>, Cause> {
    Publisher::new(Outlet::outside(journal)?)
}

impl Outlet {
    /// A transport for external calls, without lineage.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn outside(journal: &Journal) -> Result<Self, ServiceError> {
        let mut outlet = Self::new(journal, Arc::default())?;
        outlet.is_outside = true;
        Ok(outlet)
    }

    pub(crate) fn new(journal: &Journal, current: Arc<Current>) -> Result<Self, ServiceError> {
        Ok(Self {
            writer: journal.writer()?,
            current,
            is_outside: false,
            scratch: Vec::new(),
            schemas: Vec::new(),
            announced: None,
            last: None,
            followed: None,
        })
    }

    /// A call returns only when so many followers on other machines have acknowledged it, and fails with
    /// [`NotFollowed`](millstream_replication::ReplicationError::NotFollowed) after `limit`: it is recorded all the
    /// same, and the caller that makes it again has it recorded twice.
    ///
    /// ```
    /// use std::time::Duration;
    /// use millstream_journal::{Journal, Options, Sync};
    /// use millstream_service::Outlet;
    /// use millstream_wire::Publisher;
    ///
    /// #[millstream_wire::interface]
    /// trait Orders {
    ///     fn place(&mut self, symbol: &str) -> Result<(), millstream_wire::Cause>;
    /// }
    ///
    /// # fn main() -> Result<(), millstream_wire::Cause> {
    /// # let folder = tempfile::tempdir()?;
    /// let orders = Journal::open(folder.path(), Options::default().with_sync(Sync::Always))?;
    /// let outlet = Outlet::outside(&orders)?.followed(1, Duration::from_millis(5));
    /// let mut orders = Publisher::<dyn Orders, _>::new(outlet)?;
    /// let error = orders.place("VOD.L").unwrap_err(); // nobody follows
    /// assert_eq!(error.to_string(), "record 1 is in the journal, but 0 of 1 follower(s) had acknowledged it after 5ms");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn followed(mut self, count: usize, limit: Duration) -> Self {
        let followers = Followers::of(self.writer.journal());
        self.followed = (count > 0).then_some(Followed {
            followers,
            count,
            limit,
        });
        self
    }

    /// Records an external call, unless a call with this key is recorded already: by this process or by another one,
    /// now or by an earlier run. `contents` is the call [without lineage](millstream_wire::Call::contents), and `keys`
    /// are those of the same journal. The key is a part of the record, and no other process appends between the look at
    /// the keys and the record: nothing is recorded twice, whatever process dies.
    ///
    /// # Errors
    /// The journal cannot be read or written.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn publish_once(
        &mut self,
        key: &Key,
        contents: &[u8],
        keys: &mut Keys,
    ) -> Result<Once, Cause> {
        let written = self.write_once(key, contents, keys);
        if let Ok(Once::Recorded(sequence)) = written {
            self.last = Some(sequence);
            self.wait_followed()?;
        }
        written
    }

    fn write_once(&mut self, key: &Key, contents: &[u8], keys: &mut Keys) -> Result<Once, Cause> {
        let call = KeyedCall {
            key: key.text(),
            contents,
        };
        while !keys.catch_up(usize::MAX)? {}
        keys.protect()?;
        loop {
            let mut claim = self.writer.claim(call.size_max())?;
            if self.announced != Some((claim.segment_start(), self.current.renamed())) {
                drop(claim);
                self.announce_here()?;
                continue;
            }
            // All other writers wait: what is read now is all there is before this record.
            while !keys.catch_up(usize::MAX)? {}
            if let Some(sequence) = keys.find(key) {
                return Ok(Once::Repeated(sequence));
            }
            let mut out = Packer::new(&mut claim);
            call.pack(&mut out)?;
            let len = out.len();
            return Ok(Once::Recorded(claim.commit(len)?));
        }
    }

    /// Waits for the followers that must have the last call.
    fn wait_followed(&mut self) -> Result<(), Cause> {
        let (Some(followed), Some(last)) = (&mut self.followed, self.last) else {
            return Ok(());
        };
        let Followed {
            followers,
            count,
            limit,
        } = followed;
        Ok(followers.wait(last, *count, Some(*limit))?)
    }

    /// The journal of the calls.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn journal(&self) -> &Journal {
        self.writer.journal()
    }

    /// The sequence number of the last call that was recorded here.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// Writes the notes into the segment that is written to now.
    #[cold]
    fn announce_here(&mut self) -> Result<(), Cause> {
        let schemas = self.schemas.iter();
        let mut notes: Vec<Note> = schemas
            .map(|schema| Note::Schema(Schema::clone(schema)))
            .collect();
        let renamed = self.current.renamed();
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
        // Without a note the next call would look for one again.
        let start = start.ok_or("a publisher announces the schema of its calls first")?;
        self.announced = Some((start, renamed));
        Ok(())
    }

    /// A call that is recorded already, must not be recorded, or is made while the component is not called.
    #[cold]
    fn publish_again(
        &mut self,
        size_max: usize,
        write: impl FnOnce(&mut Packer<'_>) -> WireResult<()>,
    ) -> Result<(), Cause> {
        if !self.current.is_again()? {
            return self.write(size_max, write);
        }
        if self.scratch.len() < size_max {
            self.scratch.resize(size_max, 0);
        }
        let mut out = Packer::new(&mut self.scratch);
        write(&mut out).map_err(refused)?;
        let len = out.len();
        if self.current.holds_back(&self.scratch[..len], &self.schemas) {
            return Ok(());
        }
        let contents = std::mem::take(&mut self.scratch);
        self.write(len, |out| out.raw(&contents[..len]))
    }

    #[inline]
    fn write(
        &mut self,
        size_max: usize,
        write: impl FnOnce(&mut Packer<'_>) -> WireResult<()>,
    ) -> Result<(), Cause> {
        loop {
            let claimed = self.writer.claim(Lineage::SIZE_MAX + size_max);
            let mut claim = claimed.map_err(|error| match error {
                Error::RecordTooLarge { .. } => refused(error),
                error => error.into(),
            })?;
            if self.announced != Some((claim.segment_start(), self.current.renamed())) {
                drop(claim);
                self.announce_here()?;
                continue;
            }
            let mut out = Packer::new(&mut claim);
            match (self.current.lineage(), self.current.take()) {
                (Some(lineage), Some(take)) => Lineage::pack_taken(lineage, take, &mut out)?,
                (lineage, _) => Lineage::pack(lineage, &mut out)?,
            }
            write(&mut out).map_err(refused)?;
            let len = out.len();
            self.last = Some(claim.commit(len)?);
            return Ok(());
        }
    }
}

/// The error of a call that cannot be recorded, while others can.
#[cold]
fn refused(cause: impl Into<Cause>) -> Cause {
    Refused(cause.into()).into()
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
        let mut written = if self.is_outside || self.current.is_open() {
            self.write(size_max, write)
        } else {
            self.publish_again(size_max, write)
        };
        if written.is_ok() {
            written = self.wait_followed();
        }
        if let Err(cause) = &written {
            self.current.fail(&chain(&**cause).to_string());
        }
        written
    }

    /// The runner ends with the error.
    fn is_watched(&self) -> bool {
        !self.is_outside
    }
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Outlet({})", self.writer.journal().path().display())
    }
}
