//! The queries of a runner: the component answers them between two inputs.

use std::time::Duration;

use super::state::Runner;
use crate::error::ServiceError;
use crate::queries::{Answer, Asked};

/// The longest wait of a component with queries before it looks for one.
pub(super) const ASK_CHECK: Duration = Duration::from_millis(5);
/// How many questions are answered between two inputs.
const QUESTIONS: usize = 16;

impl<C> Runner<C> {
    /// Listens for questions, if the component has queries and runs.
    pub(super) fn listen(&mut self, queries: Vec<(String, Answer<C>)>) -> Result<(), ServiceError> {
        if queries.is_empty() || self.replay.is_some() {
            return Ok(());
        }
        let output = self.output.as_ref().ok_or(ServiceError::NoOutput)?;
        let path = output.journal.path();
        let asked = Asked::start(&path, queries).map_err(|source| ServiceError::NoSocket {
            path: format!("{}.queries", path.display()),
            source,
        })?;
        self.questions = Some(asked);
        Ok(())
    }

    /// Answers questions, if there are any.
    #[inline]
    pub(super) fn answer(&mut self) {
        if let Some(asked) = &self.questions
            && asked.has_questions()
        {
            self.answer_some();
        }
    }

    #[cold]
    fn answer_some(&mut self) {
        let Some(asked) = &mut self.questions else {
            return;
        };
        for _ in 0..QUESTIONS {
            if !asked.has_questions() {
                return;
            }
            let component = &mut self.component;
            let current = &self.progress.current;
            current.asked(|| asked.answer(component));
        }
    }
}
