//! Shared parts of the tests: an order desk with limits, and folders of journals.

use millstream_journal::{Journal, Options};
use millstream_service::{Clock, OnError, Runner, Service, ServiceError, Settings, publisher};
use millstream_wire::{Call, Catalog, Cause, Lineage};

/// How the state of a service comes back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rebuild {
    Inputs,
    Snapshot,
    Outputs,
    Nothing,
}

impl Rebuild {
    pub const ALL: [Self; 4] = [Self::Inputs, Self::Snapshot, Self::Outputs, Self::Nothing];
}

#[derive(Debug, millstream_wire::Wire)]
pub struct Order<'a> {
    pub id: u64,
    pub symbol: &'a str,
    pub quantity: u32,
}

#[millstream_wire::interface]
pub trait Orders {
    fn place(&mut self, order: &Order<'_>) -> Result<(), Cause>;
}

#[millstream_wire::interface]
pub trait Limits {
    fn limit(&mut self, quantity: u64);
}

#[millstream_wire::interface]
pub trait Replies {
    fn accepted(&mut self, id: u64, total: u64);
    fn rejected(&mut self, id: u64, reason: &str, at: i64);
    fn summary(&mut self, accepted: u64, at: i64);
}

/// Accepts orders up to a limit. Every third accepted order gets two replies, every seventh order none.
pub struct Desk<R> {
    pub replies: R,
    pub clock: Clock,
    pub limit: u64,
    pub total: u64,
    pub accepted: u64,
}

impl<R> Desk<R> {
    pub fn new(replies: R, clock: Clock) -> Self {
        Desk {
            replies,
            clock,
            limit: 10_000,
            total: 0,
            accepted: 0,
        }
    }
}

impl<R: Replies> Orders for Desk<R> {
    fn place(&mut self, order: &Order<'_>) -> Result<(), Cause> {
        if order.symbol.is_empty() {
            return Err("an order without a symbol".into());
        }
        let total = self.total + u64::from(order.quantity);
        if order.id % 7 == 6 {
            self.total = total;
        } else if total > self.limit {
            self.replies
                .rejected(order.id, "limit", self.clock.now_ns());
        } else {
            self.total = total;
            self.accepted += 1;
            self.replies.accepted(order.id, total);
            if self.accepted.is_multiple_of(3) {
                self.replies.summary(self.accepted, self.clock.now_ns());
            }
        }
        Ok(())
    }
}

impl<R> Limits for Desk<R> {
    fn limit(&mut self, quantity: u64) {
        self.limit = quantity;
    }
}

/// Journals in a folder that goes away.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    /// Small segments, so that the tests roll them.
    pub fn journal(&self, name: &str) -> Journal {
        let options = Options::default().with_segment_bytes(1 << 16);
        Journal::open(self.path(name), options).unwrap()
    }

    pub fn orders(&self, ids: std::ops::Range<u64>) {
        let mut orders = publisher::<dyn Orders>(&self.journal("orders")).unwrap();
        for id in ids {
            let order = Order {
                id,
                symbol: "VOD.L",
                quantity: 100,
            };
            orders.place(&order).unwrap();
        }
    }

    /// A desk that is fed by `orders` and writes `output`.
    pub fn start(
        &self,
        output: &str,
        settings: Settings,
    ) -> Result<Runner<impl Orders>, ServiceError> {
        let service = Service::new(&self.journal(output))?;
        let replies = service.publisher::<dyn Replies>().unwrap();
        let desk = Desk::new(replies, service.clock());
        let setup = service
            .component(desk)
            .input::<dyn Orders>(&self.journal("orders"))?;
        setup.start(settings)
    }
}

pub fn on_error(on_error: OnError) -> Settings {
    Settings {
        on_error,
        ..Settings::default()
    }
}

/// All calls of a journal and what they are effects of.
pub fn calls(journal: &Journal) -> Vec<(Option<Lineage>, Call)> {
    let mut catalog = Catalog::default();
    let mut reader = journal.reader().unwrap();
    let mut calls = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        calls.extend(catalog.read(record.body).unwrap());
    }
    calls
}
