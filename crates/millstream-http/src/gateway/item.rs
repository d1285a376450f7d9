//! A call of a journal as an item of a feed.

use millstream_flow::error::{Cause, context};
use millstream_journal::{Journal, Record};
use millstream_service::{Calls, Content};
use millstream_wire::{NamedValues, Timestamp};
use serde::Serialize;

use super::id::id;
use crate::feed::item::Item;

/// Reads the records of a journal that has one as items.
pub(super) struct CallItems {
    journal: Journal,
    calls: Calls,
    /// Known with the first item.
    lineage: Option<u128>,
}

/// A call, in the form of `millstream journal cat --json`.
#[derive(Serialize)]
struct ItemText<'a> {
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

impl CallItems {
    pub(super) fn of(journal: &Journal) -> Self {
        CallItems {
            journal: journal.clone(),
            calls: Calls::of(journal),
            lineage: None,
        }
    }

    /// The item of a record; `None` for one that is no call.
    pub(super) fn item(&mut self, record: &Record<'_>) -> Result<Option<Item>, Cause> {
        let sequence = record.sequence;
        let content = self.calls.read(sequence, record.body).map_err(|error| {
            let path = self.journal.path();
            context(format_args!("{}: record {sequence}", path.display()), error)
        })?;
        let Content::Call(call, lineage) = content else {
            return Ok(None);
        };
        let effect_of = lineage.map(|lineage| Origin {
            journal: { self.calls.input(lineage.input, sequence).ok() }
                .map(|name| name.path.clone()),
            sequence: lineage.sequence,
        });
        let text = ItemText {
            sequence,
            time: Timestamp(i64::try_from(record.time_ns)?).to_string(),
            method: &call.method,
            arguments: NamedValues(&call.arguments),
            effect_of,
        };
        let text = serde_json::to_string(&text)?.into();
        let lineage = match self.lineage {
            Some(lineage) => lineage,
            None => *self.lineage.insert(self.journal.lineage()?),
        };
        let id = id(lineage, record.bookmark()).into();
        Ok(Some(Item {
            text,
            id,
            number: sequence,
        }))
    }
}
