//! The wait for the brokers at the start of a run: a broker that is away then is no other case than one that goes away
//! later.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_flow::starting::Starting;

use super::run::Run;
use crate::error::Error;

/// The delay between attempts.
const DELAY: Duration = Duration::from_millis(500);
/// How often a request to stop is looked for during an attempt.
const LOOK: Duration = Duration::from_millis(20);

/// Begins a run, with as many attempts as it takes. `attempt` returns a function that makes one, on a thread of its
/// own: a call of the client cannot be interrupted.
///
/// # Errors
/// The brokers refuse the client, a topic does not exist, the run was asked to stop.
pub(super) fn begin<A>(starting: &Starting, attempt: impl Fn() -> A) -> Result<Arc<Run>, Cause>
where
    A: FnOnce() -> Result<Arc<Run>, Error> + Send + 'static,
{
    let mut is_told = false;
    loop {
        let reason = match attend(starting, attempt())? {
            Ok(run) => match run.leaderless() {
                None => {
                    if is_told {
                        tracing::info!("kafka {}: the brokers answer", run.servers());
                    }
                    return Ok(run);
                }
                Some(error) => error,
            },
            Err(error @ Error::Unreachable { .. }) => error,
            Err(error) => return Err(error.into()),
        };
        if !is_told {
            is_told = true;
            tracing::warn!("{reason}; the start of the flow waits for it");
        }
        starting.wait(&reason.to_string(), DELAY)?;
    }
}

/// Makes an attempt, and looks for a request to stop meanwhile.
fn attend<T: Send + 'static>(
    starting: &Starting,
    attempt: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<Result<T, Error>, Cause> {
    let (sender, made) = channel();
    let thread = std::thread::Builder::new().name("millstream-kafka".to_owned());
    thread.spawn(move || {
        // Nothing receives it if the run was stopped.
        let _ = sender.send(attempt());
    })?;
    loop {
        match made.recv_timeout(LOOK) {
            Ok(made) => return Ok(made),
            Err(RecvTimeoutError::Timeout) => starting.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err("the thread that asks for partitions has panicked".into());
            }
        }
    }
}
