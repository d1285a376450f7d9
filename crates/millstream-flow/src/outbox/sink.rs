//! The sink: a journal to which the workers append, and its part in the begin, the commits and the end of a run.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use millstream_journal::storage::create_dir_durably;
use millstream_journal::{Identity, Journal, Options};

use crate::control::Control;
use crate::error::{Cause, context};
use crate::framing::Frames;
use crate::mutex::lock;
use crate::named::drop_state;
use crate::outbox::backoff::Backoff;
use crate::outbox::destination::{Connector, OutboxIdentity, check_sizes};
use crate::outbox::direct::{Direct, DirectWriter};
use crate::outbox::forwarder::{Forwarder, Parts};
use crate::outbox::link::Link;
use crate::outbox::progress::Progress;
use crate::outbox::refusals::Refusals;
use crate::outbox::refused::{Marks, RefusedLog, refused_dir};
use crate::outbox::settings::{Settings, outbox_dir};
use crate::shared_log::{Appending, SharedLog};
use crate::sink::{Forwarding, OutputRun, Refused, Scope, Sink, Token, Transactional, Writer};

/// The size of a segment, and about the largest record of an outbox.
const SEGMENT_BYTES: u64 = 32 << 20;

/// A sink outside of the machine's files; see the [module](crate::outbox).
pub struct Outbox {
    connector: Arc<dyn Connector>,
    settings: Settings,
    /// Whether records that the destination refuses are skipped. It is set while the flow is described.
    skips_refused: AtomicBool,
    /// Whether they become dead letters.
    keeps_refused: AtomicBool,
    run: Mutex<Option<Run>>,
}

/// The sink in a run.
struct Run {
    flow: String,
    sink: String,
    control: Arc<Control>,
    way: Way,
}

enum Way {
    /// With a state directory.
    Kept(Kept),
    /// Without: each flush waits for the delivery. The writers have it, so that its connection ends with them.
    Direct(Weak<Mutex<Direct>>),
}

/// The outbox of a run with a state directory.
struct Kept {
    path: PathBuf,
    /// What is committed.
    committed: Marks,
    /// One opening for writers and syncs, so that a sync covers all that was appended: from the start of a run to its
    /// last commit.
    open: Option<Journal>,
    /// The progress of the forwarder, from its start on.
    progress: Option<Arc<Progress>>,
    /// The refused records, if they become dead letters.
    refused: Option<Arc<RefusedLog>>,
    /// The journal as the workers share it.
    shared: Weak<Mutex<SharedLog<Appending>>>,
}

impl Outbox {
    /// Creates a sink that delivers to the destination of `connector`.
    #[must_use]
    pub fn new(connector: impl Connector) -> Self {
        let mut settings = Settings::default();
        if let Some(most) = connector.batch_records_max() {
            settings.batch_records = most.max(1);
        }
        Outbox {
            connector: Arc::new(connector),
            settings,
            skips_refused: AtomicBool::new(false),
            keeps_refused: AtomicBool::new(false),
            run: Mutex::default(),
        }
    }

    /// Makes the sources of the flow pause while more than `bytes` wait for delivery; 1 GiB by default. The output of
    /// the input that is already read is appended all the same.
    #[must_use]
    pub fn max_bytes(mut self, bytes: u64) -> Self {
        self.settings.bytes_max = bytes;
        self
    }

    /// Makes the sources of the flow pause while a record older than `age` waits; there is no limit by default.
    #[must_use]
    pub fn max_age(mut self, age: Duration) -> Self {
        self.settings.age_max = Some(age);
        self
    }

    /// Sets the largest number of records in a delivery: 1000 by default, at least 1.
    #[must_use]
    pub fn batch(mut self, records: usize) -> Self {
        let most = self.connector.batch_records_max().unwrap_or(usize::MAX);
        self.settings.batch_records = records.min(most).max(1);
        self
    }

