//! The progress of a service: which outputs are recorded already, and what happens to an input that cannot be taken.

use std::sync::Arc;

use millstream_journal::{Journal, chain};
use millstream_wire::{CallError, Cause, InputName, Lineage};

use crate::error::ServiceError;
use crate::inputs::sampler::Sampler;
use crate::outputs::current::Current;
use crate::outputs::dead::DeadLetters;
use crate::outputs::difference::Differences;
use crate::outputs::earlier::{Earlier, Effects};
use crate::panics::Panicked;
use crate::settings::{OnError, Report};

/// By how much a record may be older than the one before it, so that the component sees the same time still.
const DISORDER_NS: i64 = 1_000_000_000;

pub(crate) struct Progress {
    pub current: Arc<Current>,
    /// Set while the component is called with inputs that it was called with before.
    again: Option<Again>,
    /// The last input with outputs, until the component has reached it again; not all of its effects may be recorded.
    pub last: Option<Lineage>,
    /// Whether the inputs now are before an announcement, so that all of their effects are recorded.
    pub is_finished: bool,
    pub report: Report,
    on_error: OnError,
    dead: Option<DeadLetters>,
    time_ns: i64,
    /// Measures when inputs are taken, where nothing else records it.
    pub sampler: Option<Sampler>,
}

/// How the component is called again.
struct Again {
    differences: Differences,
    effects: Effects,
    asked: Option<StopCheck>,
}

/// Whether a stop was requested.
pub(crate) type StopCheck = Box<dyn Fn() -> bool + Send>;

impl Progress {
    pub fn new(current: Arc<Current>, on_error: OnError, dead: Option<DeadLetters>) -> Self {
        Self {
            current,
            again: None,
            last: None,
            is_finished: false,
            report: Report::default(),
            on_error,
            dead,
            time_ns: 0,
            sampler: None,
        }
    }

    /// The time that the component has seen last.
    pub fn time_ns(&self) -> i64 {
        self.time_ns
    }

    /// The component was restored to its state at this time.
    pub fn go_on_at(&mut self, time_ns: i64) {
        self.time_ns = time_ns;
    }

    /// The component has seen this time in an earlier run, and is not called again with the input of it.
    pub fn has_seen(&mut self, time_ns: i64) {
        self.time_ns = self.time_ns.max(time_ns);
    }

    /// The component is called with earlier inputs from now on, and makes calls that are recorded.
    pub fn begin_again(
        &mut self,
        earlier: Earlier,
        differences: Differences,
        asked: Option<StopCheck>,
    ) {
        *self.current.earlier() = Some(earlier);
        self.again = Some(Again {
            differences,
            effects: Effects::Missing,
            asked,
        });
    }

    /// The component has its state again. Returns what differed, if it was accepted.
    pub fn end_again(&mut self) -> Option<String> {
        *self.current.earlier() = None;
        let again = self.again.take();
        again.and_then(|again| again.differences.warning())
    }

    /// The component is not called again with records of an input before this one.
    pub fn leave(&mut self, next: Lineage) {
        if let Some(earlier) = &mut *self.current.earlier() {
            earlier.leave(next);
        }
    }

    /// As [`leave`](Self::leave) for an input that the service no longer has.
    pub fn leave_input(&mut self, identity: u128, next: u64) {
        if let Some(earlier) = &mut *self.current.earlier() {
            earlier.leave_input(identity, next);
        }
    }

    /// The component is about to be called.
    #[inline]
    pub fn begin(&mut self, lineage: Lineage, time_ns: u64) {
        let at_ns = i64::try_from(time_ns).unwrap_or(i64::MAX);
        // Small differences are those of the order; after a larger one, the clock that wrote the earlier records was
        // ahead.
        if at_ns > self.time_ns || self.time_ns - at_ns > DISORDER_NS {
            self.time_ns = at_ns;
        }
        if self.again.is_some() {
            return self.call_again(lineage);
        }
        self.current.begin(lineage, self.time_ns);
        if let Some(sampler) = &mut self.sampler {
            self.current.set_take(sampler.take(time_ns));
        }
    }

