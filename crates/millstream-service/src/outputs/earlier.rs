//! The outputs of earlier runs: a start compares them with those that the component makes again.
//!
//! Calls are compared by their contents, method and arguments. Where the interface has changed since, a recorded call
//! is read as any reader of the new interface reads it.

use std::sync::Arc;

use millstream_journal::{Journal, Reader, chain};
use millstream_wire::{Cause, Lineage, Record, Schema, Unpacker};

use super::contents::{self, Contents};
use super::difference::{Difference, Rest};
use crate::error::ServiceError;
use crate::inputs::calls::Calls;
use crate::inputs::names::Names;

/// What is known of the effects of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effects {
    /// All of them are recorded: an announcement, or the output of a later input, is after it.
    Finished,
    /// It is the last input with outputs, and more of them may be missing.
    Unfinished,
    /// None of them is recorded.
    Missing,
}

/// Which of the recorded outputs are compared.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Extent {
    /// The first of them.
    pub from: u64,
    /// Whether those of finished inputs are.
    pub finished: bool,
    /// Whether those of an unfinished input are; if not, as many calls are held back as are recorded.
    pub unfinished: bool,
}

/// The recorded outputs, and the position of the component in them.
pub(crate) struct Earlier {
    output: String,
    reader: Reader,
    calls: Calls,
    names: Names,
    /// Where they end.
    end: u64,
    extent: Extent,
    /// Whether calls before the next recorded one have been pruned.
    is_cut: bool,
    /// The numbers of inputs in the records since the last note, and their current ones. They are few.
    numbers: Vec<(u32, u32)>,
    /// The identities of inputs that the service no longer has; their numbers follow those of the others.
    gone: Vec<u128>,
    /// For each number the first record that the component may still be called with.
    reached: Vec<(u32, u64)>,
    /// The cause of the next recorded call, its number and its contents.
    next: Option<Lineage>,
    sequence: u64,
    body: Vec<u8>,
    contents: Contents,
    /// The input that the component is called with, what is known of its effects, and whether they are compared.
    current: Option<Lineage>,
    effects: Effects,
    is_compared: bool,
    rest: Rest,
    difference: Option<Difference>,
    failure: Option<ServiceError>,
}

impl Earlier {
    /// The outputs of a service with these inputs, the schedule among them.
    pub fn new(output: &Journal, names: Names, extent: Extent) -> Result<Self, ServiceError> {
        let first = output.first()?;
        let end = output.next()?;
        let mut reader = output.reader()?;
        reader.seek(extent.from.clamp(first, end))?;
        let mut earlier = Self {
            output: output.path().display().to_string(),
            reader,
            calls: Calls::of(output),
            names,
            end,
            extent,
            is_cut: extent.from < first,
            numbers: Vec::new(),
            gone: Vec::new(),
            reached: Vec::new(),
            next: None,
            sequence: 0,
            body: Vec::new(),
            contents: Contents::default(),
            current: None,
            effects: Effects::Missing,
            is_compared: false,
            rest: Rest::Lost,
            difference: None,
            failure: None,
        };
        earlier.advance()?;
        Ok(earlier)
    }

    /// The component is not called again with records before `next` of an input that the service no longer has.
    pub fn leave_input(&mut self, identity: u128, next: u64) {
        let input = self.number_of_gone(identity);
        self.leave(Lineage {
            input,
            sequence: next,
            checksum: 0,
        });
    }

    /// The component is not called again with records of an input before this one.
    pub fn leave(&mut self, next: Lineage) {
        let Lineage {
            input, sequence, ..
        } = next;
        match self.reached.iter_mut().find(|(known, _)| *known == input) {
            Some((_, reached)) => *reached = sequence.max(*reached),
            None => self.reached.push((input, sequence)),
        }
    }

    /// The component is about to be called with an input.
    pub fn begin(&mut self, lineage: Lineage, effects: Effects, rest: Rest) {
        self.leave(lineage);
        self.rest = rest;
        (self.current, self.effects) = (Some(lineage), effects);
        self.is_compared = match effects {
            Effects::Finished => self.extent.finished,
            Effects::Unfinished => self.extent.unfinished,
            Effects::Missing => false,
        };
        if self.extent.finished || effects == Effects::Unfinished {
            self.note(|earlier| earlier.skip_others(lineage));
        }
        if self.is_cut {
            // Nor is the first input that is left compared: some of its own may be missing.
            self.is_compared = false;
            self.is_cut = self.next != Some(lineage);
        }
    }

    /// Skips the outputs of inputs with which the component is not called again.
    fn skip_others(&mut self, lineage: Lineage) -> Result<(), ServiceError> {
        while let Some(next) = self.next
            && next != lineage
            && self.has_passed(next)
        {
            self.advance()?;
        }
        Ok(())
    }

