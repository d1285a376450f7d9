//! Queues in memory: for tests, simulations, and queues that need not survive the process.
//!
//! A [`MemoryStorage`] is a handle. The logs outlive the queues that use them, as files outlive a process, so that a
//! simulation can crash the queues and open the logs again, with or without the records that were not synced.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::{Log, Storage, Syncing};
use crate::error::Cause;

/// Logs by the name of their queue.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    logs: Rc<RefCell<BTreeMap<String, Rc<RefCell<Records>>>>>,
    segment_records: u64,
}

/// A handle to the log of one queue.
#[derive(Debug)]
pub struct MemoryLog {
    records: Rc<RefCell<Records>>,
    segment_records: u64,
    /// The record that was read last, so that `read` can return a reference.
    lent: Vec<u8>,
}

#[derive(Debug, Default)]
struct Records {
    first: u64,
    kept: VecDeque<Vec<u8>>,
    bytes: u64,
    synced: u64,
    failing: bool,
    tombstones: BTreeSet<u64>,
}

impl Records {
    fn next(&self) -> u64 {
        self.first + self.kept.len() as u64
    }
}

impl MemoryStorage {
    /// Storage without logs. A prune removes `segment_records` records at a time, as with files.
    pub fn new(segment_records: u64) -> Self {
        MemoryStorage {
            logs: Rc::default(),
            segment_records: segment_records.max(1),
        }
    }

    /// Simulates a loss of power: keeps all synced records of each log, and as many of the others as `keep` returns
    /// for their number. No queue may be in use.
    pub fn lose_power(&self, mut keep: impl FnMut(u64) -> u64) {
        for log in self.logs.borrow().values() {
            let mut log = log.borrow_mut();
            let synced = log.synced.max(log.first);
            let unsynced = log.next() - synced;
            let kept = synced - log.first + keep(unsynced).min(unsynced);
            log.kept.truncate(kept as usize);
            let next = log.next();
            log.tombstones.retain(|position| *position < next);
            log.bytes = log.kept.iter().map(|record| record.len() as u64).sum();
        }
    }

    /// Makes every append and sync of this queue's log fail, or succeed again.
    pub fn set_failing(&self, name: &str, failing: bool) {
        if let Some(log) = self.logs.borrow().get(name) {
            log.borrow_mut().failing = failing;
        }
    }
}

impl Storage for MemoryStorage {
    type Log = MemoryLog;

    fn names(&self) -> Result<Vec<String>, Cause> {
        Ok(self.logs.borrow().keys().cloned().collect())
    }

    fn open(&mut self, name: &str) -> Result<MemoryLog, Cause> {
        let records = Rc::clone(self.logs.borrow_mut().entry(name.to_owned()).or_default());
        Ok(MemoryLog {
            records,
            segment_records: self.segment_records.max(1),
            lent: Vec::new(),
        })
    }

    fn remove(&mut self, name: &str) -> Result<(), Cause> {
        self.logs.borrow_mut().remove(name);
        Ok(())
    }
}

impl Records {
    fn sync(&mut self) -> Result<(), Cause> {
        if self.failing {
            return Err("input/output error".into());
        }
        self.synced = self.next();
        Ok(())
    }
}

/// Syncs the log of one queue in memory.
#[derive(Debug)]
pub struct MemorySyncing(Rc<RefCell<Records>>);

impl Syncing for MemorySyncing {
    fn sync(&self) -> Result<(), Cause> {
        self.0.borrow_mut().sync()
    }
}

impl Log for MemoryLog {
    type Syncing = MemorySyncing;

    fn append(&mut self, record: &[u8]) -> Result<u64, Cause> {
        let mut records = self.records.borrow_mut();
        if records.failing {
            return Err("no space left on device".into());
        }
        let position = records.next();
        records.kept.push_back(record.to_vec());
        records.bytes += record.len() as u64;
        Ok(position)
    }

    fn read(&mut self, position: u64) -> Result<&[u8], Cause> {
        let records = self.records.borrow();
        let index = position
            .checked_sub(records.first)
            .ok_or_else(|| pruned(position))?;
        let record = records
            .kept
            .get(index as usize)
            .ok_or_else(|| pruned(position))?;
        self.lent.clear();
        self.lent.extend_from_slice(record);
        Ok(&self.lent)
    }

    fn first(&self) -> u64 {
        self.records.borrow().first
    }

    fn next(&self) -> u64 {
        self.records.borrow().next()
    }

    fn durable(&self) -> u64 {
        self.records.borrow().synced
    }

    fn sync(&mut self) -> Result<(), Cause> {
        self.records.borrow_mut().sync()
    }

    fn syncing(&self) -> MemorySyncing {
        MemorySyncing(Rc::clone(&self.records))
    }

    fn prune(&mut self, before: u64) -> Result<(), Cause> {
        let mut records = self.records.borrow_mut();
        let before = before - before % self.segment_records;
        while records.first < before {
            let Some(record) = records.kept.pop_front() else {
                break;
            };
            records.bytes -= record.len() as u64;
            records.first += 1;
        }
        let first = records.first;
        records.tombstones = records.tombstones.split_off(&first);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.records.borrow().bytes
    }

    fn is_full(&self) -> bool {
        self.records.borrow().failing
    }

    fn tombstone(&mut self, position: u64) -> Result<(), Cause> {
        self.records.borrow_mut().tombstones.insert(position);
        Ok(())
    }

    fn has_tombstone(&self, position: u64) -> bool {
        self.records.borrow().tombstones.contains(&position)
    }
}

fn pruned(position: u64) -> Cause {
    format!("there is no record {position}").into()
}
