//! A running flow as a future.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::control::Lifecycle;
use crate::error::FlowError;
use crate::metrics::Report;
use crate::run::running::Running;

/// The end of a flow, which an asynchronous program awaits: made by `running.await` and [`Running::into_future`]. A
/// thread waits for the flow meanwhile. When it is dropped before the end, the flow is stopped, and nothing waits for
/// that.
pub struct Ending {
    life: Arc<Lifecycle>,
    outcome: oneshot::Receiver<Result<Report, FlowError>>,
}

impl IntoFuture for Running {
    type Output = Result<Report, FlowError>;
    type IntoFuture = Ending;

    /// Waits as [`wait`](Running::wait) does, without blocking the thread.
    fn into_future(self) -> Ending {
        let life = Arc::clone(&self.control.life);
        let (ended, outcome) = oneshot::channel();
        let name = "millstream-wait".to_owned();
        let waiting = std::thread::Builder::new().name(name);
        // Without a thread the flow is dropped here, which stops it; the future is an error then.
        let _ = waiting.spawn(move || drop(ended.send(self.wait())));
        Ending { life, outcome }
    }
}

impl Future for Ending {
    type Output = Result<Report, FlowError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.outcome).poll(cx);
        outcome.map(|outcome| {
            outcome.unwrap_or_else(|_| {
                let text = "no thread could be started that waits for the flow".to_owned();
                Err(FlowError::Usage(text))
            })
        })
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Without an effect after the end.
        self.life.stop();
    }
}
