//! Journals as sources and sinks. With recovery both are exactly once: a source resumes after the record that it had
//! read at the commit, and a sink truncates the journal to the commit.
//!
//! ```
//! use millstream_flow::{Flow, Options, codec, journals, testing};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("numbers");
//! let flow = Flow::new("write");
//! flow.source("numbers", testing::items(1..4))
//!     .sink("journal", codec::encode(journals::append(&path), codec::display));
//! flow.run(Options::default())?;
//!
//! let (flow, out) = (Flow::new("read"), testing::Collected::new());
//! flow.source("journal", codec::decode(journals::read(&path), codec::text))
//!     .sink("out", out.sink());
//! flow.run(Options::default())?;
//! assert_eq!(out.take(), ["1", "2", "3"]);
//! # Ok::<(), millstream_flow::FlowError>(())
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use millstream_journal::{
    Bookmark, Cursor, CursorMode, Error as JournalError, Journal, Options, Reader, Sync,
};

use crate::clock::now_ns;
use crate::cluster::Membership;
use crate::control::Control;
use crate::error::{Cause, chain};
use crate::framing::{Frames, Origin};
use crate::input::{Input, of_machine};
use crate::metrics::lag::Lag;
use crate::mutex::lock;
use crate::named::DROP_STATE;
use crate::poller::Io;
use crate::shared_log::{Appending, CurrentLog, Log, SharedLog};
use crate::sink::{Output, OwnPath, Sink, Token, Transactional, Writer};
use crate::source::{
    Beginning, Events, Next, Partition, Position, Recording, Resumable, Source, SourceSettings,
};

/// The number of bytes or records at which a batch ends.
const BATCH_BYTES: usize = 64 << 10;
const BATCH_RECORDS: usize = 1024;
/// The interval at which a source at the end of its journal checks for more.
const LOOK_NS: u64 = 1_000_000;

/// Where a source begins.
#[derive(Clone, Copy, Debug)]
enum From {
    Sequence(u64),
    Time(u64),
    Next,
}

/// A source of the records of a journal. See [`read`].
#[derive(Clone, Debug)]
pub struct ReadJournal {
    path: PathBuf,
    from: From,
    to: Option<u64>,
    follow: bool,
    cursor: Option<String>,
    local: bool,
    /// The cursor of the current run.
    followed: Arc<Mutex<Weak<Followed>>>,
}

/// Reads the records of a journal, each a frame, to its end as it is when the flow begins.
pub fn read(path: impl AsRef<Path>) -> ReadJournal {
    ReadJournal {
        path: path.as_ref().to_owned(),
        from: From::Sequence(0),
        to: None,
        follow: false,
        cursor: None,
        local: false,
        followed: Arc::default(),
    }
}

impl ReadJournal {
    /// Begins with the record of this number, or the oldest that is kept.
    #[must_use]
    pub fn from_sequence(mut self, sequence: u64) -> Self {
        self.from = From::Sequence(sequence);
        self
    }
    /// Begins with the first record of this time or later, in nanoseconds since 1970.
    #[must_use]
    pub fn from_time(mut self, time_ns: u64) -> Self {
        self.from = From::Time(time_ns);
        self
    }
    /// Begins with the first record that is appended after the flow has started.
    #[must_use]
    pub fn from_next(mut self) -> Self {
        self.from = From::Next;
        self
    }
    /// Begins at the named cursor, and moves it: with recovery to the committed position, else to the end of each
    /// batch. Retention that keeps the records of cursors then keeps the records that this source needs.
    #[must_use]
    pub fn cursor(mut self, name: &str) -> Self {
        self.cursor = Some(name.to_owned());
        self
    }
    /// Lets each process of a run read the journal of its own machine. By default one process reads it for all.
    #[must_use]
    pub fn local(mut self, local: bool) -> Self {
        self.local = local;
        self
    }
    /// Ends before the record of this number.
    #[must_use]
    pub fn to_sequence(mut self, sequence: u64) -> Self {
        self.to = Some(sequence);
        self
    }
    /// Continues with records that are appended later. The source then never ends by itself.
    #[must_use]
    pub fn follow(mut self) -> Self {
        self.follow = true;
        self
    }
}

