//! The state journal of a flow: its contents, appending an epoch, rewriting bases, pruning.
//!
//! One journal, `DIR/epochs`, holds everything. An epoch is a sequence of records that ends in a commit; records after
//! the last commit do not count and are truncated when the flow starts. In a run of several processes a prepared record
//! precedes the commit, which follows when all processes have prepared the epoch: then the start decides (see `opened`)
//! whether the records count. For each group of shards the index knows which records still count: a base, if there is
//! one, and the changes since. When the changes have outgrown their base, the group is rewritten as a new base before
//! the next epoch's records, and the journal is pruned up to the oldest record that counts. So the disk usage is a
//! small multiple of the size of the state, however long the flow runs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::FixedState;
use millstream_journal::{
    Cursor, CursorMode, Error, Journal, Options, PinnedRecord, Reader, Retention, Writer,
};

use super::fragments::{self, Join};
use super::record::{self, Commit, Entry, Record};
use crate::clock::now_ns;
use crate::error::{Cause, FlowError};
use crate::key::Shards;
use crate::metrics::progress::CommitCost;
use crate::saved::changes::{ADDED, Changes, GROUPS, REMOVED};
use crate::saved::restore::SavedKey;

/// The size of a segment of the state journal.
pub(super) const SEGMENT_BYTES: u64 = 16 << 20;
/// Below this size the changes of a group are not compared with its base.
const CHANGES_BYTES_MIN: u64 = 64 << 10;
/// The journal may be this much longer, from the oldest record that counts, than the state itself.
const SLACK_BYTES: u64 = 8 << 20;
/// The number of attempts to read a directory whose flow prunes records while they are read.
const READS_MAX: usize = 100;
/// The cursor at the oldest record that counts.
const NEEDED: &str = "needed";

/// The records of one group of shards that count, oldest first.
#[derive(Clone, Default)]
struct Group(Vec<Counted>);

#[derive(Clone)]
struct Counted {
    /// Its numbers in the journal.
    numbers: Range<u64>,
    /// The index of its step among the names.
    name: usize,
    bytes: u64,
    /// The number of bytes appended to the journal before it.
    at: u64,
    /// True if it holds all of the state, false if it holds changes.
    base: bool,
}

impl Group {
    /// The length of the base, and of the changes after it.
    fn bytes(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(base, changes), record| {
            if record.base {
                (base + record.bytes, changes)
            } else {
                (base, changes + record.bytes)
            }
        })
    }

    /// The number of bytes appended to the journal before the first record.
    fn at(&self) -> Option<u64> {
        self.0.first().map(|record| record.at)
    }
}

/// The records of a state journal that count.
#[derive(Clone, Default)]
pub(crate) struct Index {
    groups: Vec<Group>,
    /// The names of all steps that have ever had state.
    names: Vec<String>,
    /// The steps that have state now.
    pub(super) steps: BTreeSet<String>,
    /// For each dropped step, the record after which its state counts.
    dropped: HashMap<String, u64>,
    pub(super) commit: Option<Commit>,
    /// The number of the last commit in the journal.
    committed: u64,
    /// The number of all bytes appended so far.
    bytes: u64,
    /// The groups that are being rewritten: the records added to them in this epoch are their base.
    rebasing: [bool; GROUPS],
}

impl Index {
    pub(super) fn new() -> Self {
        Index {
            groups: vec![Group::default(); GROUPS],
            ..Index::default()
        }
    }

    /// Adds a record with these numbers in the journal to the index.
    pub(super) fn add(&mut self, numbers: Range<u64>, body: &[u8]) -> Result<(), String> {
        let sequence = numbers.start;
        let at = self.bytes;
        let bytes = body.len() as u64;
        self.bytes += bytes;
        match Record::read(body)? {
            Record::State {
                group, step, whole, ..
            } => {
                let name = self.name(step);
                let records = &mut self.groups[group].0;
                if whole {
                    records.retain(|record| record.name != name);
                }
                records.push(Counted {
                    numbers,
                    name,
                    bytes,
                    at,
                    base: whole || self.rebasing[group],
                });
                if !self.steps.contains(step) {
                    self.steps.insert(step.to_owned());
                }
            }
            Record::Rebase { group } => {
                self.groups[group] = Group::default();
                self.rebasing[group] = true;
            }
            Record::Drop { step } => {
                self.steps.remove(step);
                self.dropped.insert(step.to_owned(), sequence);
            }
            Record::Commit(commit) => {
                self.commit = Some(commit);
                self.committed = sequence;
                self.rebasing = [false; GROUPS];
            }
            // The commit record after it counts.
            Record::Prepared(_) => {}
        }
        Ok(())
    }

