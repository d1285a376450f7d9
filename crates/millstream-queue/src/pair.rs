//! Queues on several machines, of which one serves them at a time: an arbiter decides which.
//!
//! ```text
//!            +--------- arbiter: who leads, until when, who has all ---------+
//!            |                                                               |
//!       renews, names those                                          looks; takes the lease
//!       that have all                                                when it is over
//!            |                                                               |
//!        machine a: serves clients  ---- all changes ---->  machine b: follows
//! ```
//!
//! The one that leads answers when all followers have a change that the arbiter's record names. It lets one not count
//! any more only after the record does not name it, and only one that the record names may take over: so what was
//! answered is always there. A take-over begins a new term of the changes, by which an old leader is refused
//! everywhere, also where it knows nothing of the arbiter.

mod fitness;
mod follow;
mod group;
mod keeper;
mod machine;
mod members;
mod options;
mod standing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millstream_journal::chain;
use tracing::warn;

pub use self::group::Group;
pub use self::keeper::Keeper;
use self::machine::{Machine, Next};
pub use self::options::{PairOptions, TakenOver};
pub(crate) use self::standing::Standing;
use crate::error::Cause;
use crate::server::{Server, ServerError};

/// Serves the queues or follows the machine that does, until `stop` is raised or a client stops the server. `ready` is
/// called with the server whenever it begins to serve clients.
///
/// # Errors
/// The directory cannot be used, or belongs to another group; this copy cannot follow; the server fails.
pub fn run(
    options: &PairOptions,
    stop: &Arc<AtomicBool>,
    mut ready: impl FnMut(&Server),
) -> Result<(), Cause> {
    let mut machine = Machine::new(options, stop)?;
    while !stop.load(Ordering::Relaxed) {
        match machine.next()? {
            Next::Look => {}
            Next::Stop => break,
            Next::Lead(keeper, term) => match machine.lead(keeper, term, &mut ready) {
                Ok(()) => break,
                Err(cause) if was_taken_over(&cause) => warn!("{}", chain(&*cause)),
                Err(cause) => machine.has_failed(cause)?,
            },
        }
    }
    Ok(())
}

fn was_taken_over(cause: &Cause) -> bool {
    matches!(cause.downcast_ref(), Some(ServerError::Superseded(_)))
}
