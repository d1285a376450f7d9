//! Where the queues of a world are kept: journals on a simulated machine, each in a folder, with faults to be found.

use millstream_journal::storage::{Simulated, Storage as _};
use millstream_journal::{Journal, Options};
use millstream_queue::Cause;
use millstream_queue::storage::operation::Operation;
use millstream_queue::storage::{JournalLog, JournalSyncing, Log, Storage, Syncing};

/// What may be done wrong between a queue and its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A sync is reported as done and is not.
    AnswerBeforeSync,
    /// That an item has left is not written.
    ForgetRemovals,
    /// Now and then an item is not written.
    LoseItems,
    /// Now and then an item is written twice.
    RepeatItems,
    /// More of a log is removed than is no longer needed.
    PruneTooFar,
}

/// One item in this many is lost or doubled.
const SELDOM: u64 = 40;
/// How many records too far it prunes.
const TOO_FAR: u64 = 2_000;

/// The disk as one process sees it.
#[derive(Clone)]
pub struct Disks {
    pub process: Simulated,
    pub options: Options,
    pub fault: Option<Fault>,
}

/// The log of a queue.
pub struct DiskLog {
    log: JournalLog<Simulated>,
    fault: Option<Fault>,
    added: u64,
}

/// What syncs it.
pub struct DiskSync {
    journal: JournalSyncing<Simulated>,
    fault: Option<Fault>,
}

impl Storage for Disks {
    type Log = DiskLog;

    fn names(&self) -> Result<Vec<String>, Cause> {
        Ok(self.process.folders().into_iter().collect())
    }

    fn open(&mut self, name: &str) -> Result<DiskLog, Cause> {
        let journal = Journal::open_in(self.process.folder(name), self.options.clone())?;
        Ok(DiskLog {
            log: JournalLog::over(journal)?,
            fault: self.fault,
            added: 0,
        })
    }

    fn remove(&mut self, name: &str) -> Result<(), Cause> {
        let folder = self.process.folder(name);
        for within in ["", "writers", "cursors"] {
            for file in folder.list(within)? {
                let path = match within {
                    "" => file,
                    _ => format!("{within}/{file}"),
                };
                folder.remove(&path)?;
            }
        }
        Ok(())
    }
}

impl Syncing for DiskSync {
    fn sync(&self) -> Result<(), Cause> {
        match self.fault {
            Some(Fault::AnswerBeforeSync) => Ok(()),
            _ => Syncing::sync(&self.journal),
        }
    }
}

impl Log for DiskLog {
    type Syncing = DiskSync;

    fn append(&mut self, record: &[u8]) -> Result<u64, Cause> {
        match (self.fault, Operation::decode(record)) {
            (Some(Fault::ForgetRemovals), Ok(Operation::Remove { .. })) => {
                return Ok(self.log.next());
            }
            (Some(Fault::LoseItems | Fault::RepeatItems), Ok(Operation::Add { .. })) => {
                self.added += 1;
                if self.added.is_multiple_of(SELDOM) {
                    match self.fault {
                        Some(Fault::RepeatItems) => self.log.append(record)?,
                        _ => return Ok(self.log.next()),
                    };
                }
            }
            _ => {}
        }
        self.log.append(record)
    }

    fn read(&mut self, position: u64) -> Result<&[u8], Cause> {
        self.log.read(position)
    }

    fn first(&self) -> u64 {
        self.log.first()
    }

    fn next(&self) -> u64 {
        self.log.next()
    }

    fn durable(&self) -> u64 {
        self.log.durable()
    }

    fn sync(&mut self) -> Result<(), Cause> {
        match self.fault {
            Some(Fault::AnswerBeforeSync) => Ok(()),
            _ => self.log.sync(),
        }
    }

    fn syncing(&self) -> DiskSync {
        DiskSync {
            journal: self.log.syncing(),
            fault: self.fault,
        }
    }

    fn prune(&mut self, before: u64) -> Result<(), Cause> {
        match self.fault {
            Some(Fault::PruneTooFar) => self.log.prune((before + TOO_FAR).min(self.log.next())),
            _ => self.log.prune(before),
        }
    }

    fn bytes(&self) -> u64 {
        self.log.bytes()
    }

    fn append_reserved(&mut self, record: &[u8]) -> Result<u64, Cause> {
        self.log.append_reserved(record)
    }

    fn is_full(&self) -> bool {
        self.log.is_full()
    }

    fn was_full(&self) -> bool {
        self.log.was_full()
    }

    fn tombstone(&mut self, position: u64) -> Result<(), Cause> {
        self.log.tombstone(position)
    }

    fn has_tombstone(&self, position: u64) -> bool {
        self.log.has_tombstone(position)
    }

    fn roll_segment(&mut self) -> Result<bool, Cause> {
        self.log.roll_segment()
    }
}