    /// Ends a delivery at the record with which it has `bytes` bytes; 1 MiB by default.
    #[must_use]
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.settings.batch_bytes = bytes.max(1);
        self
    }

    /// Makes a delivery that is not full wait until its oldest record has this age, so that the records of several
    /// epochs are delivered at once; by default the committed records are delivered as soon as possible. A delivery
    /// does not wait at the end of a run, nor while the outbox makes the sources pause. Without a state directory there
    /// is nothing to wait for: each flush delivers.
    #[must_use]
    pub fn batch_age(mut self, age: Duration) -> Self {
        self.settings.batch_age = Some(age);
        self
    }

    /// Skips records that the destination refuses, with a warning in the log; by default they fail the flow. A batch
    /// with such a record is halved until the record is alone, so that it holds up no other one.
    #[must_use]
    pub fn skip_refused(self) -> Self {
        self.skips_refused.store(true, Ordering::Relaxed);
        self
    }

    /// Sets the delays after failed attempts.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Sets how long a flow whose sources have ended waits for a destination that fails, until the run fails; a minute
    /// by default. The records stay in the outbox, and the next start delivers them.
    #[must_use]
    pub fn wait_at_end(mut self, limit: Duration) -> Self {
        self.settings.end_wait = limit;
        self
    }

    fn options() -> Options {
        Options {
            record_bytes_max: SEGMENT_BYTES as u32,
            ..Options::default().with_segment_bytes(SEGMENT_BYTES)
        }
    }

    fn keeps_refused(&self) -> bool {
        self.keeps_refused.load(Ordering::Relaxed)
    }

    fn link(
        &self,
        (flow, sink): (&str, &str),
        outbox: u128,
        refused: Option<Arc<RefusedLog>>,
    ) -> Link {
        let skips = self.skips_refused.load(Ordering::Relaxed);
        let identity = OutboxIdentity {
            flow: flow.to_owned(),
            sink: sink.to_owned(),
            outbox,
            refusals: Refusals::new(skips, refused),
        };
        Link::new(Arc::clone(&self.connector), identity, self.settings.backoff)
    }

    /// Creates the outbox of a run without a state directory, in memory.
    fn begin_direct(&self, flow: &str, sink: &str, control: &Arc<Control>) -> Arc<Mutex<Direct>> {
        let outbox = Identity::new(None, &Options::default().host).lineage;
        let address = self.connector.describe();
        tracing::info!(
            sink,
            "sink \"{sink}\" ({address}): at least once while this run lasts, as the flow has no state directory"
        );
        let keeps = self.keeps_refused();
        let progress = Progress::new(sink, &address, 0, (self.settings, keeps), &control.load);
        progress.publish(&control.figures);
        let link = self.link((flow, sink), outbox, None);
        let direct = Direct::new(sink, link, progress, keeps, control);
        Arc::new(Mutex::new(direct))
    }

    /// Calls `look` with the outbox of the run, if the run has a state directory.
    fn kept<T>(&self, look: impl FnOnce(&mut Kept) -> T) -> Option<T> {
        match &mut *lock(&self.run) {
            Some(Run {
                way: Way::Kept(kept),
                ..
            }) => Some(look(kept)),
            _ => None,
        }
    }

    /// Returns the progress of the forwarder, if it has started.
    fn progress(&self) -> Option<Arc<Progress>> {
        self.kept(|kept| kept.progress.clone()).flatten()
    }

    /// Returns the name of the sink in the run.
    fn name(&self) -> String {
        let run = lock(&self.run);
        run.as_ref().map(|run| run.sink.clone()).unwrap_or_default()
    }
}

/// Returns the directory of an outbox: the existing one under any of the names of the sink, or that of the first name.
fn directory(state: &Path, names: &[String]) -> PathBuf {
    let mut places = names.iter().map(|name| outbox_dir(state, name));
    let first = names
        .first()
        .map_or_else(|| outbox_dir(state, ""), |name| outbox_dir(state, name));
    places.find(|path| path.exists()).unwrap_or(first)
}

/// Removes an outbox that no commit knows.
fn remove(path: &Path, sink: &str) -> Result<(), Cause> {
    let refused = refused_dir(path);
    if refused.exists() {
        remove_all(&refused)?;
    }
    if !path.exists() {
        return Ok(());
    }
    tracing::warn!(
        sink,
        "sink \"{sink}\": starts again without state; the outbox {} is removed with its records",
        path.display()
    );
    remove_all(path)
}

fn remove_all(path: &Path) -> Result<(), Cause> {
    std::fs::remove_dir_all(path).map_err(|error| context(path.display(), error))
}

