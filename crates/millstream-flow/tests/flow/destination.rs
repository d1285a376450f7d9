//! A model of a destination, for the tests of the outbox: a table in memory that fails where a test asks for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use millstream_flow::metrics::Report;
use millstream_flow::outbox::{
    Backoff, Connector, DeliveryError, Destination, Outbox, OutboxIdentity,
};
use millstream_flow::{Flow, FlowError, Frames, Options, Recovery, codec, testing};

use crate::support::{WATCHDOG, finish};

/// A point at which the destination may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// The n-th attempt to connect, from 1.
    Connect(u64),
    /// Before the n-th write takes effect.
    Before(u64),
    /// After the n-th write has taken effect.
    After(u64),
}

type Fault = Box<dyn FnMut(Point) -> Option<DeliveryError> + Send>;

/// The contents of the destination.
#[derive(Default)]
pub struct Contents {
    /// Each row with the number of its record, in the order of the writes.
    pub rows: Vec<(u64, String)>,
    /// The last record of each outbox.
    pub positions: BTreeMap<u128, u64>,
    pub connects: u64,
    pub writes: u64,
    pub records_max: usize,
    /// Writes wait while this is set.
    closed: bool,
    /// The write that fails, and the record from which all are lost then.
    loses: Option<(u64, u64)>,
    fault: Option<Fault>,
}

/// The model: clones are the same table.
#[derive(Clone)]
pub struct Table {
    contents: Arc<(Mutex<Contents>, Condvar)>,
    remembers: bool,
}

impl Table {
    pub fn new(remembers: bool) -> Self {
        Table {
            contents: Arc::default(),
            remembers,
        }
    }
    pub fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.0.lock().expect("no test panics in it")
    }
    /// Sets where it fails.
    pub fn fails(&self, fault: impl FnMut(Point) -> Option<DeliveryError> + Send + 'static) {
        self.lock().fault = Some(Box::new(fault));
    }
    /// Nothing fails any more.
    pub fn heals(&self) {
        self.lock().fault = None;
    }
    /// The records from number `first` on are lost, and it knows that.
    pub fn loses_from(&self, first: u64) {
        self.lock().lose_from(first);
    }
    /// The n-th write, from 1, fails, and the records from number `first` on are lost.
    pub fn loses_at_write(&self, write: u64, first: u64) {
        self.lock().loses = Some((write, first));
    }
    /// Writes wait from now on, or no longer.
    pub fn close(&self, closed: bool) {
        self.lock().closed = closed;
        self.contents.1.notify_all();
    }
    /// The rows by the number of their record; a number that has two different rows fails the test.
    pub fn by_number(&self) -> BTreeMap<u64, String> {
        let mut all = BTreeMap::new();
        for (number, row) in &self.lock().rows {
            let known = all.entry(*number).or_insert_with(|| row.clone());
            assert_eq!(known, row, "record {number}");
        }
        all
    }
    /// The rows without repetitions, which a destination that remembers must not have; sorted.
    pub fn sorted(&self) -> Vec<String> {
        let all = self.by_number();
        if self.remembers {
            assert_eq!(all.len(), self.lock().rows.len(), "a row is there twice");
        }
        assert!(all.keys().copied().eq(0..all.len() as u64), "{all:?}");
        let mut rows: Vec<String> = all.into_values().collect();
        rows.sort();
        rows
    }
    /// Waits until `done` is true of its contents.
    pub fn wait_until(&self, done: impl Fn(&Contents) -> bool) {
        let waited = self
            .contents
            .1
            .wait_timeout_while(self.lock(), WATCHDOG, |contents| !done(contents));
        assert!(!waited.expect("no test panics in it").1.timed_out());
    }
    /// An outbox that delivers to it, and tries again at once.
    pub fn outbox(&self) -> Outbox {
        Outbox::new(self.clone())
            .backoff(Backoff {
                first: Duration::from_millis(1),
                most: Duration::from_millis(2),
                ..Backoff::default()
            })
            .batch(7)
    }
}

impl Connector for Table {
    fn describe(&self) -> String {
        "table t".to_owned()
    }
    fn remembers(&self) -> bool {
        self.remembers
    }
    fn record_bytes_max(&self) -> Option<usize> {
        Some(2 << 20)
    }
    fn connect(&self, outbox: &OutboxIdentity) -> Result<Box<dyn Destination>, DeliveryError> {
        let mut contents = self.lock();
        contents.connects += 1;
        let connects = contents.connects;
        contents.check(Point::Connect(connects))?;
        self.contents.1.notify_all();
        Ok(Box::new(Connection {
            table: self.clone(),
            outbox: outbox.outbox,
        }))
    }
}

impl Contents {
    fn lose_from(&mut self, first: u64) {
        self.rows.retain(|(number, _)| *number < first);
        let last = self.rows.last().map(|(number, _)| *number);
        self.positions.retain(|_, at| {
            last.is_some_and(|last| {
                *at = last;
                true
            })
        });
    }
    fn check(&mut self, point: Point) -> Result<(), DeliveryError> {
        match self.fault.as_mut().and_then(|fault| fault(point)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

struct Connection {
    table: Table,
    outbox: u128,
}

impl Destination for Connection {
    fn write(&mut self, batch: &Frames, first: u64, last: u64) -> Result<(), DeliveryError> {
        let open = |contents: &mut Contents| contents.closed;
        let waits = self
            .table
            .contents
            .1
            .wait_while(self.table.lock(), open)
            .map_err(|_| DeliveryError::fatal("poisoned"));
        let mut contents = waits?;
        contents.writes += 1;
        let writes = contents.writes;
        if let Some((write, first)) = contents.loses
            && write == writes
        {
            contents.lose_from(first);
            return Err(DeliveryError::retry("it was restarted"));
        }
        contents.check(Point::Before(writes))?;
        assert_eq!(batch.len() as u64, last - first + 1);
        let known = contents.positions.get(&self.outbox).copied();
        if self.table.remembers && known != first.checked_sub(1) {
            return Err(DeliveryError::fatal(format!(
                "another writer has moved the position to {known:?}, and {first} comes next here"
            )));
        }
        let text = |frame: &[u8]| String::from_utf8_lossy(frame).into_owned();
        contents.rows.extend((first..).zip(batch.iter().map(text)));
        contents.records_max = contents.records_max.max(batch.len());
        contents.positions.insert(self.outbox, last);
        self.table.contents.1.notify_all();
        contents.check(Point::After(writes))
    }
    fn position(&mut self) -> Result<Option<u64>, DeliveryError> {
        Ok(self.table.lock().positions.get(&self.outbox).copied())
    }
}

/// A flow that copies the numbers below `count` through `outbox`.
pub fn copy(count: u32, outbox: Outbox) -> Flow {
    let flow = Flow::new("copy");
    flow.source("numbers", testing::items(0..count).batch_size(3))
        .sink("out", codec::encode(outbox, codec::display));
    flow
}

/// The numbers below `count` as rows, sorted.
pub fn numbers(count: u32) -> Vec<String> {
    let mut rows: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    rows.sort();
    rows
}

/// Short epochs in the state directory `state`.
pub fn recovery(state: &Path) -> Recovery {
    Recovery::new(state)
        .epoch(Duration::from_millis(2))
        .sync(false)
}

pub fn options(workers: usize, recovery: Recovery) -> Options {
    let mut options = Options::workers(workers);
    options.recovery = Some(recovery);
    options
}

/// Runs a flow to its end.
pub fn run(flow: &Flow, workers: usize, recovery: Recovery) -> Result<Report, FlowError> {
    finish(flow.start(options(workers, recovery))?)
}
