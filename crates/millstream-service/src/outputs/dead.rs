//! Records that a component could not take, set aside in a journal: each once, however often the service is started.
//!
//! Several services may share the journal. A letter names the service, by the identity of its output journal, the
//! input, by its identity, and the record: its number and its body, because an input that has lost its end may use a
//! number again.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use millstream_journal::{Journal, Writer};
use millstream_wire::{Note, Record};

use crate::error::ServiceError;
use crate::settings::OnError;

/// The letters of one service.
pub(crate) struct DeadLetters {
    journal: Journal,
    writer: Writer,
    /// The identity of the output journal; `None` for a service without output.
    service: Option<u128>,
    /// The letters of this service: the input, the number of the record, and the hash of its body; `None` before the
    /// first letter of this run.
    known: Option<HashSet<(u128, u64, u64)>>,
    hasher: RandomState,
}

impl DeadLetters {
    /// The dead letters of a service, if it has a journal for them.
    pub fn new(on_error: &OnError, service: Option<u128>) -> Result<Option<Self>, ServiceError> {
        let OnError::DeadLetter(journal) = on_error else {
            return Ok(None);
        };
        Ok(Some(Self {
            writer: journal.writer()?,
            journal: journal.clone(),
            service,
            known: None,
            hasher: RandomState::new(),
        }))
    }

    /// Sets a record of an input aside, unless that was done before. A tick that no journal records has the path only.
    #[cold]
    pub fn append_once(
        &mut self,
        (path, identity): (String, Option<u128>),
        sequence: u64,
        error: &str,
        body: &[u8],
    ) -> Result<bool, ServiceError> {
        if let Some(identity) = identity {
            let mut known = match self.known.take() {
                Some(known) => known,
                None => self.read()?,
            };
            let is_new = known.insert((identity, sequence, self.hasher.hash_one(body)));
            self.known = Some(known);
            if !is_new {
                return Ok(false);
            }
        }
        let note = Note::Dead {
            path,
            identity,
            service: self.service,
            sequence,
            error: error.to_owned(),
            body: body.to_owned(),
        };
        self.writer.append(&note.to_bytes()?)?;
        Ok(true)
    }

    fn read(&self) -> Result<HashSet<(u128, u64, u64)>, ServiceError> {
        let mut known = HashSet::new();
        let mut reader = self.journal.reader()?;
        while let Some(record) = reader.next()? {
            if let Ok(Record::Note(note)) = Record::read(record.body)
                && let Ok(Note::Dead {
                    identity: Some(identity),
                    service,
                    sequence,
                    body,
                    ..
                }) = Note::from_bytes(note)
                && service == self.service
            {
                known.insert((identity, sequence, self.hasher.hash_one(body)));
            }
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use millstream_journal::Options;

    use super::*;

    #[test]
    fn a_letter_is_there_once_and_another_record_of_its_number_is_another_letter() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path(), Options::default()).unwrap();
        let on_error = OnError::DeadLetter(journal.clone());
        for _ in 0..2 {
            let mut dead = DeadLetters::new(&on_error, Some(1)).unwrap().unwrap();
            for (sequence, body) in [(7, "lost"), (8, "bad"), (7, "in its place"), (7, "lost")] {
                let input = ("orders".to_owned(), Some(2));
                let body = body.as_bytes();
                dead.append_once(input, sequence, "no", body).unwrap();
            }
        }
        let mut reader = journal.reader().unwrap();
        let mut found = Vec::new();
        while let Some(record) = reader.next().unwrap() {
            if let Ok(Record::Note(note)) = Record::read(record.body)
                && let Ok(Note::Dead { sequence, body, .. }) = Note::from_bytes(note)
            {
                found.push((sequence, String::from_utf8(body).unwrap()));
            }
        }
        let texts: Vec<_> = found.iter().map(|(at, body)| (*at, &**body)).collect();
        assert_eq!(texts, [(7, "lost"), (8, "bad"), (7, "in its place")]);
    }
}