impl Source<Frames> for ReadJournal {
    fn describe(&self) -> String {
        format!("journal {}{}", self.path.display(), of_machine(self.local))
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            inputs: vec![Input::Journal(self.path.clone())],
            local: self.local,
            ..SourceSettings::default()
        }
    }
    fn open(
        &self,
        _: usize,
        resume: Option<&Position>,
        _: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let journal = Journal::open(&self.path, Options::read_only())?;
        let mut reader = journal.reader()?;
        let followed = self.followed(false)?;
        match (resume, &followed, self.from) {
            // Records that were pruned meanwhile are an error, or they would be lost in silence.
            (Some(position), ..) => {
                let bookmark = Bookmark {
                    next: position.require_number()?,
                    checksum: position.checksum(),
                };
                journal.confirm(bookmark).map_err(lost)?;
                reader.seek(bookmark.next)?;
            }
            (None, Some(followed), _) => reader.seek(followed.cursor.position()?)?,
            (None, None, From::Sequence(from)) => reader.seek(from.max(journal.first()?))?,
            (None, None, From::Time(time_ns)) => reader.seek_time(time_ns)?,
            (None, None, From::Next) => reader.seek(journal.next()?)?,
        }
        let end = match (self.to, self.follow) {
            (Some(to), _) => Some(to),
            (None, true) => None,
            (None, false) => Some(journal.next()?),
        };
        Ok(Box::new(JournalPartition {
            origin: Arc::new(Origin::records(format!(
                "journal {}, record",
                journal.path().display()
            ))),
            journal,
            reader,
            followed: followed.filter(|followed| !followed.at_commits),
            end,
            awake: 0,
        }))
    }
    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }
}

/// The other way on, for a journal that has lost records which the state contains.
fn lost(error: JournalError) -> Cause {
    match error {
        JournalError::Lost { .. } => format!(
            "{}; or start the flow with a new state directory, so that it reads what the journal has now",
            chain(&error)
        )
        .into(),
        error => error.into(),
    }
}

impl Resumable for ReadJournal {
    fn begin(&self, run: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        let followed = match run.state_dir {
            Some(_) => self.followed(true)?,
            None => None,
        };
        Ok(followed.map(|followed| -> Arc<dyn Recording> { followed }))
    }
}

impl ReadJournal {
    /// The cursor, if the source has one; opened unless the run has it open.
    fn followed(&self, at_commits: bool) -> Result<Option<Arc<Followed>>, Cause> {
        let Some(name) = &self.cursor else {
            return Ok(None);
        };
        let mut shared = lock(&self.followed);
        if let Some(open) = shared.upgrade() {
            return Ok(Some(open));
        }
        let options = Options {
            create: false,
            ..Options::default()
        };
        let cursor = Journal::open(&self.path, options)?.cursor(name, CursorMode::Exclusive)?;
        let open = Arc::new(Followed { cursor, at_commits });
        *shared = Arc::downgrade(&open);
        Ok(Some(open))
    }
}

/// The cursor of a source.
#[derive(Debug)]
struct Followed {
    cursor: Cursor,
    /// Whether commits move it.
    at_commits: bool,
}

impl Recording for Followed {
    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause> {
        if let Some((_, position)) = positions.first() {
            self.cursor.set(position.require_number()?)?;
        }
        Ok(())
    }
}

struct JournalPartition {
    journal: Journal,
    origin: Arc<Origin>,
    reader: Reader,
    /// The cursor that is moved with each batch.
    followed: Option<Arc<Followed>>,
    /// The number of the first record that is not read, where there is an end.
    end: Option<u64>,
    awake: u64,
}

impl JournalPartition {
    fn has_ended(&self) -> bool {
        self.end.is_some_and(|end| self.reader.position() >= end)
    }
}

