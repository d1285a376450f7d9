//! The verbs of a stream that keep no state.
//!
//! Functions are shared by all workers, hence `Fn + Send + Sync`. The verbs that start with
//! `try_` take functions that may fail, and an [`OnError`] that states what happens to an item on which they fail.

use std::fmt::Debug;
use std::sync::Arc;

use crate::batch::Data;
use crate::connectors::codec::{Encoded, Encoding};
use crate::describe::letters::RefusedLetters;
use crate::describe::stream::Stream;
use crate::error::{Cause, Failure, FlowError};
use crate::framing::Frames;
use crate::outbox::too_large;
use crate::policy::{DeadLetter, OnError, Policy};
use crate::sink::{Refused, Sink};
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
    /// Calls `f` on each item, and passes on what it returns: one item out for each item in.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("tens"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2]))
    ///     .map(|n: i64| n * 10)
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [10, 20]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn map<U: Data>(&self, f: impl Fn(T) -> U + Send + Sync + 'static) -> Stream<U> {
        each(self, "map", move |input, output| {
            output.extend(input.drain(..).map(&f))
        })
    }

    /// Passes on the items for which `f` returns true, and drops the others.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("even"), testing::Collected::new());
    /// flow.source("in", testing::items(0..5))
    ///     .filter(|n: &i64| n % 2 == 0)
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [0, 2, 4]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn filter(&self, f: impl Fn(&T) -> bool + Send + Sync + 'static) -> Stream<T> {
        each(self, "filter", move |input, output| {
            input.retain(|item| f(item));
            std::mem::swap(input, output);
        })
    }

    /// Calls `f` on each item, and passes on each item of what it returns: any number of items out for each item in.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("letters"), testing::Collected::new());
    /// flow.source("in", testing::items(["ab", "", "c"]))
    ///     .flat_map(|word: &'static str| word.chars())
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), ['a', 'b', 'c']);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn flat_map<U: Data, I: IntoIterator<Item = U>>(
        &self,
        f: impl Fn(T) -> I + Send + Sync + 'static,
    ) -> Stream<U> {
        each(self, "flat_map", move |input, output| {
            output.extend(input.drain(..).flat_map(&f))
        })
    }

    /// Calls `f` on each item, and passes on what is in the `Some` that it returns; for `None` nothing.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("numbers"), testing::Collected::new());
    /// flow.source("in", testing::items(["1", "x", "3"]))
    ///     .filter_map(|text: &str| text.parse::<i64>().ok())
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1, 3]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn filter_map<U: Data>(
        &self,
        f: impl Fn(T) -> Option<U> + Send + Sync + 'static,
    ) -> Stream<U> {
        each(self, "filter_map", move |input, output| {
            output.extend(input.drain(..).filter_map(&f))
        })
    }

    /// Calls `f` on each batch, and passes on the batch that it returns.
    ///
    /// The engine decides which items are in one batch, so the result of `f` for an item must not depend on the others.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("batches"), testing::Collected::new());
    /// flow.source("in", testing::items([1, 2, 3]))
    ///     .map_batch(|batch: Vec<i64>| batch.into_iter().map(|n| -n).collect())
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [-1, -2, -3]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn map_batch<U: Data>(
        &self,
        f: impl Fn(Vec<T>) -> Vec<U> + Send + Sync + 'static,
    ) -> Stream<U> {
        each(self, "map_batch", move |input, output| {
            *output = f(std::mem::take(input))
        })
    }

    /// Calls `f` on each item, and passes the item on as it is.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicI64, Ordering};
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("seen"), testing::Collected::new());
    /// let seen = Arc::new(AtomicI64::new(0));
    /// let sum = Arc::clone(&seen);
    /// flow.source("in", testing::items([1, 2]))
    ///     .inspect(move |n: &i64| drop(sum.fetch_add(*n, Ordering::Relaxed)))
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(seen.load(Ordering::Relaxed), 3);
    /// assert_eq!(out.take(), [1, 2]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    #[must_use]
    pub fn inspect(&self, f: impl Fn(&T) + Send + Sync + 'static) -> Stream<T> {
        each(self, "inspect", move |input, output| {
            input.iter().for_each(&f);
            std::mem::swap(input, output);
        })
    }

    /// Divides the stream in two: the items for which `f` returns true, and the others.
    ///
    /// The items of a stream that no step reads are dropped.
    ///
    /// ```
    /// use millstream_flow::{Flow, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("signs"), testing::Collected::new());
    /// let (negative, _rest) = flow.source("in", testing::items([-1, 2, -3])).branch(|n: &i64| *n < 0);
    /// negative.sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [-1, -3]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
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

    /// As [`map`](Self::map), with a function that may fail.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. For an item on which `f` fails,
    /// `on_error` decides: the run fails, the item is skipped, or a dead letter is written.
    ///
    /// ```
    /// use millstream_flow::{Flow, OnError, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("numbers"), testing::Collected::new());
    /// flow.source("in", testing::items(["1", "x", "3"]))
    ///     .try_map("parse", OnError::Skip, |text: &&str| text.parse::<i64>())
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1, 3]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
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

    /// As [`filter_map`](Self::filter_map), with a function that may fail.
    ///
    /// `name` is the name of the step in errors, metrics and saved state. For an item on which `f` fails,
    /// `on_error` decides: the run fails, the item is skipped, or a dead letter is written.
    ///
    /// ```
    /// use millstream_flow::{Flow, OnError, Options, testing};
    ///
    /// let (flow, out) = (Flow::new("positive"), testing::Collected::new());
    /// flow.source("in", testing::items(["1", "x", "-3"]))
    ///     .try_filter_map("parse", OnError::Skip, |text: &&str| {
    ///         let number: i64 = text.parse()?;
    ///         Ok::<_, std::num::ParseIntError>((number > 0).then_some(number))
    ///     })
    ///     .sink("out", out.sink());
    /// flow.run(Options::default())?;
    /// assert_eq!(out.take(), [1]);
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn try_filter_map<U: Data, E: Into<Cause>>(
        &self,
        name: &str,
        on_error: OnError,
        f: impl Fn(&T) -> Result<Option<U>, E> + Send + Sync + 'static,
    ) -> Stream<U>
    where
        T: Debug,
    {
        let f = Arc::new(f);
        let settles = on_error.clone();
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

    /// Ends the stream in a sink as [`sink`](crate::Pipe::sink) does, with a policy for an item that cannot be encoded,
    /// that is larger than the destination takes, or that the destination refuses.
    ///
    /// Items are encoded in a step of its own, `NAME.encode`, which has the dead letters of items that cannot be
    /// encoded or are too large. What a destination refuses is found later, when it is delivered; the item of such a
    /// letter is the encoded record as text.
    ///
    /// ```
    /// use millstream_flow::{Flow, OnError, Options, codec, files, testing};
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("letters");
    /// let letter = |n: &i64, out: &mut Vec<u8>| u8::try_from(*n).map(|n| out.push(n));
    /// let flow = Flow::new("letters");
    /// flow.source("in", testing::items([65, 1000, 67]))
    ///     .try_sink("out", OnError::Skip, codec::encode(files::write(&path), letter));
    /// flow.run(Options::default())?;
    /// assert_eq!(std::fs::read(&path).unwrap(), b"A\nC\n");
    /// # Ok::<(), millstream_flow::FlowError>(())
    /// ```
    pub fn try_sink<S, F, R>(&self, name: &str, on_error: OnError, sink: Encoded<S, F>)
    where
        T: Debug,
        S: Sink<Frames>,
        F: Fn(&T, &mut Vec<u8>) -> R + Send + Sync + 'static,
        R: Encoding,
    {
        let (sink, encode) = sink.parted();
        let letters = match &on_error {
            OnError::Fail => None,
            OnError::Skip => {
                sink.skip_refused(false);
                None
            }
            OnError::DeadLetter(_) if !sink.skip_refused(false) => None,
            OnError::DeadLetter(to) => {
                let step = name.to_owned();
                let letter = move |refused: &Refused| DeadLetter::of_refused(&step, refused);
                Some(RefusedLetters::new(to, move |refused: Vec<Refused>| {
                    Ok(refused.iter().map(&letter).collect())
                }))
            }
        };
        let settles = on_error.clone();
        let most = sink.record_bytes_max().unwrap_or(usize::MAX);
        let address = sink.describe();
        let encoded = self.step("encode", &format!("{name}.encode"), move |making| {
            let encode = Arc::clone(&encode);
            let address = address.clone();
            let work = move |input: &mut Vec<T>,
                             output: &mut Frames,
                             policy: &mut Policy,
                             cx: &mut Context| {
                for item in input.drain(..) {
                    if let Err(cause) = append(&*encode, &item, output, (most, &address)) {
                        policy.apply_to_item(None, &item, cause, cx)?;
                    }
                }
                Ok(())
            };
            Ok::<_, FlowError>(Fallible {
                work,
                policy: making.policy(&on_error)?,
            })
        });
        let encoded = encoded.settles_by(&settles);
        match letters {
            Some(letters) => encoded.sink_with_letters(name, sink, false, &letters),
            None => encoded.sink(name, sink),
        }
    }
}

/// Appends a frame for an item, or nothing if that fails or is larger than `most` bytes.
fn append<T, R: Encoding>(
    encode: &impl Fn(&T, &mut Vec<u8>) -> R,
    item: &T,
    frames: &mut Frames,
    (most, address): (usize, &str),
) -> Result<(), Cause> {
    let count = frames.spans.len();
    let start = frames.data.len();
    let mut encoded = Ok(());
    let appended = frames.append(|out| encoded = encode(item, out).into_result());
    let bytes = frames.data.len() - start;
    let outcome = encoded.and_then(|()| Ok(appended?)).and_then(|()| {
        if bytes > most {
            Err(too_large(bytes, most, address).into())
        } else {
            Ok(())
        }
    });
    if outcome.is_err() {
        frames.spans.truncate(count);
        frames.data.truncate(start);
    }
    outcome
}