    /// The component is about to be called, with an input that it may have been called with before.
    #[cold]
    fn call_again(&mut self, lineage: Lineage) {
        let effects = match self.last {
            _ if self.is_finished => Effects::Finished,
            Some(last) if last == lineage => {
                self.last = None;
                Effects::Unfinished
            }
            Some(_) => Effects::Finished,
            None => Effects::Missing,
        };
        if let Some(again) = &mut self.again {
            again.effects = effects;
            if let Some(earlier) = &mut *self.current.earlier() {
                earlier.begin(lineage, effects, again.differences.rest());
            }
        }
        self.current.begin_again(lineage, self.time_ns);
    }

    /// The component has returned.
    #[inline]
    pub fn end(&mut self, journal: &str, sequence: u64, body: &[u8]) -> Result<(), ServiceError> {
        self.current.end();
        self.report.calls += 1;
        if self.again.is_some() {
            self.returned_again(journal, sequence, body)?;
        }
        match self.current.failure() {
            None => Ok(()),
            Some(reason) => Err(ServiceError::Output {
                journal: journal.to_owned(),
                sequence,
                reason,
            }),
        }
    }

    /// The component has returned, and its calls are compared with the recorded ones.
    #[cold]
    fn returned_again(
        &mut self,
        journal: &str,
        sequence: u64,
        body: &[u8],
    ) -> Result<(), ServiceError> {
        let ended = self
            .current
            .earlier()
            .as_mut()
            .map(Earlier::end)
            .transpose()?;
        let Some(again) = &mut self.again else {
            return Ok(());
        };
        if again.asked.as_ref().is_some_and(|asked| asked()) {
            return Err(ServiceError::Stopped);
        }
        let Some(difference) = ended.flatten() else {
            return Ok(());
        };
        match again.differences.add(journal, sequence, &difference) {
            // The letter has both calls, and the service continues.
            Err(error) if !difference.is_finished && self.dead.is_some() => {
                self.set_aside(journal, sequence, body, &chain(&error).to_string())
            }
            added => added,
        }
    }

    /// Checks that the component has not published while it was not called.
    pub fn check_silence(&self, output: Option<&Journal>) -> Result<(), ServiceError> {
        match self.current.failure() {
            None => Ok(()),
            Some(reason) => Err(ServiceError::OutsideCall {
                output: output.map_or_else(String::new, |it| it.path().display().to_string()),
                reason,
            }),
        }
    }

    /// The component could not take the record.
    #[cold]
    pub fn failed(
        &mut self,
        journal: &str,
        sequence: u64,
        body: &[u8],
        cause: Cause,
    ) -> Result<(), ServiceError> {
        let ended = self.end(journal, sequence, body);
        let ends = matches!(self.on_error, OnError::Fail)
            || CallError::is_interruption(&cause)
            || cause.is::<Panicked>();
        if ends && self.current.failure().is_none() {
            // It says more than the calls that are missing because of it.
            return Err(ServiceError::Input {
                journal: journal.to_owned(),
                sequence,
                cause,
            });
        }
        // What failed because it could not publish is no fault of the record, and is not skipped.
        ended?;
        match self.on_error {
            OnError::DeadLetter(_) => {
                self.set_aside(journal, sequence, body, &chain(&*cause).to_string())?;
            }
            OnError::Skip => self.report.skipped += 1,
            OnError::Fail => {}
        }
        Ok(())
    }

    /// Makes a record a dead letter, if there are any and it is none yet.
    fn set_aside(
        &mut self,
        journal: &str,
        sequence: u64,
        body: &[u8],
        error: &str,
    ) -> Result<(), ServiceError> {
        let Some(dead) = &mut self.dead else {
            return Ok(());
        };
        let again = self.again.as_ref();
        // That of a finished input is there.
        if again.is_some_and(|again| again.effects == Effects::Finished) {
            return Ok(());
        }
        let number = self.current.lineage().map_or(0, |lineage| lineage.input);
        let input = match self.current.input_name(number)? {
            Some(InputName { path, identity }) => (path, Some(identity)),
            None => (journal.to_owned(), None),
        };
        self.report.dead_letters += u64::from(dead.append_once(input, sequence, error, body)?);
        Ok(())
    }
}
