//! Where calls are made, and where their answers wait for the worker.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;

use crate::error::Cause;
use crate::run::control::{Control, lock};

/// How often a worker that waits for an answer looks whether the flow has failed.
const LOOK: Duration = Duration::from_millis(100);

/// What came of a call.
pub(super) enum Answer<U> {
    /// The function has answered.
    Given(Result<U, Cause>),
    /// It never will.
    Lost,
}

/// A call under way.
pub(super) type Asked = AbortHandle;

/// Answers in the order in which they came, with the numbers of their calls.
struct Tray<U> {
    answers: Mutex<Vec<(u64, Answer<U>)>>,
    came: Condvar,
}

/// Where one worker asks.
pub(super) struct Desk<U> {
    handle: Handle,
    own: Option<Runtime>,
    tray: Arc<Tray<U>>,
}

/// Puts the answer of a call into the tray, also when it is dropped without one.
struct Slip<U> {
    number: u64,
    answer: Answer<U>,
    tray: Arc<Tray<U>>,
}

impl<U> Slip<U> {
    fn fill(mut self, answer: Result<U, Cause>) {
        self.answer = Answer::Given(answer);
    }
}

impl<U> Drop for Slip<U> {
    fn drop(&mut self) {
        let answer = std::mem::replace(&mut self.answer, Answer::Lost);
        lock(&self.tray.answers).push((self.number, answer));
        self.tray.came.notify_one();
    }
}

impl<U: Send + 'static> Desk<U> {
    /// Asks on `runtime`, or on one of its own.
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
        let tray = Arc::new(Tray {
            answers: Mutex::default(),
            came: Condvar::new(),
        });
        Ok(Desk { handle, own, tray })
    }

    /// Makes a call.
    pub(super) fn ask(
        &self,
        number: u64,
        call: impl Future<Output = Result<U, Cause>> + Send + 'static,
    ) -> Asked {
        let slip = Slip {
            number,
            answer: Answer::Lost,
            tray: Arc::clone(&self.tray),
        };
        let call = async move { slip.fill(call.await) };
        self.handle.spawn(call).abort_handle()
    }

    /// The answers that have come.
    pub(super) fn answers(&self) -> Vec<(u64, Answer<U>)> {
        std::mem::take(&mut lock(&self.tray.answers))
    }

    /// Waits for an answer, for a while.
    pub(super) fn wait(&self, control: &Control) {
        control.outside(&mut || {
            let answers = lock(&self.tray.answers);
            // Whoever holds the lock when a thread panics has changed nothing.
            let none = |answers: &mut Vec<_>| answers.is_empty();
            drop(self.tray.came.wait_timeout_while(answers, LOOK, none));
        });
    }
}

impl<U> Drop for Desk<U> {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            // A call that does not come to an end keeps nobody waiting.
            own.shutdown_background();
        }
    }
}