    /// The index of a step among the names; adds the step if it is new.
    fn name(&mut self, step: &str) -> usize {
        let known = self.names.iter().position(|name| name == step);
        known.unwrap_or_else(|| {
            self.names.push(step.to_owned());
            self.names.len() - 1
        })
    }

    /// Whether the contents of a record for a step count.
    fn counts(&self, sequence: u64, step: &str) -> bool {
        let dropped = self.dropped.get(step);
        self.steps.contains(step) && dropped.is_none_or(|before| sequence > *before)
    }

    /// The oldest record that counts.
    fn needed(&self) -> u64 {
        let first = self.groups.iter().filter_map(|group| group.0.first());
        first
            .map(|record| record.numbers.start)
            .min()
            .unwrap_or(self.committed)
    }

    /// The number of bytes of the records that count.
    fn live_bytes(&self) -> u64 {
        let groups = self.groups.iter().map(Group::bytes);
        groups.map(|(base, changes)| base + changes).sum()
    }

    /// The groups to rewrite before `changes` bytes of changes are appended: groups that have outgrown their
    /// base, for about as many bytes as the changes take; and the group that keeps the journal from being
    /// pruned.
    fn outgrown(&self, changes: u64) -> Vec<usize> {
        let live = self.live_bytes();
        let groups = self.groups.iter().enumerate();
        let mut groups: Vec<_> = groups
            .filter_map(|(number, group)| Some((group.at()?, number)))
            .collect();
        groups.sort_unstable();
        let oldest = groups.first().copied();
        let pins = |(at, _): &(u64, usize)| self.bytes - at > 2 * live + SLACK_BYTES;
        let pinning = oldest.filter(pins).map(|(_, group)| group);
        let mut chosen: Vec<usize> = pinning.into_iter().collect();
        let mut budget = changes;
        for (_, group) in groups {
            let (base, changes) = self.groups[group].bytes();
            if changes > base.max(CHANGES_BYTES_MIN) && budget > 0 && !chosen.contains(&group) {
                budget = budget.saturating_sub(base + changes);
                chosen.push(group);
            }
        }
        chosen
    }
}

/// A reader of a state directory, as of its last commit.
#[derive(Clone)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Saved {
    journal: Journal,
    index: Index,
    /// What is prepared after the last commit, in a run of several processes.
    prepared: Option<Commit>,
    /// The records that count, by number, pinned where a running flow may prune them while they are read.
    kept: Arc<HashMap<u64, PinnedRecord>>,
}

impl Saved {
    /// Opens a state directory for reading, without changing it. A flow may run on it: the reader sees the
    /// state of the last commit at the time of the call.
    ///
    /// # Errors
    /// There is no state directory, or it is damaged.
    pub fn open(dir: &Path) -> Result<Self, FlowError> {
        let mut reads = 0;
        loop {
            reads += 1;
            match Self::read(dir) {
                Err(cause) if reads < READS_MAX && is_pruned(&cause) => {}
                Err(cause) => return Err(failed(dir, cause)),
                Ok(saved) => return Ok(saved),
            }
        }
    }

    fn read(dir: &Path) -> Result<Self, Cause> {
        let journal = match Journal::open(path(dir), Options::read_only()) {
            Err(Error::NotFound { .. }) => {
                return Err("it is not the state directory of a flow".into());
            }
            opened => opened?,
        };
        let Scan {
            index, prepared, ..
        } = scan(&journal)?;
        let mut reader = journal.reader()?;
        let mut kept = HashMap::new();
        let counted = index.groups.iter().flat_map(|group| &group.0);
        for sequence in counted.flat_map(|record| record.numbers.clone()) {
            reader.seek(sequence)?;
            kept.extend(reader.next_pinned()?.map(|record| (sequence, record)));
        }
        let kept = Arc::new(kept);
        Ok(Saved {
            journal,
            index,
            prepared: prepared.map(|(commit, _)| commit),
            kept,
        })
    }

    /// The last commit.
    #[must_use]
    pub fn commit(&self) -> Option<&Commit> {
        self.index.commit.as_ref()
    }

    /// What is prepared after the last commit, in the directory of one process among several. It counts if process 0
    /// has committed its epoch, which the next start finds out.
    #[must_use]
    pub fn prepared(&self) -> Option<&Commit> {
        self.prepared.as_ref()
    }

