//! Tools for tests of flows: sources that follow a script, sinks that are lists, a clock that a test sets, and
//! trials of a flow with a crash at every point.

mod collected;
mod script;
mod trial;

pub use crate::replay::VirtualClock;
pub use collected::{CollectSink, Collected};
pub use script::{Mark, Script, items, script};
pub use trial::{Outputs, Trial};
