//! Makes calls on a runtime, and collects their answers for the worker.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::Poll;
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::panic_text;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::AbortHandle;

use crate::control::Control;
use crate::error::Cause;
use crate::mutex::lock;

/// The interval at which a worker that waits for an answer checks whether the flow has failed.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// How long a runtime without threads of its own may run nothing.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// The outcome of a call.
pub(super) enum Answer<U> {
    /// The function has returned.
    Returned(Result<U, Cause>),
    /// The call panicked, with this message.
    Panicked(String),
    /// The call was dropped: it will not return.
    Lost,
}

/// A pending call.
pub(super) type PendingCall = AbortHandle;

/// The answers in the order of arrival, with the numbers of their calls.
struct Replies<U> {
    answers: Mutex<Vec<(u64, Answer<U>)>>,
    arrived: Condvar,
    /// The runtime has run a call.
    runs: AtomicBool,
}

/// The pending replies of one worker's calls.
pub(super) struct PendingReplies<U> {
    handle: Handle,
    own: Option<Runtime>,
    replies: Arc<Replies<U>>,
    /// When the first call was started.
    first_ns: Option<u64>,
}

/// Delivers the answer of a call, also when it is dropped without one.
struct ReplyGuard<U> {
    number: u64,
    answer: Answer<U>,
    replies: Arc<Replies<U>>,
}

impl<U> ReplyGuard<U> {
    fn set(mut self, answer: Answer<U>) {
        self.answer = answer;
    }
}

impl<U> Drop for ReplyGuard<U> {
    fn drop(&mut self) {
        let answer = std::mem::replace(&mut self.answer, Answer::Lost);
        lock(&self.replies.answers).push((self.number, answer));
        self.replies.arrived.notify_one();
    }
}

impl<U: Send + 'static> PendingReplies<U> {
    /// Makes calls on `runtime`, or on a runtime of its own.
    pub(super) fn open(runtime: Option<&Handle>) -> io::Result<Self> {
        let (handle, own) = match runtime {
            Some(handle) => (handle.clone(), None),
            None => {
                let mut builder = Builder::new_multi_thread();
                let builder = builder.worker_threads(1).thread_name("millstream-calls");
                let own = builder.enable_all().build()?;
                (own.handle().clone(), Some(own))
            }
        };
        let replies = Arc::new(Replies {
            answers: Mutex::default(),
            arrived: Condvar::new(),
            runs: AtomicBool::new(false),
        });
        Ok(PendingReplies {
            handle,
            own,
            replies,
            first_ns: None,
        })
    }

    /// Starts a call.
    pub(super) fn start(
        &mut self,
        number: u64,
        call: impl Future<Output = Result<U, Cause>> + Send + 'static,
    ) -> PendingCall {
        let guard = ReplyGuard {
            number,
            answer: Answer::Lost,
            replies: Arc::clone(&self.replies),
        };
        let call = async move {
            guard.replies.runs.store(true, Ordering::Relaxed);
            guard.set(without_panic(call).await);
        };
        self.first_ns.get_or_insert_with(monotonic_ns);
        self.handle.spawn(call).abort_handle()
    }

    /// Whether the runtime runs nothing: it has no threads, and its `block_on` is not entered.
    pub(super) fn runs_nothing(&self) -> bool {
        let waits = |since: u64| u128::from(monotonic_ns() - since) > IDLE_MAX.as_nanos();
        !self.replies.runs.load(Ordering::Relaxed)
            && self.first_ns.is_some_and(waits)
            && self.handle.runtime_flavor() == RuntimeFlavor::CurrentThread
    }

    /// Returns the answers that have arrived.
    pub(super) fn answers(&self) -> Vec<(u64, Answer<U>)> {
        std::mem::take(&mut lock(&self.replies.answers))
    }

    /// Waits for an answer for a limited time.
    pub(super) fn wait(&self, control: &Control) {
        control.outside(&mut || {
            let answers = lock(&self.replies.answers);
            // A thread that panics with this lock has not changed the answers.
            let none = |answers: &mut Vec<_>| answers.is_empty();
            drop(
                self.replies
                    .arrived
                    .wait_timeout_while(answers, CHECK_INTERVAL, none),
            );
        });
    }
}

/// Returns the answer of a call; a panic of it is one.
async fn without_panic<U>(call: impl Future<Output = Result<U, Cause>>) -> Answer<U> {
    let mut call = std::pin::pin!(call);
    std::future::poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
        match polled {
            Ok(polled) => polled.map(Answer::Returned),
            Err(panic) => Poll::Ready(Answer::Panicked(panic_text(&*panic).to_owned())),
        }
    })
    .await
}

impl<U> Drop for PendingReplies<U> {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            // Dropping the runtime does not wait for calls that do not end.
            own.shutdown_background();
        }
    }
}
