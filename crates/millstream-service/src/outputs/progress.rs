//! The progress of a service: which outputs are recorded already, and what happens to an input that cannot be taken.

use std::sync::Arc;

use millstream_wire::{CallError, Cause, InputName, Lineage};

use crate::error::ServiceError;
use crate::inputs::sampler::Sampler;
use crate::outputs::current::Current;
use crate::outputs::dead::DeadLetters;
use crate::recorded::resume::Resume;
use crate::settings::{OnError, Report};

pub(crate) struct Progress {
    pub current: Arc<Current>,
    /// The end of the outputs before the restart, until the component has reached it again.
    pub resume: Option<Resume>,
    pub report: Report,
    on_error: OnError,
    dead: Option<DeadLetters>,
    time_ns: i64,
    /// Measures when inputs are taken, where nothing else records it.
    pub sampler: Option<Sampler>,
}

impl Progress {
    pub fn new(
        current: Arc<Current>,
        resume: Option<Resume>,
        on_error: OnError,
        dead: Option<DeadLetters>,
    ) -> Self {
        Self {
            current,
            resume,
            report: Report::default(),
            on_error,
            dead,
            time_ns: 0,
            sampler: None,
        }
    }

    /// The latest time that the component has seen.
    pub fn time_ns(&self) -> i64 {
        self.time_ns
    }

    /// The component was restored to its state at this time.
    pub fn go_on_at(&mut self, time_ns: i64) {
        self.time_ns = time_ns;
    }

    /// The component is about to be called.
    #[inline]
    pub fn begin(&mut self, lineage: Lineage, time_ns: u64) {
        self.time_ns = self.time_ns.max(i64::try_from(time_ns).unwrap_or(i64::MAX));
        let held_back = match &self.resume {
            None => 0,
            Some(resume) if resume.lineage != lineage => u64::MAX,
            Some(resume) => {
                let outputs = resume.outputs;
                self.resume = None;
                outputs
            }
        };
        self.current.begin(lineage, self.time_ns, held_back);
        if let Some(sampler) = &mut self.sampler {
            self.current.set_take(sampler.take(time_ns));
        }
    }

    /// The component has returned.
    #[inline]
    pub fn end(&mut self, journal: &str, sequence: u64) -> Result<(), ServiceError> {
        self.report.calls += 1;
        if self.resume.is_some() {
            return Ok(());
        }
        let missing = self.current.held_back();
        if missing > 0 {
            return Err(ServiceError::Diverged {
                journal: journal.to_owned(),
                sequence,
                missing,
            });
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

    /// The component could not take the record.
    #[cold]
    pub fn failed(
        &mut self,
        journal: &str,
        sequence: u64,
        body: &[u8],
        cause: Cause,
    ) -> Result<(), ServiceError> {
        // What failed because it could not publish is no fault of the record, and is not skipped.
        self.end(journal, sequence)?;
        match (&self.on_error, &mut self.dead) {
            _ if CallError::is_interruption(&cause) => {
                return Err(ServiceError::Input {
                    journal: journal.to_owned(),
                    sequence,
                    cause,
                });
            }
            (OnError::Skip, _) => self.report.skipped += 1,
            (OnError::DeadLetter(_), Some(dead)) => {
                self.report.dead_letters += 1;
                // While the outputs are held back, this one is there already too.
                if self.resume.is_none() {
                    let number = self.current.lineage().map_or(0, |lineage| lineage.input);
                    let input = match self.current.input_name(number)? {
                        Some(InputName { path, identity }) => (path, Some(identity)),
                        None => (journal.to_owned(), None),
                    };
                    dead.append_once(input, sequence, &cause.to_string(), body)?;
                }
            }
            _ => {
                return Err(ServiceError::Input {
                    journal: journal.to_owned(),
                    sequence,
                    cause,
                });
            }
        }
        Ok(())
    }
}
