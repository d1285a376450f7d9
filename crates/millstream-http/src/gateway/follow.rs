//! The calls of a journal as items of a feed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_journal::{Error, Journal, Options, Record, Wait};
use millstream_service::{Calls, Content};
use millstream_wire::{NamedValues, Timestamp};
use serde::Serialize;
use tokio_tungstenite::tungstenite::Utf8Bytes;

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

/// A call, in the form of `millstream journal cat --json`.
#[derive(Serialize)]
struct Item<'a> {
    sequence: u64,
    time: String,
    method: &'a str,
    arguments: NamedValues<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect_of: Option<Origin>,
}

/// The record that made a component make the call.
#[derive(Serialize)]
struct Origin {
    journal: Option<String>,
    sequence: u64,
}

impl Follower {
    /// Follows the journal from its present end on; all of one that does not exist yet.
    pub(super) fn new(path: PathBuf, clients: Arc<Clients>) -> Result<Self, Cause> {
        let journal = match Journal::open(&path, Options::read_only()) {
            Ok(journal) => {
                let next = journal.next()?;
                Some((journal, next))
            }
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        Ok(Follower {
            path,
            journal,
            clients,
        })
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
        let mut calls = Calls::of(&journal);
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
                items.extend(self.item(&mut calls, &record)?);
            }
            self.clients.send(&items);
        }
        Ok(())
    }

    /// The item of a record; `None` for one that is no call.
    fn item(&self, calls: &mut Calls, record: &Record<'_>) -> Result<Option<Utf8Bytes>, Cause> {
        let sequence = record.sequence;
        let content = calls.read(sequence, record.body).map_err(|error| {
            let path = self.path.display();
            format!("{path}: record {sequence}: {error}")
        })?;
        let Content::Call(call, lineage) = content else {
            return Ok(None);
        };
        let effect_of = lineage.map(|lineage| Origin {
            journal: { calls.input(lineage.input, sequence).ok() }.map(|name| name.path.clone()),
            sequence: lineage.sequence,
        });
        let item = Item {
            sequence,
            time: Timestamp(i64::try_from(record.time_ns)?).to_string(),
            method: &call.method,
            arguments: NamedValues(&call.arguments),
            effect_of,
        };
        Ok(Some(serde_json::to_string(&item)?.into()))
    }
}
