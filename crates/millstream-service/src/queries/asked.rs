//! A component that can be asked: its queries, the questions that wait, and the socket.

use std::io;
use std::path::Path;

use super::listen::Listening;
use super::questions::{Answer, Questions};

/// The questions to a component, and its answers.
pub(crate) struct Asked<C> {
    queries: Vec<(String, Answer<C>)>,
    questions: Questions,
    /// Ends with the service.
    _listening: Listening,
}

impl<C> Asked<C> {
    /// Listens for questions to the service that writes to `output`.
    pub fn start(output: &Path, queries: Vec<(String, Answer<C>)>) -> io::Result<Self> {
        let (listening, questions) = Listening::start(output)?;
        Ok(Self {
            queries,
            questions,
            _listening: listening,
        })
    }

    /// Whether there is a question; cheap.
    #[inline]
    pub fn has_questions(&self) -> bool {
        self.questions.are_there()
    }

    /// Answers the next question.
    pub fn answer(&mut self, component: &mut C) {
        self.questions.answer(component, &mut self.queries);
    }
}
