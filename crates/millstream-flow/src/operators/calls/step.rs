//! Calls as steps of keyed streams and of streams without keys.

use std::fmt::Debug;

use super::calling::Calling;
use crate::batch::Data;
use crate::error::{Cause, Failure};
use crate::key::Key;
use crate::step::{Context, Stateful, Step};

/// The calls of a keyed stream.
pub(super) struct ByKey<K, V, U, F>(pub(super) Calling<K, V, U, F>);

impl<K, V, U, F, Fut, E> Step<Vec<(K, V)>, Vec<(K, U)>> for ByKey<K, V, U, F>
where
    K: Key,
    V: Data + Debug,
    U: Data,
    F: Fn(V) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<U, E>> + Send + 'static,
    E: Into<Cause> + 'static,
{
    fn apply(
        &mut self,
        input: &mut Vec<(K, V)>,
        output: &mut Vec<(K, U)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.0.turn(input.drain(..), output, cx)
    }
    fn keeps_time(&self) -> bool {
        true
    }
    fn drain(&mut self, output: &mut Vec<(K, U)>, cx: &mut Context) -> Result<(), Failure> {
        self.0.wait_all(output, cx)
    }
    fn tick(&mut self, output: &mut Vec<(K, U)>, cx: &mut Context) -> Result<(), Failure> {
        self.0.turn([], output, cx)
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(&mut self.0)
    }
    fn end(&mut self, output: &mut Vec<(K, U)>, cx: &mut Context) -> Result<(), Failure> {
        self.0.wait_all(output, cx)
    }
}

/// The calls of a stream without keys.
pub(super) struct WithoutKeys<T, U, F> {
    calling: Calling<(), T, U, F>,
    answers: Vec<((), U)>,
}

impl<T, U, F> WithoutKeys<T, U, F> {
    pub(super) fn new(calling: Calling<(), T, U, F>) -> Self {
        let answers = Vec::new();
        WithoutKeys { calling, answers }
    }
    fn emit(&mut self, output: &mut Vec<U>) {
        output.extend(self.answers.drain(..).map(|((), answer)| answer));
    }
}

impl<T, U, F, Fut, E> Step<Vec<T>, Vec<U>> for WithoutKeys<T, U, F>
where
    T: Data + Debug,
    U: Data,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<U, E>> + Send + 'static,
    E: Into<Cause> + 'static,
{
    fn apply(
        &mut self,
        input: &mut Vec<T>,
        output: &mut Vec<U>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let items = input.drain(..).map(|item| ((), item));
        self.calling.turn(items, &mut self.answers, cx)?;
        self.emit(output);
        Ok(())
    }
    fn keeps_time(&self) -> bool {
        true
    }
    fn drain(&mut self, output: &mut Vec<U>, cx: &mut Context) -> Result<(), Failure> {
        self.calling.wait_all(&mut self.answers, cx)?;
        self.emit(output);
        Ok(())
    }
    fn tick(&mut self, output: &mut Vec<U>, cx: &mut Context) -> Result<(), Failure> {
        self.calling.turn([], &mut self.answers, cx)?;
        self.emit(output);
        Ok(())
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(&mut self.calling)
    }
    fn end(&mut self, output: &mut Vec<U>, cx: &mut Context) -> Result<(), Failure> {
        self.calling.wait_all(&mut self.answers, cx)?;
        self.emit(output);
        Ok(())
    }
}
