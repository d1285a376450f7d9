//! The calls of a journal as items of a feed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_journal::{Error, Journal, Options, Wait};

use super::item::CallItems;
use super::past::PastCalls;
use super::state::State;
use crate::feed::clients::Clients;

/// How long a wait for records lasts before a stop is noticed.
const LOOK: Duration = Duration::from_millis(200);
/// How many items are sent to the clients at once.
const ITEMS_MAX: usize = 256;

/// A journal whose calls are sent to the clients of a feed.
pub(super) struct Follower {
    path: PathBuf,
    /// The journal and its first record that is sent; `None` while there is no journal.
    journal: Option<(Journal, u64)>,
    clients: Arc<Clients>,
}

impl Follower {
    /// Follows the journal from its present end on; all of one that does not exist yet. Clients that resume read what
    /// is before.
    pub(super) fn new(path: PathBuf, clients: Clients) -> Result<Self, Cause> {
        let journal = match Journal::open(&path, Options::read_only()) {
            Ok(journal) => {
                let next = journal.next()?;
                Some((journal, next))
            }
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let next = journal.as_ref().map_or(0, |(_, next)| *next);
        let past = PastCalls::new(path.clone());
        Ok(Follower {
            path,
            journal,
            clients: Arc::new(clients.with_history(Box::new(past), next)),
        })
    }

    /// The clients of the feed.
    pub(super) fn clients(&self) -> &Arc<Clients> {
        &self.clients
    }

    /// Sends calls until the gateway is stopped.
    pub(super) fn run(mut self, state: &State) -> Result<(), Cause> {
        let (journal, first) = loop {
            if let Some(found) = self.journal.take() {
                break found;
            }
            if state.is_stopped() {
                return Ok(());
            }
            match Journal::open(&self.path, Options::read_only()) {
                Ok(journal) => {
                    let first = journal.first()?;
                    self.journal = Some((journal, first));
                }
                Err(Error::NotFound { .. }) => state.wait_stopped(LOOK),
                Err(error) => return Err(error.into()),
            }
        };
        let mut calls = CallItems::of(&journal);
        let mut reader = journal.reader()?;
        reader.seek(first)?;
        while !state.is_stopped() {
            if !reader.wait(Wait::Block, Some(LOOK))? {
                continue;
            }
            let mut items = Vec::new();
            while items.len() < ITEMS_MAX
                && let Some(record) = reader.next()?
            {
                items.extend(calls.item(&record)?);
            }
            self.clients.send(&items, reader.position());
        }
        Ok(())
    }
}
