//! A log kept in `fjall`, a key-value store, to compare with.

use std::path::Path;
use std::time::SystemTime;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use millstream_journal::clock::monotonic_ns;

use super::figures::Fault;
use super::peer::{Peer, Work};

const BATCH: u64 = 1_000;

/// A tree of sequence numbers, each with its time and body, the usual form of a log in a key-value store.
pub(super) struct Fjall;

impl Fjall {
    fn insert(keyspace: &Keyspace, sequence: u64) -> Result<(), Fault> {
        keyspace.insert(sequence.to_be_bytes(), value()?)?;
        Ok(())
    }

    fn batches(database: &Database, keyspace: &Keyspace, count: u64) -> Result<(), Fault> {
        for first in (0..count).step_by(BATCH as usize) {
            let mut batch = database.batch();
            let value = value()?;
            for sequence in first..first + BATCH {
                batch.insert(keyspace, sequence.to_be_bytes(), value);
            }
            batch.commit()?;
        }
        Ok(())
    }
}

/// The time, and a body of 64 bytes.
fn value() -> Result<[u8; 72], Fault> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the time of a record, as a journal has it"
    )]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let mut value = [b'x'; 72];
    value[..8].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
    Ok(value)
}

impl Peer for Fjall {
    fn name(&self) -> &str {
        "fjall 3"
    }

    fn measure(&self, work: Work, folder: &Path) -> Result<f64, Fault> {
        let database = Database::builder(folder).open()?;
        let keyspace = database.keyspace("log", KeyspaceCreateOptions::default)?;
        if work == Work::Read {
            Self::batches(&database, &keyspace, work.count())?;
        }
        let start = monotonic_ns();
        match work {
            Work::Append => {
                for sequence in 0..work.count() {
                    Self::insert(&keyspace, sequence)?;
                }
            }
            Work::Batches => Self::batches(&database, &keyspace, work.count())?,
            Work::Durable => {
                for sequence in 0..work.count() {
                    Self::insert(&keyspace, sequence)?;
                    database.persist(PersistMode::SyncData)?;
                }
            }
            Work::Read => {
                let mut seen = 0;
                for item in keyspace.iter() {
                    let (_, value) = item.into_inner()?;
                    seen += u64::from(value.len() == 72);
                }
                if seen != work.count() {
                    return Err("records are missing".into());
                }
            }
        }
        Ok(work.count() as f64 * 1e9 / (monotonic_ns() - start) as f64)
    }
}
