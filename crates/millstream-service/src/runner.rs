//! Runs a component: takes its inputs in order, one thread for each service.
//!
//! | module | |
//! |---|---|
//! | `service` | the output that a component is made with |
//! | `setup`, `start` | inputs, timers and states are added; then the state is rebuilt and a runner begins |
//! | `state` | the runner itself, which the other modules extend |
//! | `confirm` | the journals hold what the service has taken |
//! | `rebuild`, `replaying` | the inputs that were taken before are taken again |
//! | `turn` | one input after another |
//! | `announce` | the positions that a later start resumes from |

mod announce;
mod asked;
mod confirm;
mod firing;
mod following;
mod meter;
mod needs;
mod output;
mod rebuild;
mod replay;
mod replaying;
mod service;
mod setup;
mod start;
mod state;
mod turn;

pub(crate) use meter::Window;
pub use meter::{LongCall, Meter, Reading};
pub use service::Service;
pub use setup::Setup;
pub use state::Runner;
