//! What a start does when the component makes other calls than are recorded.

use millstream_journal::Journal;

use crate::error::ServiceError;
use crate::settings::{OnDifference, Settings};

/// The first call for an input that differs from the recorded ones.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The number of the recorded call, and its text.
    pub recorded: Option<(u64, String)>,
    /// The call that the component makes.
    pub made: Option<String>,
    /// Whether all effects of the input are recorded.
    pub is_finished: bool,
}

/// What becomes of the calls for an unfinished input, from the first one on that differs. The recorded ones stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// They are recorded after them.
    Recorded,
    /// Each recorded one stands for one of them; those that are left are recorded.
    Counted,
    /// They are lost.
    Lost,
}

/// The differences of a start.
pub(crate) struct Differences {
    output: String,
    policy: OnDifference,
    accepted_max: u64,
    count: u64,
    first: Option<String>,
}

impl Differences {
    pub fn new(output: &Journal, settings: &Settings) -> Self {
        Self {
            output: output.path().display().to_string(),
            policy: settings.on_difference,
            accepted_max: settings.accept_differences,
            count: 0,
            first: None,
        }
    }

    /// Counts a difference at the record `sequence` of an input.
    ///
    /// # Errors
    /// It is not accepted.
    #[cold]
    pub fn add(
        &mut self,
        journal: &str,
        sequence: u64,
        difference: &Difference,
    ) -> Result<(), ServiceError> {
        self.count += 1;
        let error = ServiceError::Differs {
            journal: journal.to_owned(),
            sequence,
            output: self.output.clone(),
            recorded: difference.recorded_text(),
            made: difference.made_text(),
        };
        if self.policy == OnDifference::Fail && self.count > self.accepted_max {
            return Err(error);
        }
        self.first
            .get_or_insert_with(|| format!("{journal}, record {sequence}: {difference}"));
        Ok(())
    }

    /// What becomes of the other calls of an unfinished input after a difference now.
    pub fn rest(&self) -> Rest {
        match self.policy {
            OnDifference::Fail if self.count < self.accepted_max => Rest::Recorded,
            OnDifference::Fail => Rest::Lost,
            OnDifference::Warn | OnDifference::Recorded => Rest::Counted,
        }
    }

    /// The differences that were accepted, as a sentence.
    pub fn warning(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!(
            "{}: the component makes other calls for {} input(s) than are recorded, and the recorded ones stay. The first: {first}",
            self.output, self.count
        ))
    }
}

impl Difference {
    fn recorded_text(&self) -> String {
        match &self.recorded {
            Some((sequence, text)) => format!("record {sequence} is {text}"),
            None => "no call is recorded".to_owned(),
        }
    }

    fn made_text(&self) -> String {
        self.made.clone().unwrap_or_else(|| "no call".to_owned())
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}, the component makes {}",
            self.recorded_text(),
            self.made_text()
        )
    }
}
