//! The committer: one sync for all replies that wait for it.

use std::rc::Rc;

use tracing::error;

use super::clock;
use super::core::Core;

/// Commit whenever somebody waits for it, for ever.
pub(super) async fn run(core: Rc<Core>) {
    loop {
        core.commit_wanted.notified().await;
        // All that is ready now comes first: what it brings is part of this commit.
        tokio::task::yield_now().await;
        core.with(|state| {
            let begin_us = clock::now().steady_us;
            let outcome = state.queues.commit();
            state
                .queues
                .latencies()
                .sync_us(clock::now().steady_us - begin_us);
            if let Err(error) = outcome {
                error!("not acknowledged: {error}");
                state.failed_commits.push(state.commits);
            }
            state.commits += 1;
            state.uncommitted.drain(..).for_each(|waker| waker.wake());
        });
    }
}
