//! The state journal of a flow: what it holds, appending an epoch, rewriting bases, pruning.
//!
//! One journal, `DIR/epochs`, holds everything. An epoch is a run of records that ends in a commit; what
//! follows the last commit never happened and is cut when the flow starts. For each group of shards the
//! index knows which records still count: a base, if there is one, and the changes since. When the changes
//! have outgrown their base, the group is rewritten as a new base in front of the next epoch's records,
//! and the journal is pruned up to the oldest record that counts. So a disk holds a small multiple of the
//! state, however long the flow runs.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use foldhash::fast::FixedState;
use millstream_journal::{Cursor, Error, Journal, Options, PinnedRecord, Retention, Share, Writer};

use super::record::{self, Commit, Entries, Entry, Record};
use crate::error::{Cause, FlowError};
use crate::state::changes::{Changes, GROUPS, REMOVED};
use crate::state::restore::SavedKey;

/// The size of a segment of the state journal.
const SEGMENT_BYTES: u64 = 16 << 20;
/// The longest record: the largest state of a key, with its key.
const RECORD_BYTES_MAX: u32 = 12 << 20;
/// Changes of a group may grow to this before they are held against their base.
const CHANGES_BYTES_MIN: u64 = 64 << 10;
/// Behind the oldest record that counts may lie so much more than the state itself.
const SLACK_BYTES: u64 = 8 << 20;
/// A look into a directory begins anew when a flow prunes what it was about to read, so many times.
const LOOKS_MAX: usize = 100;
/// The cursor that stands at the oldest record that counts.
const NEEDED: &str = "needed";

/// What counts of one group of shards: the records, oldest first.
#[derive(Clone, Default)]
struct Group(Vec<Counted>);

#[derive(Clone)]
struct Counted {
    sequence: u64,
    /// The place of its step among the names.
    name: usize,
    bytes: u64,
    /// How many bytes the journal had taken before it.
    at: u64,
    /// It says what there is, not what has changed.
    base: bool,
}

impl Group {
    /// How long the base is, and the changes behind it.
    fn bytes(&self) -> (u64, u64) {
        self.0
            .iter()
            .fold((0, 0), |(base, changes), record| match record.base {
                true => (base + record.bytes, changes),
                false => (base, changes + record.bytes),
            })
    }

    /// How many bytes the journal had taken before the first record.
    fn at(&self) -> Option<u64> {
        self.0.first().map(|record| record.at)
    }
}

/// What a state journal holds that counts.
#[derive(Clone, Default)]
pub(crate) struct Index {
    groups: Vec<Group>,
    /// The names of all steps that ever had state.
    names: Vec<String>,
    /// Those that have.
    steps: BTreeSet<String>,
    /// The record behind which what is said of a step counts, where one was dropped.
    dropped: HashMap<String, u64>,
    commit: Option<Commit>,
    /// The record of the last commit.
    committed: u64,
    /// All bytes taken so far.
    bytes: u64,
    /// The groups that are being rewritten: what is added to them in this epoch is their base.
    rebasing: [bool; GROUPS],
}

impl Index {
    fn new() -> Self {
        Index {
            groups: vec![Group::default(); GROUPS],
            ..Index::default()
        }
    }

    /// Takes note of a record.
    fn add(&mut self, sequence: u64, body: &[u8]) -> Result<(), String> {
        let (at, bytes) = (self.bytes, body.len() as u64);
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
                    sequence,
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
        }
        Ok(())
    }

    /// The place of a step among the names.
    fn name(&mut self, step: &str) -> usize {
        let known = self.names.iter().position(|name| name == step);
        known.unwrap_or_else(|| {
            self.names.push(step.to_owned());
            self.names.len() - 1
        })
    }

    /// Whether what a record says of a step counts.
    fn counts(&self, sequence: u64, step: &str) -> bool {
        let dropped = self.dropped.get(step);
        self.steps.contains(step) && dropped.is_none_or(|before| sequence > *before)
    }

    /// The oldest record that counts.
    fn needed(&self) -> u64 {
        let first = self.groups.iter().filter_map(|group| group.0.first());
        first
            .map(|record| record.sequence)
            .min()
            .unwrap_or(self.committed)
    }

    /// How many bytes of records count.
    fn live_bytes(&self) -> u64 {
        let groups = self.groups.iter().map(Group::bytes);
        groups.map(|(base, changes)| base + changes).sum()
    }

    /// The groups to be rewritten before so many bytes of changes are appended: those that have outgrown
    /// their base, for about as many bytes as the changes take; and the one that keeps the journal from
    /// being pruned.
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

/// A reader of what a state directory holds, as of its last commit.
#[derive(Clone)]
pub struct Saved {
    journal: Journal,
    index: Index,
    /// The records that count, where a flow at work may prune them while they are looked at.
    kept: Arc<HashMap<u64, PinnedRecord>>,
}

