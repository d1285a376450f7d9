//! The source: which partitions there are, where each begins and ends, and what a run remembers of them.

mod bounds;
mod choices;
mod discovery;
mod names;
mod partition;
mod progress;
mod run;
mod saved;
mod topics;
mod waiting;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millstream_flow::error::Cause;
use millstream_flow::poller::Io;
use millstream_flow::source::{
    Beginning, Growing, NewPartitions, Partition, Position, Recording, Resumable, Source,
    SourceSettings,
};
use millstream_flow::starting::Starting;
use millstream_flow::{Frames, codec};

use crate::client::settings::Settings;
use crate::error::Error;
use crate::message::Message;
use bounds::Begin;
use choices::Format;
pub use choices::{End, Start};
use partition::KafkaPartition;
use progress::Progress;
use run::{GroupCommits, Run};
use saved::Saved;

/// A source of the messages of topics. See [`read`].
#[derive(Clone)]
pub struct ReadKafka {
    servers: String,
    topics: Vec<String>,
    start: Start,
    end: End,
    group: Option<String>,
    settings: Settings,
    format: Format,
    /// The run, while it is.
    run: Arc<Mutex<Option<Arc<Run>>>>,
}

/// Reads topics. `servers` are the addresses of some brokers, separated by commas: `"kafka1:9092,kafka2:9092"`.
///
/// Each item is a frame, which [`Message::decode`] or [`View`](crate::View) reads; [`messages`](ReadKafka::messages)
/// makes a source of [`Message`]s.
pub fn read<T: Into<String>>(
    servers: impl Into<String>,
    topics: impl IntoIterator<Item = T>,
) -> ReadKafka {
    let mut topics: Vec<String> = topics.into_iter().map(Into::into).collect();
    topics.sort();
    topics.dedup();
    ReadKafka {
        servers: servers.into(),
        topics,
        start: Start::default(),
        end: End::default(),
        group: None,
        settings: Settings::default(),
        format: Format::Message,
        run: Arc::default(),
    }
}

impl ReadKafka {
    /// Sets where partitions begin that the flow has not read before; with the oldest message by default.
    #[must_use]
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets where the reading ends; nowhere by default.
    #[must_use]
    pub fn end(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Commits the offsets of what is processed for a consumer group, so that tools show the lag: with a state
    /// directory after each epoch, otherwise about every second. The flow itself does not need them, unless it starts
    /// with [`Start::Group`].
    #[must_use]
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group = Some(name.into());
        self
    }

    /// Sets librdkafka's settings. They replace the connector's own.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Makes frames of the values only, which [`value`](crate::value) reads. This is faster.
    #[must_use]
    pub fn values(mut self) -> Self {
        self.format = Format::Value;
        self
    }

    /// Returns a source of [`Message`]s.
    pub fn messages(mut self) -> impl Source<Vec<Message>> + Clone {
        self.format = Format::Message;
        codec::decode(self, Message::decode)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Run>>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what begins a run: it asks for the partitions.
    fn begin(&self) -> impl FnOnce() -> Result<Arc<Run>, Error> + Send + 'static {
        let servers = self.servers.clone();
        let topics = self.topics.clone();
        let group = self.group.clone();
        let settings = self.settings.clone();
        move || Run::begin(&servers, &topics, group.as_deref(), &settings)
    }

    /// The run; it is begun by the first call that needs it.
    fn current(&self) -> Result<Arc<Run>, Cause> {
        let mut current = self.lock();
        if let Some(run) = &*current {
            return Ok(Arc::clone(run));
        }
        let run = self.begin()()?;
        *current = Some(Arc::clone(&run));
        Ok(run)
    }
}

impl Source<Frames> for ReadKafka {
    fn describe(&self) -> String {
        format!("kafka {} from {}", self.topics.join(", "), self.servers)
    }

    fn partitions(&self, _: usize) -> Result<Vec<String>, Cause> {
        Ok(self.current()?.names())
    }

    fn open(
        &self,
        partition: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Frames>>, Cause> {
        let run = self.current()?;
        let (topic, number, found) = run.partition(partition)?;
        let begin: Begin = match (resume, found) {
            (Some(position), _) => bounds::resumed(&run, (&topic, number), position)?,
            (None, Some(first)) => first.into(),
            (None, None) => bounds::started(&run, (&topic, number), &self.start)?.into(),
        };
        let end = bounds::end(&run, (&topic, number), self.end)?;
        let consumer = run.consumer_of(io.place())?;
        let weak = Arc::downgrade(&consumer);
        let progress = Progress::new((&topic, number), weak, io.lag_gauge(), begin.offset);
        let progress = Arc::new(progress);
        let at = (begin.offset, begin.last.map(|last| last.epoch));
        let queue = consumer.open((&topic, number), at, io.wake())?;
        run.topics.watch(&progress);
        let opened = KafkaPartition::new(
            run.clone(),
            (topic, number),
            queue,
            progress,
            (begin, end),
            self.format,
        );
        let current = Arc::clone(&self.run);
        run.opened(move || {
            *current.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        Ok(Box::new(opened))
    }

    fn settings(&self) -> SourceSettings {
        SourceSettings::default()
    }

    fn resumable(&self) -> Option<&dyn Resumable> {
        Some(self)
    }

    fn growing(&self) -> Option<&dyn Growing> {
        // A run that ends reads the partitions with which it began.
        if self.end != End::Never {
            return None;
        }
        if let Some(run) = &*self.lock() {
            run.discovery.engine_takes_in();
        }
        Some(self)
    }
}

impl Growing for ReadKafka {
    fn found(&self, known: usize) -> Result<Vec<String>, Cause> {
        let run = self.lock().clone();
        Ok(run.map_or_else(Vec::new, |run| run.found_names(known)))
    }
}

impl Resumable for ReadKafka {
    fn await_server(&self, starting: &Starting) -> Result<(), Cause> {
        *self.lock() = None;
        match waiting::begin(starting, || self.begin()) {
            Ok(run) => *self.lock() = Some(run),
            // What no wait mends is reported where the run begins, as that of other sources.
            Err(cause) if cause.is::<Error>() => {}
            Err(cause) => return Err(cause),
        }
        Ok(())
    }

    fn first_positions(
        &self,
        new: &NewPartitions<'_>,
        resumes: bool,
    ) -> Result<Vec<(String, Position)>, Cause> {
        let start = match (&self.start, resumes) {
            // Another start finds the same, or what was removed meanwhile.
            (Start::Earliest, _) => return Ok(Vec::new()),
            (_, true) => &Start::Earliest,
            (start, false) => start,
        };
        let run = self.current()?;
        let position = |name: &String| {
            let (topic, number) = names::parse_name(name)?;
            let offset = bounds::started(&run, (topic, number), start)?;
            let saved = Saved {
                offset,
                last: None,
                topic_id: run.topics.topic_id(topic),
            };
            Ok((name.clone(), saved.position()))
        };
        new()?.iter().map(position).collect()
    }

    fn begin(&self, begin: &Beginning<'_>) -> Result<Option<Arc<dyn Recording>>, Cause> {
        let run = self.current()?;
        if begin.state_dir.is_some() {
            run.has_commits();
        }
        if !begin.forget {
            for (name, _) in begin.committed {
                run.check_known(name)?;
            }
        }
        Ok(match (&self.group, begin.state_dir) {
            (Some(_), Some(_)) => Some(Arc::new(GroupCommits::new(run))),
            _ => None,
        })
    }
}
