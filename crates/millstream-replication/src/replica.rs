//! The state of a flow for followers on other machines: `millstream run --replica`.
//!
//! ```
//! use std::sync::Arc;
//! use millstream_flow::Recovery;
//! use millstream_replication::{ServeOptions, StateReplica};
//!
//! let served = StateReplica::new(ServeOptions::new(([127, 0, 0, 1], 7750).into(), []));
//! let recovery = Recovery::new("state").replica(Arc::new(served)).commit_on_replica(true);
//! # drop(recovery);
//! ```

use std::time::Duration;

use millstream_flow::checkpoint::{Replica, Serving};
use millstream_flow::error::Cause;
use millstream_journal::Journal;
use tracing::info;

use crate::{ServeOptions, Served};

/// Serves the state of a flow to followers, as `millstream state follow` is one.
#[derive(Clone, Debug)]
pub struct StateReplica {
    options: ServeOptions,
}

impl StateReplica {
    /// Serves at the address, and to the followers, of these options; their journals are left out.
    #[must_use]
    pub fn new(options: ServeOptions) -> Self {
        StateReplica { options }
    }
}

impl Replica for StateReplica {
    fn serve(&self, journals: Vec<(String, Journal)>) -> Result<Box<dyn Serving>, Cause> {
        let (_, last) = journals.last().ok_or("there is no journal to serve")?;
        let last = last.clone();
        let served = Served::begin(&self.options, journals)?;
        info!("the state is served to followers at {}", served.address());
        Ok(Box::new(ServedState { served, last }))
    }
}

/// The state of a run that is served.
struct ServedState {
    served: Served,
    /// The journal that refers to the others.
    last: Journal,
}

impl Serving for ServedState {
    fn wait(&mut self, limit: Duration) -> Result<bool, Cause> {
        match self.last.next()?.checked_sub(1) {
            Some(last) => Ok(self.served.wait(last, limit)?),
            None => Ok(true),
        }
    }
}