impl Saved {
    /// Looks into a state directory without changing it. A flow may be at work on it: what is seen stays
    /// as it was at the last commit.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn open(dir: &Path) -> Result<Self, FlowError> {
        let mut looks = 0;
        loop {
            looks += 1;
            match Self::look(dir) {
                Err(cause) if looks < LOOKS_MAX && is_pruned(&cause) => {}
                Err(cause) => return Err(failed(dir, cause)),
                Ok(saved) => return Ok(saved),
            }
        }
    }

    fn look(dir: &Path) -> Result<Self, Cause> {
        let journal = match Journal::open(path(dir), Options::read_only()) {
            Err(Error::NotFound { .. }) => return Err("no flow has kept its state here".into()),
            opened => opened?,
        };
        let (index, _) = scan(&journal)?;
        let mut reader = journal.reader()?;
        let mut kept = HashMap::new();
        for &Counted { sequence, .. } in index.groups.iter().flat_map(|group| &group.0) {
            reader.seek(sequence)?;
            kept.extend(reader.next_pinned()?.map(|record| (sequence, record)));
        }
        let kept = Arc::new(kept);
        Ok(Saved {
            journal,
            index,
            kept,
        })
    }

    /// The last epoch that counts.
    #[must_use]
    pub fn commit(&self) -> Option<&Commit> {
        self.index.commit.as_ref()
    }

    /// The names of the steps that have state.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.index.steps.iter().map(String::as_str)
    }

    /// How many parts the keys of each step are read in.
    pub const PARTS: usize = GROUPS;

    /// How many bytes of records count.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.index.live_bytes()
    }

    /// The keys of a step that are in one of the shards that `wanted` picks, in the order of their numbers.
    ///
    /// # Errors
    /// Damage, which is named.
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

    /// A part of a step's keys, of [`PARTS`](Self::PARTS), in no order: who reads a large state can tell
    /// how far it is.
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

    /// Hands over each key of a group that is there, with its step, once; of all steps or of one.
    fn group(
        &self,
        group: usize,
        only: Option<&str>,
        mut each: impl FnMut(&str, &Entry<'_>),
    ) -> Result<(), Cause> {
        let mut reader = self.journal.reader()?;
        let mut bodies = Vec::new();
        for &Counted { sequence, name, .. } in &self.index.groups[group].0 {
            if only.is_none_or(|only| self.index.names[name] == only) {
                let body = match self.kept.get(&sequence) {
                    Some(record) => record.body().to_vec(),
                    None => reader.read(sequence)?.body.to_vec(),
                };
                bodies.push((sequence, body));
            }
        }
        let mut seen: HashMap<&str, HashSet<&[u8], FixedState>> = HashMap::new();
        // What was said last of a key is what counts.
        for (sequence, body) in bodies.iter().rev() {
            let Record::State { step, entries, .. } = Record::read(body)? else {
                continue;
            };
            if !self.index.counts(*sequence, step) {
                continue;
            }
            let seen = seen.entry(step).or_default();
            for entry in Entries(entries) {
                let entry = entry?;
                if seen.insert(entry.key) && entry.tag != REMOVED {
                    each(step, &entry);
                }
            }
        }
        Ok(())
    }
}

/// The state journal of a flow that runs.
pub(crate) struct Store {
    dir: PathBuf,
    saved: Saved,
    writer: Writer,
    needed: Cursor,
    sync: bool,
}

impl Store {
    /// Opens the directory, or makes it, and cuts off what follows the last commit.
    pub(crate) fn open(dir: &Path, sync: bool) -> Result<Self, FlowError> {
        let open = || {
            if std::fs::metadata(dir).is_ok_and(|found| !found.is_dir()) {
                return Err("it is a file; state is kept in a directory".into());
            }
            std::fs::create_dir_all(dir)?;
            let options = Options {
                exclusive: true,
                record_bytes_max: RECORD_BYTES_MAX,
                ..Options::default().with_segment_bytes(SEGMENT_BYTES)
            };
            let journal = Journal::open(path(dir), options)?;
            let (index, end) = scan(&journal)?;
            journal.cut(end)?;
            let writer = journal.writer()?;
            let needed = journal.cursor(NEEDED, Share::Exclusive)?;
            Ok(Store {
                dir: dir.to_owned(),
                saved: Saved {
                    journal,
                    index,
                    kept: Arc::default(),
                },
                writer,
                needed,
                sync,
            })
        };
        open().map_err(|cause: Cause| failed(dir, cause))
    }

    pub(crate) fn saved(&self) -> &Saved {
        &self.saved
    }

    /// Appends the changes of an epoch and makes them count.
    pub(crate) fn append(
        &mut self,
        changes: Vec<Vec<u8>>,
        commit: &Commit,
    ) -> Result<(), FlowError> {
        let done = self.try_append(changes, commit);
        done.map_err(|cause| failed(&self.dir, cause))
    }