impl Sink<Frames> for Outbox {
    fn describe(&self) -> String {
        self.connector.describe()
    }
    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        let mut run = lock(&self.run);
        let Some(run) = &mut *run else {
            return Err("the run of this outbox has not begun".into());
        };
        let limit = self.connector.record_bytes_max();
        let kept = match &mut run.way {
            Way::Kept(kept) => kept,
            Way::Direct(shared) => {
                let direct = shared.upgrade().unwrap_or_else(|| {
                    let direct = self.begin_direct(&run.flow, &run.sink, &run.control);
                    *shared = Arc::downgrade(&direct);
                    direct
                });
                let address = self.connector.describe();
                let writer = DirectWriter::new(direct, self.settings, (limit, address));
                return Ok(Box::new(writer));
            }
        };
        let (Some(journal), Some(progress)) = (&kept.open, &kept.progress) else {
            return Err("the run of this outbox has not started".into());
        };
        let progress = Arc::clone(progress);
        let shared = match kept.shared.upgrade() {
            Some(open) => open,
            None => {
                let appender = journal.writer()?;
                let open = Arc::new(Mutex::new(SharedLog::new(Appending(appender), control)));
                kept.shared = Arc::downgrade(&open);
                open
            }
        };
        let share = lock(&shared).join();
        Ok(Box::new(OutboxWriter {
            shared,
            share,
            progress,
            refused: kept.refused.clone(),
            taken: Vec::new(),
            limit,
            address: self.connector.describe(),
        }))
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
    fn forwarding(&self) -> Option<&dyn Forwarding> {
        Some(self)
    }
    fn skip_refused(&self, keeps: bool) -> bool {
        self.skips_refused.store(true, Ordering::Relaxed);
        self.keeps_refused.fetch_or(keeps, Ordering::Relaxed);
        true
    }
    fn record_bytes_max(&self) -> Option<usize> {
        self.connector.record_bytes_max()
    }
}

impl Transactional for Outbox {
    fn scope(&self) -> Scope {
        Scope::State
    }
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        let marks = Marks::of(tokens)?;
        let committed = marks.length;
        let resumed = self.kept(|kept| {
            kept.committed = marks;
            kept.path.clone()
        });
        let path = resumed.ok_or("the run of this outbox has not begun")?;
        if tokens.is_empty() {
            // No commit knows it: its state was dropped, or the flow was killed before its first commit.
            remove(&path, &self.name())?;
        }
        create_dir_durably(&path).map_err(|error| context(path.display(), error))?;
        let exclusive = Options {
            exclusive: true,
            ..Self::options()
        };
        let journal = Journal::open(&path, exclusive)?;
        let next = journal.next()?;
        if next < committed {
            return Err(format!(
                "the outbox {} ends before record {next}, and the records before {committed} were committed: it was removed, or a \
                 loss of power has taken its end; or start the sink again with {}",
                path.display(),
                drop_state(&self.name())
            )
            .into());
        }
        journal.cut(committed)?;
        let refused = if self.keeps_refused() {
            let log = RefusedLog::resume(&path, &self.name(), marks.passed_on)?;
            Some(Arc::new(log))
        } else {
            None
        };
        self.kept(|kept| kept.refused = refused);
        Ok(Some(marks.token()))
    }
    fn sync(&self) -> Result<(), Cause> {
        // Outside of the lock: workers can append during the sync.
        if let Some(open) = self.kept(|kept| kept.open.clone()).flatten() {
            open.sync()?;
        }
        Ok(())
    }
    fn commit(&self, _: u64, tokens: &[Token]) -> Result<(), Cause> {
        let Some(progress) = self.progress() else {
            return Ok(());
        };
        let marks = Marks::of(tokens)?;
        self.kept(|kept| kept.committed = marks);
        progress.commit(marks.length);
        match self.kept(|kept| kept.refused.clone()).flatten() {
            Some(refused) => refused.commit(marks.passed_on),
            None => Ok(()),
        }
    }
    fn finish(&self) {
        self.kept(|kept| kept.open = None);
        if let Some(progress) = self.progress() {
            progress.finish();
        }
    }
    fn identity(&self) -> Option<usize> {
        Some(std::ptr::from_ref(self).addr())
    }
}

