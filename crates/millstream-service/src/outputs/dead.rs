//! Records that a component could not take, set aside in a journal: each once, however often the service is started.
//!
//! Several services may share the journal. A letter names the service, by the identity of its output journal, the input, by its identity,
//! and the record. Letters of earlier versions have the path of the input only.

use std::collections::HashSet;
use std::path::Path;

use millstream_journal::{Journal, Writer};
use millstream_wire::{InputName, Note, Record};

use crate::error::ServiceError;
use crate::inputs::names::same_directory;
use crate::settings::OnError;

/// The letters of one service.
pub(crate) struct DeadLetters {
    journal: Journal,
    writer: Writer,
    /// The identity of the output journal; `None` for a service without output.
    service: Option<u128>,
    /// The contents of the journal before the first letter of this run.
    known: Option<RecordedLetters>,
}

#[derive(Default)]
struct RecordedLetters {
    /// Letters of this service: input and record.
    ours: HashSet<(u128, u64)>,
    /// Letters of earlier versions.
    old: Vec<Letter>,
}

struct Letter {
    path: String,
    sequence: u64,
    error: String,
    body: Vec<u8>,
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
        }))
    }

    /// Sets a record aside, unless that was done before.
    #[cold]
    pub fn append_once(
        &mut self,
        input: InputName,
        sequence: u64,
        error: &str,
        body: &[u8],
    ) -> Result<(), ServiceError> {
        if self.known.is_none() {
            self.known = Some(self.read()?);
        }
        if let Some(known) = &mut self.known {
            let is_new = match input.identity {
                Some(identity) => known.ours.insert((identity, sequence)),
                None => true,
            };
            let is_old = |letter: &Letter| {
                (
                    letter.sequence,
                    letter.error.as_str(),
                    letter.body.as_slice(),
                ) == (sequence, error, body)
                    && is_path_of(&letter.path, &input.path)
            };
            if !is_new || known.old.iter().any(is_old) {
                return Ok(());
            }
        }
        let note = Note::Dead {
            input,
            service: self.service,
            sequence,
            error: error.to_owned(),
            body: body.to_owned(),
        };
        self.writer.append(&note.to_bytes()?)?;
        Ok(())
    }

    fn read(&self) -> Result<RecordedLetters, ServiceError> {
        let mut known = RecordedLetters::default();
        let mut reader = self.journal.reader()?;
        while let Some(record) = reader.next()? {
            let Ok(Record::Note(note)) = Record::read(record.body) else {
                continue;
            };
            let Ok(Note::Dead {
                input,
                service,
                sequence,
                error,
                body,
            }) = Note::from_bytes(note)
            else {
                continue;
            };
            match input.identity {
                Some(identity) if service == self.service => {
                    known.ours.insert((identity, sequence));
                }
                Some(_) => {}
                None => known.old.push(Letter {
                    path: input.path,
                    sequence,
                    error,
                    body,
                }),
            }
        }
        Ok(known)
    }
}

/// Whether a path of an earlier version may mean this input: it names the same directory, or none and ends like it.
fn is_path_of(old: &str, path: &str) -> bool {
    let (old, path) = (Path::new(old), Path::new(path));
    same_directory(old, path) || (!old.exists() && old.file_name() == path.file_name())
}
