//! What the partitions of a run share: the list of partitions, clients, and the commits of a group.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use millstream_flow::error::Cause;
use millstream_flow::source::{Position, Recording};

use super::discovery::Discovery;
use super::names::{name_of, parse_name};
use super::saved;
use super::topics::Topics;
use crate::client::settings::Settings;
use crate::client::{Consumer, connect, connect_for_questions};
use crate::error::Error;

/// The group of the client, if the user names none. No offsets are committed for it.
const GROUP: &str = "millstream";

/// A function that is called once.
type AtEnd = Box<dyn FnOnce() + Send>;

/// The source in a run.
pub(super) struct Run {
    servers: String,
    group: String,
    settings: Settings,
    has_group: bool,
    /// Topic and number of each partition, in the order of the source.
    partitions: Vec<(String, i32)>,
    pub(super) topics: Arc<Topics>,
    /// The number of open partitions.
    open: AtomicUsize,
    /// Called when the run is over.
    at_end: Mutex<Option<AtEnd>>,
    /// The run notifies of commits.
    commits: AtomicBool,
    pub(super) discovery: Arc<Discovery>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.discovery.stop();
    }
}

impl Run {
    /// Asks for the partitions.
    pub(super) fn begin(
        servers: &str,
        topics: &[String],
        group: Option<&str>,
        settings: &Settings,
    ) -> Result<Arc<Self>, Error> {
        let has_group = group.is_some();
        let group = group.unwrap_or(GROUP).to_owned();
        let control = connect_for_questions(servers, &group, settings)?;
        let mut partitions = Vec::new();
        let mut known = HashMap::new();
        for name in topics {
            let topic = control.topic(name)?;
            let numbers = 0..topic.partitions as i32;
            partitions.extend(numbers.map(|number| (name.clone(), number)));
            known.insert(name.clone(), topic);
        }
        let run = Arc::new(Run {
            servers: servers.to_owned(),
            group,
            settings: settings.clone(),
            has_group,
            partitions,
            topics: Arc::new(Topics::new(control, known)),
            open: AtomicUsize::new(0),
            at_end: Mutex::default(),
            commits: AtomicBool::new(false),
            discovery: Arc::default(),
        });
        let interval = run.settings.look_interval();
        run.discovery.start(Arc::downgrade(&run.topics), interval);
        Ok(run)
    }

    /// The addresses of brokers.
    pub(super) fn servers(&self) -> &str {
        &self.servers
    }

    /// Returns the error of a partition that had no leader when the run began.
    pub(super) fn leaderless(&self) -> Option<Error> {
        let (topic, partition) = self.topics.leaderless()?;
        Some(Error::NoLeader {
            servers: self.servers.clone(),
            topic: topic.to_owned(),
            partition,
        })
    }

    /// The names of the partitions.
    pub(super) fn names(&self) -> Vec<String> {
        let partitions = self.partitions.iter();
        partitions
            .map(|(topic, number)| name_of((topic, *number)))
            .collect()
    }

    /// The names of the partitions from `known` on that were found during the run.
    pub(super) fn found_names(&self, known: usize) -> Vec<String> {
        let found = self
            .discovery
            .found(known.saturating_sub(self.partitions.len()));
        found
            .iter()
            .map(|found| name_of((&found.topic, found.number)))
            .collect()
    }

    /// Returns topic and number of a partition by its index; of one that was found during the run also its first
    /// offset.
    pub(super) fn partition(&self, index: usize) -> Result<(String, i32, Option<i64>), Cause> {
        if let Some((topic, number)) = self.partitions.get(index) {
            return Ok((topic.clone(), *number, None));
        }
        let found = self.discovery.found(index - self.partitions.len());
        let found = found.into_iter().next();
        let found = found.ok_or_else(|| format!("there is no partition {index}"))?;
        Ok((found.topic, found.number, Some(found.first)))
    }

    /// Returns the consumer of a worker.
    pub(super) fn consumer_of(
        &self,
        (worker, workers): (usize, usize),
    ) -> Result<Arc<dyn Consumer>, Error> {
        let mut consumers = self.topics.lock_consumers();
        if let Some(consumer) = consumers.get(&worker) {
            return Ok(Arc::clone(consumer));
        }
        let share = self.partitions.len().div_ceil(workers.max(1));
        let consumer = connect(&self.servers, &self.group, &self.settings, share)?;
        consumers.insert(worker, Arc::clone(&consumer));
        Ok(consumer)
    }

    /// Checks a partition that an earlier run has read.
    pub(super) fn check_known(&self, name: &str) -> Result<(), Error> {
        let (topic, partition) = parse_name(name)?;
        match self.topics.count(topic) {
            Some(count) if partition as usize >= count => Err(Error::NoPartition {
                topic: topic.to_owned(),
                partition,
                found: count,
            }),
            _ => Ok(()),
        }
    }

    /// The run notifies of commits.
    pub(super) fn has_commits(&self) {
        self.commits.store(true, Ordering::Relaxed);
    }

    /// Whether partitions commit their offsets themselves: for a group, in a run that does not notify of commits.
    pub(super) fn partitions_commit(&self) -> bool {
        self.has_group && !self.commits.load(Ordering::Relaxed)
    }

    /// A partition is open. `at_end` is called when the run is over.
    pub(super) fn opened(&self, at_end: impl FnOnce() + Send + 'static) {
        self.open.fetch_add(1, Ordering::AcqRel);
        let mut kept = self.at_end.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get_or_insert_with(|| Box::new(at_end));
    }

    /// A partition is closed. With the last one the run is over: its clients close, and the next run asks for
    /// partitions again.
    pub(super) fn closed(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        self.discovery.stop();
        let consumers = std::mem::take(&mut *self.topics.lock_consumers());
        drop(consumers);
        let at_end = self
            .at_end
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(at_end) = at_end {
            at_end();
        }
    }
}

/// Commits the offsets of a group after each epoch.
pub(super) struct GroupCommits {
    run: Arc<Run>,
    has_warned: AtomicBool,
}

impl GroupCommits {
    pub(super) fn new(run: Arc<Run>) -> Self {
        GroupCommits {
            run,
            has_warned: AtomicBool::new(false),
        }
    }
}

impl Recording for GroupCommits {
    fn commit(&self, positions: &[(&str, Position)]) -> Result<(), Cause> {
        let mut offsets = Vec::new();
        for (name, position) in positions {
            let (topic, partition) = parse_name(name)?;
            offsets.push((topic.to_owned(), partition, saved::read(position)?.offset));
        }
        if offsets.is_empty() {
            return Ok(());
        }
        // The state directory has the positions; the group's offsets are for people.
        match self.run.topics.control.commit(&offsets) {
            Ok(()) => self.has_warned.store(false, Ordering::Relaxed),
            Err(error) => {
                if !self.has_warned.swap(true, Ordering::Relaxed) {
                    let group = self.run.group.as_str();
                    tracing::warn!("the offsets of group \"{group}\" are not committed: {error}");
                }
            }
        }
        Ok(())
    }
}
