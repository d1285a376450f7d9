//! The search for the answer of a call that was recorded before, among the outputs that are there.
//!
//! A service takes the calls of a journal in order, so that the causes of its outputs rise. The search halves the range
//! of segments until one is left, and reads on from there.

use std::cmp::Ordering;

use millstream_flow::error::Cause;
use millstream_journal::Journal;
use millstream_service::Effects;

use super::item::CallItems;

/// What a request receives.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    /// The output as JSON.
    Output(String),
    /// The call caused none.
    Nothing,
    /// The outputs of its time were pruned.
    Pruned,
}

/// What is known of the answer.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// It may come.
    NotYet,
    /// It is there, with the time of the output; an answer that is no output is after all others.
    Answer(u64, Answer),
}

/// A search in one output.
pub(super) struct Search {
    journal: u128,
    cause: u64,
    /// When the call was recorded; `None` if its record was pruned.
    called_ns: Option<u64>,
    effects: Option<Effects>,
    /// Whether no output of the time of the call was pruned.
    is_complete: bool,
    pub(super) found: Found,
}

impl Search {
    /// For the answer of the call that is the record `cause` of a journal.
    pub(super) fn new(journal: u128, cause: u64, called_ns: Option<u64>) -> Self {
        Search {
            journal,
            cause,
            called_ns,
            effects: None,
            is_complete: false,
            found: Found::NotYet,
        }
    }

    /// Whether the answer may come.
    pub(super) fn may_find(&self) -> bool {
        matches!(self.found, Found::NotYet)
    }

    /// Looks at the outputs from the one on that was not looked at; there are none as long as there is no journal.
    pub(super) fn look(&mut self, output: Option<&Journal>) -> Result<(), Cause> {
        let Some(output) = output.filter(|_| self.may_find()) else {
            return Ok(());
        };
        let effects = match &mut self.effects {
            Some(effects) => effects,
            None => {
                self.is_complete = self.has_all(output)?;
                let first = self.near(output)?;
                self.effects.insert(Effects::of(output, first)?)
            }
        };
        while let Some(effect) = effects.next_effect()? {
            if effect.journal != self.journal {
                continue;
            }
            match effect.cause.cmp(&self.cause) {
                Ordering::Less => self.is_complete = true,
                Ordering::Equal => {
                    let (time_ns, answer) =
                        self::output(output, effect.sequence, &mut CallItems::of(output))?;
                    self.found = Found::Answer(time_ns, answer);
                    return Ok(());
                }
                Ordering::Greater if self.is_complete => {
                    self.found = Found::Answer(u64::MAX, Answer::Nothing);
                    return Ok(());
                }
                Ordering::Greater => break,
            }
        }
        if !self.is_complete {
            self.found = Found::Answer(u64::MAX - 1, Answer::Pruned);
        }
        Ok(())
    }

    /// Whether the outputs since the call are there: none was pruned, or the oldest one is older than the call.
    fn has_all(&self, output: &Journal) -> Result<bool, Cause> {
        let first = output.first()?;
        if first == 0 {
            return Ok(true);
        }
        let mut reader = output.reader()?;
        reader.seek(first)?;
        let oldest_ns = reader.peek_time()?;
        Ok(matches!((oldest_ns, self.called_ns), (Some(oldest), Some(called)) if oldest <= called))
    }

    /// A record before the answer, and not far from it.
    fn near(&self, output: &Journal) -> Result<u64, Cause> {
        let mut from = output.first()?;
        let mut to = output.next()?;
        let mut reader = output.reader()?;
        loop {
            reader.seek(from + (to - from) / 2)?;
            // The notes that name the inputs are at the beginning of a segment.
            let middle = reader.segment_start()?;
            if middle <= from {
                return Ok(from);
            }
            if self.is_before(output, middle, to)? {
                from = middle
            } else {
                to = middle
            }
        }
    }

    /// Whether the first output of a call of the journal, from `first` on, is before the answer.
    fn is_before(&self, output: &Journal, first: u64, end: u64) -> Result<bool, Cause> {
        let mut effects = Effects::of(output, first)?;
        while let Some(effect) = effects.next_effect()?
            && effect.sequence < end
        {
            if effect.journal == self.journal {
                return Ok(effect.cause < self.cause);
            }
        }
        Ok(false)
    }
}

/// An output as an answer, with its time.
pub(super) fn output(
    journal: &Journal,
    sequence: u64,
    items: &mut CallItems,
) -> Result<(u64, Answer), Cause> {
    let mut reader = journal.reader()?;
    let record = reader.read(sequence)?;
    let answer = match items.item(&record)? {
        Some(item) => Answer::Output(item.text.to_string()),
        None => Answer::Nothing,
    };
    Ok((record.time_ns, answer))
}