    /// The names of the steps that have state.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.index.steps.iter().map(String::as_str)
    }

    /// The number of parts in which the keys of each step are read.
    pub const PARTS: usize = GROUPS;

    /// The number of bytes of the records that count.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.index.live_bytes()
    }

    /// The keys of a step in the shards that `wanted` selects, in the order of their creation numbers.
    ///
    /// # Errors
    /// The journal is damaged; the error names the damage.
    pub fn keys(
        &self,
        step: &str,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Vec<SavedKey>, FlowError> {
        let mut keys = Vec::new();
        for part in 0..Self::PARTS {
            keys.extend(self.part(step, part, &wanted)?);
        }
        keys.sort_by(|a, b| (a.born, &a.key).cmp(&(b.born, &b.key)));
        Ok(keys)
    }

    /// One of the [`PARTS`](Self::PARTS) parts of a step's keys, unordered, so that a reader of a large state
    /// can report its progress.
    ///
    /// # Errors
    /// As for [`keys`](Self::keys).
    pub fn part(
        &self,
        step: &str,
        part: usize,
        wanted: impl Fn(usize) -> bool,
    ) -> Result<Vec<SavedKey>, FlowError> {
        let mut keys = Vec::new();
        let read = self.group(part, Some(step), |_, entry| {
            if wanted(entry.shard) {
                keys.push(SavedKey {
                    born: entry.born,
                    shard: entry.shard,
                    key: entry.key.to_vec(),
                    tag: entry.tag,
                    state: entry.state.to_vec(),
                });
            }
        });
        read.map_err(|cause| failed(&self.journal.path(), cause))?;
        Ok(keys)
    }

    /// Calls `each` once with each present key of a group and its step; of all steps or of one.
    fn group(
        &self,
        group: usize,
        only: Option<&str>,
        mut each: impl FnMut(&str, &Entry<'_>),
    ) -> Result<(), Cause> {
        let mut reader = self.journal.reader()?;
        let mut bodies = Vec::new();
        for Counted { numbers, name, .. } in &self.index.groups[group].0 {
            if only.is_none_or(|only| self.index.names[*name] == only) {
                let body = self.record(numbers, &mut reader)?;
                bodies.push((numbers.start, body));
            }
        }
        let mut seen: HashMap<&str, SeenKeys<'_>> = HashMap::new();
        // The last record of a key counts, and those before it as far as it only adds to them.
        for (sequence, body) in bodies.iter().rev() {
            let Record::State { step, entries, .. } = Record::read(body)? else {
                continue;
            };
            if !self.index.counts(*sequence, step) {
                continue;
            }
            let seen = seen.entry(step).or_default();
            for entry in entries {
                seen.pass(entry?, |entry| each(step, entry));
            }
        }
        if seen.values().all(|seen| seen.added.is_empty()) {
            Ok(())
        } else {
            Err("a state is missing to which later records add".into())
        }
    }

    /// Reads the record with these numbers in the journal.
    fn record(&self, numbers: &Range<u64>, reader: &mut Reader) -> Result<Vec<u8>, Cause> {
        let mut join = Join::default();
        for sequence in numbers.clone() {
            let joined = match self.kept.get(&sequence) {
                Some(kept) => join.add(sequence, kept.body())?,
                None => join.add(sequence, reader.read(sequence)?.body)?,
            };
            if let Some((_, record)) = joined {
                return Ok(record.into_owned());
            }
        }
        Err(format!("record {} lacks its last fragments", numbers.start).into())
    }
}

/// The keys of a step in records that are read from the last to the first.
#[derive(Default)]
struct SeenKeys<'a> {
    /// Those whose state is known.
    whole: HashSet<&'a [u8], FixedState>,
    /// What is added to the states of others, the last first.
    added: HashMap<&'a [u8], Vec<&'a [u8]>, FixedState>,
}

impl<'a> SeenKeys<'a> {
    /// Adds an entry. Passes the key to `each` if its state is known with it.
    fn pass(&mut self, entry: Entry<'a>, each: impl FnOnce(&Entry<'_>)) {
        if entry.tag == ADDED {
            if !self.whole.contains(entry.key) {
                self.added.entry(entry.key).or_default().push(entry.state);
            }
            return;
        }
        if !self.whole.insert(entry.key) {
            return;
        }
        let added = if self.added.is_empty() {
            None
        } else {
            self.added.remove(entry.key)
        };
        match added {
            _ if entry.tag == REMOVED => {}
            None => each(&entry),
            Some(mut parts) => {
                parts.push(entry.state);
                parts.reverse();
                let state = parts.concat();
                each(&Entry {
                    state: &state,
                    ..entry
                });
            }
        }
    }
}