    /// Whether the component is not called again with this input.
    fn has_passed(&self, lineage: Lineage) -> bool {
        let mut reached = self.reached.iter();
        reached.any(|(input, next)| *input == lineage.input && *next > lineage.sequence)
    }

    /// The component makes a call with these contents. Whether it is held back, as it is recorded or must not be.
    pub fn holds_back(&mut self, body: &[u8], schemas: &[Arc<Schema>]) -> bool {
        let is_next = self.next.is_some() && self.next == self.current;
        let is_finished = match self.effects {
            Effects::Missing => return false,
            Effects::Finished => true,
            Effects::Unfinished => false,
        };
        let is_expected = is_next || is_finished;
        let compares = self.is_compared && self.difference.is_none() && is_expected;
        if compares && !(is_next && self.is_next(body, schemas)) {
            let made = contents::text_of(body, schemas);
            self.differ(Some(made.unwrap_or_else(unreadable)));
        }
        let rest = self.difference.as_ref().map(|_| self.rest);
        match rest {
            _ if is_finished => {}
            Some(Rest::Recorded) => return false,
            Some(Rest::Lost) => return true,
            Some(Rest::Counted) | None => {}
        }
        if is_next {
            self.note(Self::advance);
        }
        is_expected
    }

    /// The component has returned: what differs from the recorded outputs of the input.
    pub fn end(&mut self) -> Result<Option<Difference>, ServiceError> {
        let is_next = self.next.is_some() && self.next == self.current;
        if is_next && self.is_compared && self.difference.is_none() {
            self.differ(None);
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(self.difference.take()),
        }
    }

    /// Notes the first difference at the current input. `made` is the call that the component makes, if it makes one.
    fn differ(&mut self, made: Option<String>) {
        let is_next = self.next.is_some() && self.next == self.current;
        let recorded = is_next.then(|| {
            let text = contents::recorded_text(&self.body, self.sequence, &mut self.calls);
            (self.sequence, text.unwrap_or_else(unreadable))
        });
        self.difference = Some(Difference {
            recorded,
            made,
            is_finished: self.effects == Effects::Finished,
        });
    }

    fn is_next(&mut self, body: &[u8], schemas: &[Arc<Schema>]) -> bool {
        let recorded = &self.body;
        let at = self.sequence;
        let calls = &mut self.calls;
        if body == recorded {
            return true;
        }
        // A recorded call that cannot be read is not the one that is made.
        let are_same = self.contents.are_same(recorded, at, calls, body, schemas);
        are_same.unwrap_or(false)
    }

    /// Moves to the next recorded call that has a cause.
    fn advance(&mut self) -> Result<(), ServiceError> {
        self.next = None;
        while self.reader.position() < self.end
            && let Some(record) = self.reader.next()?
        {
            let sequence = record.sequence;
            match Record::read(record.body) {
                Ok(Record::Call(Some(lineage), ..)) => {
                    self.sequence = sequence;
                    self.body.clear();
                    let mut values = Unpacker::new(record.body);
                    if values.skip().is_ok() {
                        self.body.extend_from_slice(values.rest());
                    }
                    let input = self.number(lineage.input, sequence)?;
                    self.next = Some(Lineage { input, ..lineage });
                    return Ok(());
                }
                Ok(Record::Note(note)) => {
                    self.numbers.clear();
                    let known = self.calls.learn(sequence, note).map(drop);
                    known.map_err(|cause| self.fault(sequence, cause))?;
                }
                Ok(Record::Call(None, ..)) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// The current number of the input that is `number` in the record `sequence`.
    fn number(&mut self, number: u32, sequence: u64) -> Result<u32, ServiceError> {
        if let Some((_, now)) = self.numbers.iter().find(|(known, _)| *known == number) {
            return Ok(*now);
        }
        let name = self.calls.input(number, sequence).cloned();
        let name = name.map_err(|cause| self.fault(sequence, cause))?;
        let now = match self.names.find(&name) {
            Some(now) => now,
            None => self.number_of_gone(name.identity),
        };
        self.numbers.push((number, now));
        Ok(now)
    }

    fn number_of_gone(&mut self, identity: u128) -> u32 {
        let known = self.gone.iter().position(|known| *known == identity);
        let at = known.unwrap_or_else(|| {
            self.gone.push(identity);
            self.gone.len() - 1
        });
        (self.names.len() + at) as u32
    }

    fn fault(&self, sequence: u64, cause: Cause) -> ServiceError {
        ServiceError::Input {
            journal: self.output.clone(),
            sequence,
            cause,
        }
    }

    /// Does something that may fail, while the component is in a call. It fails at the end of the call.
    fn note(&mut self, act: impl FnOnce(&mut Self) -> Result<(), ServiceError>) {
        if let Err(failure) = act(self) {
            self.failure.get_or_insert(failure);
        }
    }
}

fn unreadable(cause: Cause) -> String {
    format!("a call that cannot be read: {}", chain(&*cause))
}