impl Partition<Frames> for JournalPartition {
    fn next_batch(&mut self, batch: &mut Frames, events: &mut Events<'_>) -> Result<Next, Cause> {
        let most = BATCH_RECORDS.min(events.limit());
        batch.data.clear();
        batch.numbers.clear();
        batch.offset = self.reader.position();
        batch.origin = Some(Arc::clone(&self.origin));
        if let Some(followed) = &self.followed {
            followed.cursor.set(self.reader.position())?;
        }
        while !self.has_ended() && batch.data.len() < BATCH_BYTES && batch.spans.len() < most {
            let Some(record) = self.reader.next()? else {
                break;
            };
            let start = batch.data.len() as u32;
            batch.data.extend_from_slice(record.body);
            batch.spans.push((start, batch.data.len() as u32));
            batch.numbers.push(record.sequence);
        }
        if !batch.spans.is_empty() {
            return Ok(Next::Batch);
        }
        if self.has_ended() {
            return Ok(Next::End);
        }
        self.awake = now_ns() + LOOK_NS;
        Ok(Next::Idle)
    }
    fn next_awake(&self) -> Option<u64> {
        Some(self.awake)
    }
    fn lag(&self) -> Option<Lag> {
        let next = self.journal.next().ok()?;
        let end = self.end.map_or(next, |end| end.min(next));
        Some(Lag {
            records: Some(end.saturating_sub(self.reader.position())),
            ..Lag::default()
        })
    }
    fn position(&self) -> Result<Position, Cause> {
        let Bookmark { next, checksum } = self.reader.bookmark()?;
        Ok(checksum.map_or(next.into(), |checksum| {
            Position::with_checksum(next, checksum)
        }))
    }
}

/// A sink that appends to a journal. See [`append`].
pub struct AppendJournal {
    path: OwnPath,
    sync: Sync,
    /// The journal that the workers of the current run share.
    journal: CurrentLog<OwnJournal>,
    /// In a run with recovery, what it owns.
    owned: Mutex<Option<Arc<Mutex<Owned>>>>,
}

/// A journal that a run with recovery owns.
#[derive(Clone, Copy)]
struct Owned {
    owner: u64,
    /// The number of the first record that is not committed.
    committed: u64,
}

impl Owned {
    /// Lets others append, if all is committed.
    fn end(&self, journal: &Journal) {
        if journal.next().is_ok_and(|next| next == self.committed) {
            // If it fails the claim stays, and the next run ends it.
            let _ended = journal.end_claim(self.owner, self.committed);
        }
    }
}

/// Appends each frame as a record. With recovery the journal is truncated to the last committed epoch when the flow
/// resumes: no other process may append to it from the start of the flow until it has ended in order.
pub fn append(path: impl AsRef<Path>) -> AppendJournal {
    AppendJournal {
        path: OwnPath::new(path),
        sync: Sync::Never,
        journal: CurrentLog::default(),
        owned: Mutex::default(),
    }
}

