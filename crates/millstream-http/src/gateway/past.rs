//! The history of a feed: the records of its journal.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hyper::StatusCode;
use millstream_flow::error::{Cause, chain};
use millstream_journal::{Bookmark, Error, Journal, Options, Reader};

use super::id::{BEGIN, Resume, id, read_id};
use super::item::CallItems;
use crate::feed::history::{History, Missed};
use crate::feed::item::Item;
use crate::lock;
use crate::refusal::Refusal;

/// How many bytes of items a client is sent at once; the last item may exceed it.
const BYTES_MAX: usize = 64 << 10;

/// The records of a journal, which may not exist yet.
#[derive(Clone)]
pub(super) struct PastCalls(Arc<Past>);

struct Past {
    path: PathBuf,
    /// The journal and its lineage, once it has a record.
    known: Mutex<Option<(Journal, u128)>>,
}

/// The calls that a client missed.
struct MissedCalls {
    past: PastCalls,
    /// The number of the next record.
    next: u64,
    opened: Option<(Reader, CallItems)>,
}

impl PastCalls {
    pub(super) fn new(path: PathBuf) -> Self {
        let known = Mutex::default();
        PastCalls(Arc::new(Past { path, known }))
    }

    /// The journal and its lineage, if it has a record.
    fn journal(&self) -> Result<Option<(Journal, u128)>, Error> {
        let mut known = lock(&self.0.known);
        if known.is_none() {
            let journal = match Journal::open(&self.0.path, Options::read_only()) {
                Err(Error::NotFound { .. }) => return Ok(None),
                journal => journal?,
            };
            if journal.next()? > 0 {
                let lineage = journal.lineage()?;
                *known = Some((journal, lineage));
            }
        }
        Ok(known.clone())
    }

    /// Refuses a client of which not all records are there that it misses.
    fn check(&self, text: &str, wanted: &Resume) -> Result<(), Refusal> {
        let gone = |line: String| Err(Refusal::new(StatusCode::GONE, line));
        let (journal, first, next) = match self.journal().map_err(failed)? {
            None => (None, 0, 0),
            Some((_, lineage)) if wanted.lineage.is_some_and(|wanted| wanted != lineage) => {
                return gone(format!("the id {text} is of another journal"));
            }
            Some((journal, _)) => {
                let first = journal.first().map_err(failed)?;
                let next = journal.next().map_err(failed)?;
                (Some(journal), first, next)
            }
        };
        let wanted = wanted.at;
        if wanted.next < first {
            return gone(format!(
                "the records after the id {text} were pruned; the oldest is {first}"
            ));
        }
        if wanted.next > next {
            return gone(format!(
                "the id {text} is after the end of the journal: its next record is {next}"
            ));
        }
        match journal.map(|journal| journal.confirm(wanted)) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(Error::Lost { .. })) => gone(format!(
                "the id {text} is of a record that is lost: the journal has lost its end, and another record has this number; load the state \
                 anew, and connect without an id"
            )),
            Some(Err(error)) => Err(failed(error)),
        }
    }
}

impl History for PastCalls {
    fn id(&self, next: u64) -> Result<String, Refusal> {
        let known = self.journal().map_err(failed)?;
        let Some((journal, lineage)) = known else {
            return Ok(BEGIN.to_owned());
        };
        match journal.bookmark(next) {
            Ok(at) => Ok(id(lineage, at)),
            Err(Error::Pruned { .. }) => {
                let checksum = None;
                Ok(id(lineage, Bookmark { next, checksum }))
            }
            Err(error) => Err(failed(error)),
        }
    }

    fn after(&self, text: &str) -> Result<Box<dyn Missed>, Refusal> {
        let Some(wanted) = read_id(text) else {
            let line = format!("{text:?} is no id of an event of this feed");
            return Err(Refusal::new(StatusCode::BAD_REQUEST, line));
        };
        self.check(text, &wanted)?;
        Ok(Box::new(MissedCalls {
            past: self.clone(),
            next: wanted.at.next,
            opened: None,
        }))
    }
}

impl Missed for MissedCalls {
    fn next(&self) -> u64 {
        self.next
    }

    fn read(&mut self, before: u64) -> Result<Vec<Item>, Cause> {
        let (reader, calls) = match &mut self.opened {
            Some(opened) => opened,
            opened => {
                let (journal, _) = self.past.journal()?.ok_or("the journal has no record")?;
                let mut reader = journal.reader()?;
                reader.seek(self.next)?;
                opened.insert((reader, CallItems::of(&journal)))
            }
        };
        let mut items = Vec::new();
        let mut bytes = 0;
        while self.next < before && bytes < BYTES_MAX {
            let Some(record) = reader.next()? else {
                return Err(format!("the record {} is not there", self.next).into());
            };
            self.next = record.sequence + 1;
            if let Some(item) = calls.item(&record)? {
                bytes += item.bytes();
                items.push(item);
            }
        }
        Ok(items)
    }
}

fn failed(error: Error) -> Refusal {
    let line = format!("the feed cannot be read: {}", chain(&error));
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, line)
}
