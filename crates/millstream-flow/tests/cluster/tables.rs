//! A destination of outboxes that remembers what was written, for the tests that compare it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millstream_flow::Frames;
use millstream_flow::outbox::{DeliveryError, Destination, OutboxIdentity};

/// The records of each outbox, by its identity.
pub type Tables = Arc<Mutex<BTreeMap<String, Vec<(u64, String)>>>>;

/// A destination that remembers its position for each outbox.
pub struct Table {
    tables: Tables,
    outbox: String,
}

impl Table {
    /// The one of an outbox among `tables`.
    pub fn of(tables: &Tables, identity: &OutboxIdentity) -> Self {
        Table {
            tables: Arc::clone(tables),
            outbox: identity.id(),
        }
    }
}

impl Destination for Table {
    fn write(&mut self, batch: &Frames, first: u64, _: u64) -> Result<(), DeliveryError> {
        let rows = batch
            .iter()
            .map(|row| String::from_utf8_lossy(row).into_owned());
        let mut tables = self.tables.lock().unwrap();
        let table = tables.entry(self.outbox.clone()).or_default();
        table.extend((first..).zip(rows));
        Ok(())
    }
    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        let tables = self.tables.lock().unwrap();
        let table = tables.get(&self.outbox);
        Ok(table.and_then(|rows| rows.last()).map(|row| row.0))
    }
}