/// The state journal of a running flow.
pub(crate) struct Store {
    dir: PathBuf,
    saved: Saved,
    writer: Writer,
    needed: Cursor,
    sync: bool,
    /// The records of the epoch that is prepared, and the number of the first.
    prepared: Option<(u64, Vec<Vec<u8>>)>,
    /// What was appended since the cost was taken last.
    cost: CommitCost,
}

impl Store {
    /// Opens the directory of a run of one process, or creates it, and truncates what follows the last commit.
    #[cfg(test)]
    pub(crate) fn open(dir: &Path, sync: bool) -> Result<Self, FlowError> {
        super::opened::Opened::open(dir, sync)?.truncate()
    }

    pub(super) fn new(
        dir: &Path,
        journal: Journal,
        index: Index,
        sync: bool,
    ) -> Result<Self, Cause> {
        Ok(Store {
            dir: dir.to_owned(),
            writer: journal.writer()?,
            needed: journal.cursor(NEEDED, CursorMode::Exclusive)?,
            saved: Saved {
                journal,
                index,
                prepared: None,
                kept: Arc::default(),
            },
            sync,
            prepared: None,
            cost: CommitCost::default(),
        })
    }

    /// The journal.
    pub(super) fn journal(&self) -> &Journal {
        &self.saved.journal
    }

    pub(crate) fn saved(&self) -> &Saved {
        &self.saved
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends records that count once a commit follows; for a state that is divided anew.
    pub(crate) fn append(&mut self, records: &[Vec<u8>]) -> Result<(), FlowError> {
        let mut append = || -> Result<(), Cause> {
            let first = self.write(records)?;
            // They count for the commit that follows, which prunes what does not count.
            self.add(first, records)
        };
        let appended = append();
        appended.map_err(|cause| failed(&self.dir, cause))
    }

    /// A number that no other state directory has.
    pub(crate) fn lineage(&self) -> Result<u64, FlowError> {
        let lineage = self.saved.journal.lineage();
        lineage
            .map(|lineage| lineage as u64)
            .map_err(|cause| failed(&self.dir, cause))
    }

    /// Appends the changes of an epoch and its commit record, and syncs them. Once the commit record is durable, the
    /// epoch is committed.
    pub(crate) fn commit(
        &mut self,
        changes: Vec<Vec<u8>>,
        commit: &Commit,
    ) -> Result<(), FlowError> {
        let done = || -> Result<(), Cause> {
            // The commit point: the last body is the commit record.
            let (first, bodies) =
                self.write_epoch(changes, commit.shards, record::commit(commit)?)?;
            self.add(first, &bodies)?;
            self.prune()
        };
        let done = done();
        done.map_err(|cause| failed(&self.dir, cause))
    }

    /// Appends the changes of an epoch and a prepared record, and syncs them. They count once
    /// [`commit_prepared`](Self::commit_prepared) follows.
    pub(crate) fn prepare(
        &mut self,
        changes: Vec<Vec<u8>>,
        commit: &Commit,
    ) -> Result<(), FlowError> {
        let done = || -> Result<(), Cause> {
            let (first, bodies) =
                self.write_epoch(changes, commit.shards, record::prepared(commit)?)?;
            // The commit record before these is durable only now, in a process that does not sync it.
            self.prune()?;
            self.prepared = Some((first, bodies));
            Ok(())
        };
        let done = done();
        done.map_err(|cause| failed(&self.dir, cause))
    }

    /// Appends the commit record of the epoch that is prepared, if one is, else of an epoch without changes here. With
    /// `durable` the epoch is committed when this returns. Without, the commit record of another process already is,
    /// and a loss of power that takes this one leaves the prepared record.
    pub(crate) fn commit_prepared(
        &mut self,
        commit: &Commit,
        durable: bool,
    ) -> Result<(), FlowError> {
        let mut done = || -> Result<(), Cause> {
            let body = record::commit(commit)?;
            let bodies = [body];
            let sequence = self.write(&bodies)?;
            if durable {
                self.sync()?;
            }
            if let Some((first, bodies)) = self.prepared.take() {
                self.add(first, &bodies)?;
            }
            self.add(sequence, &bodies)?;
            if durable { self.prune() } else { Ok(()) }
        };
        let done = done();
        done.map_err(|cause| failed(&self.dir, cause))
    }

    /// Appends the changes of an epoch and the record that ends it, and syncs them; returns the number of the first,
    /// and all.
    fn write_epoch(
        &mut self,
        changes: Vec<Vec<u8>>,
        shards: Shards,
        end: Vec<u8>,
    ) -> Result<(u64, Vec<Vec<u8>>), Cause> {
        let mut bodies = self.with_bases(changes, shards)?;
        bodies.push(end);
        let first = self.write(&bodies)?;
        self.sync()?;
        Ok((first, bodies))
    }

    /// The changes of an epoch after the bases of the groups that are rewritten before them.
    fn with_bases(&self, changes: Vec<Vec<u8>>, shards: Shards) -> Result<Vec<Vec<u8>>, Cause> {
        let bytes = changes.iter().map(|body| body.len() as u64).sum();
        let mut bodies = Vec::new();
        for group in self.saved.index.outgrown(bytes) {
            self.rewrite(group, shards, &mut bodies)?;
        }
        bodies.extend(changes);
        Ok(bodies)
    }

    /// Appends records; returns the number of the first in the journal.
    fn write(&mut self, bodies: &[Vec<u8>]) -> Result<u64, Cause> {
        self.cost.bytes += bodies.iter().map(|body| body.len() as u64).sum::<u64>();
        let stored = bodies.iter().flat_map(|body| fragments::divide(body));
        Ok(self.writer.append_many(stored)?.start)
    }

    fn sync(&mut self) -> Result<(), Cause> {
        if self.sync {
            let begun_ns = now_ns();
            self.writer.sync()?;
            self.cost.sync_ns += now_ns().saturating_sub(begun_ns);
        }
        Ok(())
    }

    /// Returns the bytes and syncs since the last call.
    pub(crate) fn take_cost(&mut self) -> CommitCost {
        std::mem::take(&mut self.cost)
    }

    /// Adds records that were appended from number `first` on to the index.
    fn add(&mut self, first: u64, bodies: &[Vec<u8>]) -> Result<(), Cause> {
        let mut next = first;
        for body in bodies {
            let numbers = next..next + fragments::count(body);
            next = numbers.end;
            self.saved.index.add(numbers, body)?;
        }
        Ok(())
    }

    /// Removes the records before the oldest one that counts.
    fn prune(&self) -> Result<(), Cause> {
        let needed = self.saved.index.needed();
        if needed > self.needed.position()? {
            self.needed.set(needed)?;
            self.saved.journal.prune(&Retention {
                keep_for_cursors: true,
                ..Retention::default()
            })?;
        }
        Ok(())
    }

    /// Appends the base of a group to `bodies`.
    fn rewrite(
        &self,
        group: usize,
        shards: Shards,
        bodies: &mut Vec<Vec<u8>>,
    ) -> Result<(), Cause> {
        let mut bases: BTreeMap<String, Changes> = BTreeMap::new();
        self.saved.group(group, None, |step, entry| {
            if !bases.contains_key(step) {
                bases.insert(step.to_owned(), Changes::new(step, shards));
            }
            if let Some(rewritten) = bases.get_mut(step) {
                entry.copy_to(rewritten);
            }
        })?;
        bodies.push(record::rebase(group));
        for rewritten in bases.into_values() {
            bodies.extend(rewritten.records());
        }
        Ok(())
    }
}

pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("epochs")
}

