//! The verbs of a stream that keep no state.
//!
//! Functions are shared by all workers, hence `Fn + Send + Sync`. The verbs that start with
//! `try_` take functions that may fail, and an [`OnError`] that says what becomes of the item.

use std::fmt::Debug;
use std::sync::Arc;

use crate::batch::Data;
use crate::describe::stream::Stream;
use crate::error::{Cause, Failure, FlowError};
use crate::policy::{OnError, Policy};
use crate::step::{Context, Each, Step};

/// Joins a function on batches to a stream.
pub(crate) fn each<T: Data, U: Data, F>(
    stream: &Stream<T>,
    kind: &'static str,
    work: F,
) -> Stream<U>
where
    F: Fn(&mut Vec<T>, &mut Vec<U>) + Send + Sync + 'static,
{
    let work = Arc::new(work);
    stream.step(kind, "", move |_| {
        let work = Arc::clone(&work);
        Ok(Each(
            move |input: &mut Vec<T>, output: &mut Vec<U>, _: &mut Context| {
                work(input, output);
                Ok(())
            },
        ))
    })
}

/// A step whose function may fail on an item.
pub(crate) struct Fallible<F> {
    pub(crate) work: F,
    pub(crate) policy: Policy,
}

impl<I: 'static, O: 'static, F> Step<I, O> for Fallible<F>
where
    F: FnMut(&mut I, &mut O, &mut Policy, &mut Context) -> Result<(), Failure> + 'static,
{
    fn apply(&mut self, input: &mut I, output: &mut O, cx: &mut Context) -> Result<(), Failure> {
        (self.work)(input, output, &mut self.policy, cx)
    }
}

impl<T: Data> Stream<T> {
    /// One item out for each item in.
    pub fn map<U: Data>(&self, f: impl Fn(T) -> U + Send + Sync + 'static) -> Stream<U> {
        each(self, "map", move |input, output| {
            output.extend(input.drain(..).map(&f))
        })
    }

    /// The items for which `f` is true.
    #[must_use]
    pub fn filter(&self, f: impl Fn(&T) -> bool + Send + Sync + 'static) -> Stream<T> {
        each(self, "filter", move |input, output| {
            input.retain(|item| f(item));
            std::mem::swap(input, output);
        })
    }

    /// Any number of items out for each item in.
    pub fn flat_map<U: Data, I: IntoIterator<Item = U>>(
        &self,
        f: impl Fn(T) -> I + Send + Sync + 'static,
    ) -> Stream<U> {
        each(self, "flat_map", move |input, output| {
            output.extend(input.drain(..).flat_map(&f))
        })
    }

    /// At most one item out for each item in.
    pub fn filter_map<U: Data>(
        &self,
        f: impl Fn(T) -> Option<U> + Send + Sync + 'static,
    ) -> Stream<U> {
        each(self, "filter_map", move |input, output| {
            output.extend(input.drain(..).filter_map(&f))
        })
    }

    /// A whole batch at once. How items are grouped into batches is up to the engine.
    pub fn map_batch<U: Data>(
        &self,
        f: impl Fn(Vec<T>) -> Vec<U> + Send + Sync + 'static,
    ) -> Stream<U> {
        each(self, "map_batch", move |input, output| {
            *output = f(std::mem::take(input))
        })
    }

    /// Looks at each item on its way.
    #[must_use]
    pub fn inspect(&self, f: impl Fn(&T) + Send + Sync + 'static) -> Stream<T> {
        each(self, "inspect", move |input, output| {
            input.iter().for_each(&f);
            std::mem::swap(input, output);
        })
    }

    /// Two streams: the items for which `f` is true, and the others. What nobody reads of one of them
    /// is dropped.
    #[must_use]
    pub fn branch(&self, f: impl Fn(&T) -> bool + Send + Sync + 'static) -> (Stream<T>, Stream<T>) {
        let f = Arc::new(f);
        self.divide("", move |_| {
            let f = Arc::clone(&f);
            Ok(
                move |input: &mut Vec<T>, yes: &mut Vec<T>, no: &mut Vec<T>, _: &mut Context| {
                    for item in input.drain(..) {
                        if f(&item) {
                            yes.push(item)
                        } else {
                            no.push(item)
                        }
                    }
                    Ok(())
                },
            )
        })
    }

    /// As `map`, with a function that may fail.
    pub fn try_map<U: Data, E: Into<Cause>>(
        &self,
        name: &str,
        on_error: OnError,
        f: impl Fn(&T) -> Result<U, E> + Send + Sync + 'static,
    ) -> Stream<U>
    where
        T: Debug,
    {
        self.try_filter_map(name, on_error, move |item| f(item).map(Some))
    }

    /// As `filter_map`, with a function that may fail.
    pub fn try_filter_map<U: Data, E: Into<Cause>>(
        &self,
        name: &str,
        on_error: OnError,
        f: impl Fn(&T) -> Result<Option<U>, E> + Send + Sync + 'static,
    ) -> Stream<U>
    where
        T: Debug,
    {
        let (f, settles) = (Arc::new(f), on_error.clone());
        let made = self.step("try_map", name, move |making| -> Result<_, FlowError> {
            let f = Arc::clone(&f);
            let work = move |input: &mut Vec<T>,
                             output: &mut Vec<U>,
                             policy: &mut Policy,
                             cx: &mut Context| {
                for item in input.drain(..) {
                    match f(&item) {
                        Ok(result) => output.extend(result),
                        Err(error) => policy.apply_to_item(None, &item, error, cx)?,
                    }
                }
                Ok(())
            };
            Ok(Fallible {
                work,
                policy: making.policy(&on_error)?,
            })
        });
        made.settles_by(&settles)
    }
}