impl Forwarding for Outbox {
    fn begin(&self, run: &OutputRun<'_>) -> Result<(), Cause> {
        let sink = run.names.first().cloned().unwrap_or_default();
        if self.kept(|kept| kept.open.is_some()) == Some(true) {
            return Err("the sink is in use by another run; create one for each".into());
        }
        let way = match run.state_dir {
            None => Way::Direct(Weak::new()),
            Some(state) => Way::Kept(Kept {
                path: directory(state, run.names),
                committed: Marks::default(),
                open: None,
                progress: None,
                refused: None,
                shared: Weak::new(),
            }),
        };
        *lock(&self.run) = Some(Run {
            flow: run.flow.to_owned(),
            sink,
            control: Arc::clone(run.control),
            way,
        });
        Ok(())
    }
    fn start(&self) -> Result<(), Cause> {
        let mut run = lock(&self.run);
        let Some(run) = &mut *run else {
            return Ok(());
        };
        let Way::Kept(kept) = &run.way else {
            return Ok(());
        };
        let Kept {
            path,
            committed,
            refused,
            ..
        } = kept;
        let journal = Journal::open(path, Self::options())?;
        let outbox = journal.lineage()?;
        let address = self.connector.describe();
        let control = Arc::clone(&run.control);
        let settings = (self.settings, refused.is_some());
        let committed = committed.length;
        let progress = Progress::new(&run.sink, &address, committed, settings, &control.load);
        progress.publish(&control.figures);
        let forwarder = Forwarder::new(Parts {
            sink: run.sink.clone(),
            address,
            journal: journal.clone(),
            link: self.link((&run.flow, &run.sink), outbox, refused.clone()),
            settings: self.settings,
            progress: Arc::clone(&progress),
            refused: refused.clone(),
            life: Arc::clone(&control.life),
            ends: Arc::clone(&control.ends),
        })?;
        control.ends.forwarder_begins();
        let thread = std::thread::Builder::new().name("millstream-outbox".to_owned());
        let started = thread.spawn(move || forwarder.run());
        if let Way::Kept(kept) = &mut run.way {
            (kept.open, kept.progress) = (Some(journal), Some(progress));
        }
        started.map(drop).map_err(|error| {
            control.ends.forwarder_ended();
            error.into()
        })
    }
    fn has_ended(&self) -> bool {
        self.progress().is_none_or(|progress| progress.has_ended())
    }
    fn take_refused(&self) -> Result<(Vec<Refused>, Token), Cause> {
        let kept = self.kept(|kept| (kept.refused.clone(), kept.committed));
        let (Some(refused), mut marks) = kept.unwrap_or_default() else {
            return Ok((Vec::new(), Marks::default().token()));
        };
        let taken = refused.take()?;
        marks.passed_on = refused.passed_on();
        Ok((taken, marks.token()))
    }
}

/// A worker that appends to an outbox.
struct OutboxWriter {
    shared: Arc<Mutex<SharedLog<Appending>>>,
    share: usize,
    progress: Arc<Progress>,
    /// The refused records, and those that were taken in this epoch.
    refused: Option<Arc<RefusedLog>>,
    taken: Vec<Refused>,
    /// The largest record that the destination takes, and its name.
    limit: Option<usize>,
    address: String,
}

impl Writer<Frames> for OutboxWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        check_sizes(batch, self.limit, &self.address)?;
        let records = batch.spans.len();
        let bytes = batch.iter().map(<[u8]>::len).sum();
        // Counted first: the forwarder must not deliver what is not counted.
        self.progress.appended(records, bytes);
        lock(&self.shared).write(self.share, batch)
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        // The first writer takes them. The last one to end the epoch makes the token: all have taken then.
        if let (Some(refused), 0) = (&self.refused, self.share) {
            self.taken.extend(refused.take()?);
        }
        let next = lock(&self.shared).prepare(self.share, epoch)?;
        Ok(next.map(|next| self.token(next)))
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        let end = lock(&self.shared).leave(self.share)?;
        Ok(end.map(|end| self.token(end)))
    }
    fn take_refused(&mut self) -> Result<Vec<Refused>, Cause> {
        Ok(std::mem::take(&mut self.taken))
    }
}

impl OutboxWriter {
    fn token(&self, length: u64) -> Token {
        let refused = self.refused.as_ref();
        let passed_on = refused.map_or(0, |refused| refused.passed_on());
        Marks { length, passed_on }.token()
    }
}
