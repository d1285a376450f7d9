//! What tests of flows are made of: sources that follow a script, sinks that are lists, a clock that is
//! moved by hand, and trials of a flow with a crash at every point.

mod clock;
mod collected;
pub mod rehearsal;
pub mod replay;
mod script;
mod trial;

pub use clock::VirtualClock;
pub use collected::{CollectSink, Collected};
pub use script::{Mark, Script, items, script};
pub use trial::{Outputs, Trial};
