//! Answers to what a page or the program asks: it is done as what clients ask.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use tokio::sync::mpsc;
use tracing::info;

use super::core::Core;
use super::error::ServerError;
use super::requests::Request;
use crate::clock;
use crate::error::QueueError;
use crate::name;

/// Answers requests, one after the other. It is no error when a reader no longer waits.
pub(super) async fn serve(core: Rc<Core>, mut requests: mpsc::Receiver<Request>) {
    while let Some(request) = requests.recv().await {
        match request {
            Request::Redrive {
                from,
                to,
                items_max,
                reply,
            } => {
                let outcome = redrive(&core, &from, &to, items_max).await;
                if let Ok(moved) = outcome {
                    info!("{moved} items moved from queue \"{from}\" to queue \"{to}\"");
                }
                reply(outcome.map_err(ServerError::Broker));
            }
            Request::Reload(reply) => {
                let outcome = core.with(|state| core.reload(state));
                reply(outcome.map_err(ServerError::Reload));
            }
        }
    }
}

/// Moves items, and waits until that is durable.
async fn redrive(core: &Core, from: &str, to: &str, items_max: u64) -> Result<u64, QueueError> {
    for name in [from, to] {
        name::check(name.as_bytes()).map_err(|fault| QueueError::Name {
            name: name.to_owned(),
            fault,
        })?;
    }
    let mut redrive = core.with(|state| state.broker.begin_redrive(from, to, items_max));
    let last = loop {
        let done = core.with(|state| {
            let mut round = state.broker.round();
            let done = state
                .broker
                .redrive_some(&mut redrive, clock::now(), &mut round);
            core.wake_and_set_timer(state);
            done
        });
        match done {
            Ok(false) => tokio::task::yield_now().await,
            done => break done.map(|_| ()),
        }
    };
    let outcome = redrive.outcome(last);
    let commit = core.with(|state| {
        let wanted = state.broker.take_commit_wanted() || state.answers_wait;
        wanted.then_some(state.commits_begun)
    });
    let Some(commit) = commit else {
        return outcome;
    };
    core.commit_wanted.notify_one();
    let durable = poll_fn(|context| {
        core.with(|state| {
            if state.commits <= commit {
                state.uncommitted.push((commit, context.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(!state.failed_commits.contains(&commit))
        })
    });
    if durable.await {
        outcome
    } else {
        Err(QueueError::Storage {
            queue: to.to_owned(),
            cause: "the moved items could not be made durable".into(),
        })
    }
}