    fn try_append(&mut self, changes: Vec<Vec<u8>>, commit: &Commit) -> Result<(), Cause> {
        let bytes = changes.iter().map(|body| body.len() as u64).sum();
        let mut bodies = Vec::new();
        for group in self.saved.index.outgrown(bytes) {
            self.rewrite(group, &mut bodies)?;
        }
        bodies.extend(changes);
        bodies.push(record::commit(commit)?);
        let range = self.writer.append_many(&bodies)?;
        if self.sync {
            self.writer.sync()?;
        }
        for (sequence, body) in range.zip(&bodies) {
            self.saved.index.add(sequence, body)?;
        }
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
    fn rewrite(&self, group: usize, bodies: &mut Vec<Vec<u8>>) -> Result<(), Cause> {
        let mut bases: BTreeMap<String, Changes> = BTreeMap::new();
        self.saved.group(group, None, |step, entry| {
            if !bases.contains_key(step) {
                bases.insert(step.to_owned(), Changes::new(step));
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

fn path(dir: &Path) -> PathBuf {
    dir.join("epochs")
}

/// Whether a record was removed before it could be read.
fn is_pruned(cause: &Cause) -> bool {
    matches!(cause.downcast_ref(), Some(Error::Pruned { .. }))
}

fn failed(dir: &Path, cause: impl Into<Cause>) -> FlowError {
    FlowError::State {
        path: dir.to_owned(),
        cause: cause.into(),
    }
}

/// Reads the whole journal: the index as of the last commit, and where that ends.
fn scan(journal: &Journal) -> Result<(Index, u64), Cause> {
    let mut reader = journal.reader()?;
    let start = reader.position();
    let mut end = start;
    while let Some(record) = reader.next()? {
        if record::is_commit(record.body) {
            end = record.sequence + 1;
        }
    }
    let mut index = Index::new();
    reader.seek(start)?;
    while reader.position() < end
        && let Some(record) = reader.next()?
    {
        let sequence = record.sequence;
        let named = |what| format!("record {sequence}: {what}");
        index.add(sequence, record.body).map_err(named)?;
    }
    Ok((index, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::SHARDS;

    /// Keys of a step with their state, as the two workers of a flow write them.
    fn written(step: &str, keys: std::ops::Range<u64>, state: u8, anew: bool) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        for worker in 0..2 {
            let mut changes = Changes::new(step);
            if anew {
                changes.begin_anew(worker, 2);
            }
            for key in keys.clone().filter(|key| key % 2 == worker as u64) {
                let shard = key as usize % SHARDS;
                let bytes = |out: &mut Vec<u8>| out.extend(key.to_le_bytes());
                let state = |out: &mut Vec<u8>| {
                    out.push(state);
                    Ok(1)
                };
                let put: Result<(), ()> = changes.put(shard, key, bytes, state);
                put.expect("it is written");
            }
            records.extend(changes.records());
        }
        records
    }

    /// The states of a step, by key.
    fn states(saved: &Saved, step: &str) -> Vec<u8> {
        let keys = saved.keys(step, |_| true).expect("it is read");
        keys.into_iter().map(|key| key.state[0]).collect()
    }

    #[test]
    fn what_is_said_anew_voids_what_was_said_of_the_step_before() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(dir.path(), false).expect("it opens");
        let append = |store: &mut Store, epoch, records: [Vec<Vec<u8>>; 2]| {
            let commit = Commit {
                epoch,
                workers: 2,
                ..Commit::default()
            };
            store.append(records.concat(), &commit).expect("it appends");
        };
        let nothing = Vec::new;
        let first = [
            written("all", 0..100, 1, false),
            written("some", 0..100, 1, false),
        ];
        append(&mut store, 1, first);
        append(&mut store, 2, [written("all", 0..100, 2, true), nothing()]);
        append(
            &mut store,
            3,
            [
                written("all", 0..50, 3, true),
                written("some", 0..1, 3, false),
            ],
        );
        let check = |saved: &Saved| {
            assert_eq!(states(saved, "all"), [3; 50]);
            assert_eq!(states(saved, "some"), [&[3][..], &[1; 99]].concat());
            // One record of each group counts of what was said anew, and empty ones of groups that have no keys left.
            let index = &saved.index;
            let of_all = index.names.iter().position(|name| name == "all");
            let records = index.groups.iter().flat_map(|group| &group.0);
            let records = records.filter(|record| Some(record.name) == of_all);
            assert_eq!(records.filter(|record| record.base).count(), GROUPS);
        };
        check(store.saved());
        drop(store);
        check(&Saved::open(dir.path()).expect("it is read"));
    }

    #[test]
    fn states_that_are_always_said_anew_are_never_rewritten() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut store = Store::open(dir.path(), false).expect("it opens");
        for epoch in 1..100 {
            let records = written("all", 0..20_000, epoch as u8, true);
            let (count, commit) = (
                records.len() as u64,
                Commit {
                    epoch,
                    ..Commit::default()
                },
            );
            let before = store.saved.journal.next().expect("it tells");
            store.append(records, &commit).expect("it appends");
            let after = store.saved.journal.next().expect("it tells");
            assert_eq!(after - before, count + 1);
        }
        assert_eq!(states(store.saved(), "all"), [99; 20_000]);
        let length = store.saved.journal.next().expect("it tells")
            - store.saved.journal.first().expect("it tells");
        assert!(length < 99 * 17, "nothing was pruned: {length} records");
    }
}