impl AppendJournal {
    /// When records survive a loss of power. With recovery they do at each commit.
    #[must_use]
    pub fn sync(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    fn options(&self) -> Options {
        Options::default().with_sync(self.sync)
    }
}

impl Sink<Frames> for AppendJournal {
    fn describe(&self) -> String {
        format!("journal {}", self.path.given().display())
    }
    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        let owned = lock(&self.owned).clone();
        let owner = owned.as_ref().map_or(0, |owned| lock(owned).owner);
        let options = Options {
            claims: owned.is_some(),
            ..self.options()
        };
        let (journal, writer) = self.journal.join(control, || {
            let writer = Journal::open(self.path.get(), options)?.writer()?;
            if owned.is_some() {
                writer.journal().reopen_claim()?;
            }
            let log = Appending(writer);
            Ok(OwnJournal { log, owned })
        })?;
        Ok(Box::new(JournalWriter {
            journal,
            writer,
            owner,
        }))
    }
    fn join(&self, membership: Option<Membership>) -> Option<PathBuf> {
        self.path.join(membership)
    }
    fn output(&self, recovery: bool) -> Option<Output> {
        // A run with recovery cuts it, and several may append in one without.
        let path = recovery.then(|| self.path.given().to_owned())?;
        Some(Output {
            path,
            sink: std::ptr::from_ref(self).addr(),
        })
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl Transactional for AppendJournal {
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        let exclusive = Options {
            exclusive: true,
            claims: true,
            ..self.options()
        };
        let journal = Journal::open(self.path.get(), exclusive)?;
        let resumed = committed(tokens)?;
        if let Some(resumed) = resumed {
            self.cut(&journal, resumed)?;
        }
        let owned = Owned {
            owner: journal.begin_claim(resumed.map(|it| it.owner))?,
            committed: journal.next()?,
        };
        *lock(&self.owned) = Some(Arc::new(Mutex::new(owned)));
        self.journal.begin_commits();
        Ok(Some(token(owned.committed, owned.owner)))
    }
    fn commit(&self, _: u64, tokens: &[Token]) -> Result<(), Cause> {
        if let (Some(committed), Some(owned)) = (committed(tokens)?, &*lock(&self.owned)) {
            *lock(owned) = committed;
        }
        Ok(())
    }
    fn sync(&self) -> Result<(), Cause> {
        let Some(shared) = self.journal.get() else {
            return Ok(());
        };
        // Outside of the lock: workers can append during the sync.
        let journal = lock(&shared).log().log.0.journal().clone();
        journal.sync()?;
        Ok(())
    }
    fn finish(&self) {
        let owned = lock(&self.owned).take();
        // Where a flow was killed after its last commit, nothing is opened after it.
        if let (Some(owned), None) = (owned, self.journal.get()) {
            let options = Options {
                create: false,
                ..self.options()
            };
            if let Ok(journal) = Journal::open(self.path.get(), options) {
                lock(&owned).end(&journal);
            }
        }
        self.journal.end_commits();
    }
}

impl AppendJournal {
    /// Removes the records after the last commit, but none that others have appended after the end of the run before.
    fn cut(&self, journal: &Journal, resumed: Owned) -> Result<(), Cause> {
        let next = journal.next()?;
        let (is_own, own_to) = match journal.ownership()? {
            Some(last) if last.owner != resumed.owner => (false, resumed.committed),
            Some(last) => (true, last.closed_at.unwrap_or(next)),
            None => (true, next),
        };
        if next <= own_to {
            return Ok(journal.cut(resumed.committed)?);
        }
        if is_own && own_to <= resumed.committed {
            return Ok(());
        }
        Err(format!(
            "{}: records {own_to} to {} are not of this state, which ended before record {}; drop the state of the sink \
             ({DROP_STATE}), and it appends after them",
            self.path.get().display(),
            next - 1,
            resumed.committed
        )
        .into())
    }
}

/// What the writers of a journal had prepared for an epoch: that of the one that was furthest.
fn committed(tokens: &[Token]) -> Result<Option<Owned>, Cause> {
    let owned = tokens.iter().map(|token| {
        let (committed, owner) = token.split_first_chunk().ok_or("")?;
        Ok(Owned {
            owner: u64::from_le_bytes(owner.try_into()?),
            committed: u64::from_le_bytes(*committed),
        })
    });
    let owned: Result<Vec<_>, Cause> = owned.collect();
    let owned = owned.map_err(|_| "the token of its last epoch is not one of a journal")?;
    Ok(owned.into_iter().max_by_key(|owned| owned.committed))
}

fn token(committed: u64, owner: u64) -> Token {
    [committed.to_le_bytes(), owner.to_le_bytes()].concat()
}

/// The journal that a run appends to.
struct OwnJournal {
    log: Appending,
    owned: Option<Arc<Mutex<Owned>>>,
}

impl Log for OwnJournal {
    type Batch = Frames;

    fn append(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        self.log.append(batch)
    }
    fn flush(&mut self) -> Result<u64, Cause> {
        self.log.flush()
    }
}

impl Drop for OwnJournal {
    /// The last writer and the last commit have ended.
    fn drop(&mut self) {
        if let Some(owned) = &self.owned {
            lock(owned).end(self.log.0.journal());
        }
    }
}

struct JournalWriter {
    journal: Arc<Mutex<SharedLog<OwnJournal>>>,
    writer: usize,
    /// The number of the owner, in a run with recovery.
    owner: u64,
}

impl Writer<Frames> for JournalWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        lock(&self.journal).write(self.writer, batch)
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        let next = lock(&self.journal).prepare(self.writer, epoch)?;
        Ok(next.map(|next| token(next, self.owner)))
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        let end = lock(&self.journal).leave(self.writer)?;
        Ok(end.map(|end| token(end, self.owner)))
    }
}
