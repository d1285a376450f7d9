//! Channels of `tokio` and streams of `futures` as sources, and channels as sinks: the ends of a flow inside an
//! asynchronous program.
//!
//! ```
//! use millstream_flow::{Flow, Options, channel};
//!
//! # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
//! # runtime.block_on(async {
//! let (numbers, source) = tokio::sync::mpsc::channel(100);
//! let (sink, mut squares) = tokio::sync::mpsc::channel(100);
//! let flow = Flow::new("squares");
//! flow.source("numbers", channel::source(source)).map(|n: i64| n * n).sink("squares", channel::sink(sink));
//! let running = flow.start(Options::default())?;
//! numbers.send(3).await.unwrap();
//! assert_eq!(squares.recv().await, Some(9));
//! // The end of the channel is the end of the source.
//! drop(numbers);
//! let report = running.await?;
//! assert_eq!(report.step("squares").unwrap().items_in, 1);
//! # Ok::<(), millstream_flow::FlowError>(())
//! # }).unwrap();
//! ```

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{self, Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use futures_core::Stream;
use tokio::runtime::Handle;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::batch::Data;
use crate::clock::now_ns;
use crate::control::Control;
use crate::error::Cause;
use crate::mutex::lock;
use crate::poller::{Io, Wake};
use crate::sink::{Sink, Writer};
use crate::source::{Events, Next, Partition, Position, Source, SourceSettings};

/// How often a sink whose channel is full checks whether the run ends.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How long a run that was asked to stop waits for the receiver of a channel that is full.
const STOP_NS: u64 = 1_000_000_000;

type Items<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// A source of the items of a channel or a stream: [`source`] and [`stream`] make it.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Streamed<T> {
    kind: &'static str,
    /// Taken by the first run.
    items: Mutex<Option<Items<T>>>,
    /// The runtime in which it was made, which drives what the stream waits for.
    runtime: Option<Handle>,
}

/// Makes a source of the receiving end of a channel. It ends when all senders are dropped, and can be run once.
///
/// A full channel is the back-pressure: senders wait for the flow. Items are not recorded: after a crash those that
/// were received and not committed are lost. What must not be lost is appended to a [journal](crate::journals), which
/// the flow reads.
///
/// See the [module](self) for an example.
pub fn source<T: Data>(receiver: Receiver<T>) -> Streamed<T> {
    Streamed::new("channel", Received(receiver))
}

/// Makes a source of a stream. It ends with the stream, and can be run once. Items are not recorded, as those of
/// [`source`].
///
/// The stream is polled on a thread of the flow, within the runtime of `tokio` in which this function was called, if it
/// was.
///
/// ```
/// use std::pin::Pin;
/// use std::task::{Context, Poll};
///
/// use futures_core::Stream;
/// use millstream_flow::{Flow, Options, channel, testing};
///
/// struct Countdown(i64);
///
/// impl Stream for Countdown {
///     type Item = i64;
///     fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<i64>> {
///         self.0 -= 1;
///         Poll::Ready((self.0 >= 0).then_some(self.0))
///     }
/// }
///
/// let (flow, out) = (Flow::new("countdown"), testing::Collected::new());
/// flow.source("in", channel::stream(Countdown(3))).sink("out", out.sink());
/// flow.run(Options::default())?;
/// assert_eq!(out.take(), [2, 1, 0]);
/// # Ok::<(), millstream_flow::FlowError>(())
/// ```
pub fn stream<T: Data>(stream: impl Stream<Item = T> + Send + 'static) -> Streamed<T> {
    Streamed::new("stream", stream)
}

impl<T> Streamed<T> {
    fn new(kind: &'static str, items: impl Stream<Item = T> + Send + 'static) -> Self {
        Streamed {
            kind,
            items: Mutex::new(Some(Box::pin(items))),
            runtime: Handle::try_current().ok(),
        }
    }
}

/// The receiving end of a channel as a stream.
struct Received<T>(Receiver<T>);

impl<T> Stream for Received<T> {
    type Item = T;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}

impl<T: Data> Source<Vec<T>> for Streamed<T> {
    fn describe(&self) -> String {
        self.kind.to_owned()
    }
    fn open(
        &self,
        _: usize,
        resume: Option<&Position>,
        io: &Io,
    ) -> Result<Box<dyn Partition<Vec<T>>>, Cause> {
        let items = lock(&self.items).take().ok_or_else(|| {
            format!(
                "an earlier run has taken this {}: make a source, and a flow, for each run",
                self.kind
            )
        })?;
        Ok(Box::new(Polled {
            items: Some(items),
            waker: Waker::from(Arc::new(Waking(io.wake()))),
            runtime: self.runtime.clone(),
            taken: resume.map_or(Ok(0), Position::require_number)?,
        }))
    }
    fn settings(&self) -> SourceSettings {
        SourceSettings {
            in_one_process: true,
            ..SourceSettings::default()
        }
    }
}