/// Whether a record was pruned before it could be read.
fn is_pruned(cause: &Cause) -> bool {
    matches!(cause.downcast_ref(), Some(Error::Pruned { .. }))
}

pub(super) fn failed(dir: &Path, cause: impl Into<Cause>) -> FlowError {
    FlowError::State {
        path: dir.to_owned(),
        cause: cause.into(),
    }
}

/// The contents of a state journal.
pub(super) struct Scan {
    /// The records that count as of the last commit.
    pub(super) index: Index,
    /// The number after the last commit.
    pub(super) end: u64,
    /// What is prepared after that, and the number after it.
    pub(super) prepared: Option<(Commit, u64)>,
}

/// Reads the whole journal.
pub(super) fn scan(journal: &Journal) -> Result<Scan, Cause> {
    let mut reader = journal.reader()?;
    let start = reader.position();
    let mut end = start;
    let mut prepared = None;
    fragments::read_each(&mut reader, u64::MAX, |numbers, body| {
        if record::is_commit(body) {
            (end, prepared) = (numbers.end, None);
        } else if record::is_prepared(body)
            && let Record::Prepared(commit) = Record::read(body)?
        {
            prepared = Some((commit, numbers.end));
        }
        Ok(())
    })?;
    let mut index = Index::new();
    reader.seek(start)?;
    fragments::read_each(&mut reader, end, |numbers, body| index.add(numbers, body))?;
    Ok(Scan {
        index,
        end,
        prepared,
    })
}

#[cfg(test)]
mod tests;