/// Makes the worker poll the stream again.
struct Waking(Wake);

impl task::Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.0.wake();
    }
}

struct Polled<T> {
    /// `None` after its end.
    items: Option<Items<T>>,
    waker: Waker,
    runtime: Option<Handle>,
    taken: u64,
}

impl<T: Data> Partition<Vec<T>> for Polled<T> {
    fn next_batch(&mut self, batch: &mut Vec<T>, events: &mut Events<'_>) -> Result<Next, Cause> {
        let _entered = self.runtime.as_ref().map(Handle::enter);
        let mut cx = Context::from_waker(&self.waker);
        while let Some(items) = &mut self.items
            && batch.len() < events.limit()
        {
            match items.as_mut().poll_next(&mut cx) {
                Poll::Ready(Some(item)) => batch.push(item),
                Poll::Ready(None) => self.items = None,
                Poll::Pending => break,
            }
        }
        self.taken += batch.len() as u64;
        Ok(match (batch.is_empty(), &self.items) {
            (false, _) => Next::Batch,
            (true, None) => Next::End,
            (true, Some(_)) => Next::Idle,
        })
    }
    fn position(&self) -> Result<Position, Cause> {
        Ok(self.taken.into())
    }
}

/// A sink that sends items to a channel: [`sink`] makes it.
#[doc(hidden)] // For the other crates of Millstream.
pub struct Sending<T>(Sender<T>);

/// Makes a sink of the sending end of a channel. The channel is closed at the end of the run, when the flow is dropped
/// too.
///
/// While the channel is full, the flow waits, and so do its sources. A flow that is stopped waits at most a second for
/// a receiver that does not receive; a warning says how many items of the last batch it has not sent. If the receiver
/// is dropped, the flow fails. Items are sent before their epoch is committed: after a crash they come again.
///
/// See the [module](self) for an example.
pub fn sink<T: Data>(sender: Sender<T>) -> Sending<T> {
    Sending(sender)
}

impl<T: Data> Sink<Vec<T>> for Sending<T> {
    fn describe(&self) -> String {
        "channel".to_owned()
    }
    fn open(&self, _: usize, control: &Arc<Control>) -> Result<Box<dyn Writer<Vec<T>>>, Cause> {
        Ok(Box::new(SendingWriter {
            sender: self.0.clone(),
            control: Arc::clone(control),
            has_dropped: false,
        }))
    }
    fn in_one_process(&self) -> bool {
        true
    }
}

struct SendingWriter<T> {
    sender: Sender<T>,
    control: Arc<Control>,
    /// The run was stopped with an item that was not received: nothing after it is sent either.
    has_dropped: bool,
}

impl<T: Data> Writer<Vec<T>> for SendingWriter<T> {
    fn write_batch(&mut self, batch: &mut Vec<T>) -> Result<(), Cause> {
        let mut left = batch.len();
        for item in batch.drain(..) {
            if self.has_dropped {
                continue;
            }
            let is_sent = match self.sender.try_send(item) {
                Ok(()) => true,
                Err(TrySendError::Closed(_)) => return Err(closed()),
                Err(TrySendError::Full(item)) => self.send(item)?,
            };
            left -= usize::from(is_sent);
            self.has_dropped = !is_sent;
        }
        if self.has_dropped && left > 0 {
            tracing::warn!(
                "a channel: stopped with {left} items that were not received: they are dropped"
            );
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
}

fn closed() -> Cause {
    "the receiver of the channel was dropped".into()
}

/// Lets a thread go on.
struct Unpark(Thread);

impl task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<T: Data> SendingWriter<T> {
    /// Waits for room in the channel, and sends an item; returns false if the run ends first.
    fn send(&self, item: T) -> Result<bool, Cause> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut item = Some(item);
        let mut outcome = Ok(false);
        self.control.outside(&mut || {
            let mut room = Box::pin(self.sender.reserve());
            let mut stop_seen = None;
            outcome = loop {
                match room.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(Ok(permit)) => {
                        if let Some(item) = item.take() {
                            permit.send(item);
                        }
                        break Ok(true);
                    }
                    Poll::Ready(Err(_)) => break Err(closed()),
                    Poll::Pending if self.is_over(&mut stop_seen) => break Ok(false),
                    Poll::Pending => thread::park_timeout(CHECK_INTERVAL),
                }
            };
        });
        outcome
    }

    /// Whether the run has failed, or was asked to stop some time ago.
    fn is_over(&self, stop_seen: &mut Option<u64>) -> bool {
        if self.control.aborted() {
            return true;
        }
        if !self.control.stopping() {
            return false;
        }
        let since = *stop_seen.get_or_insert_with(now_ns);
        now_ns().saturating_sub(since) > STOP_NS
    }
}
