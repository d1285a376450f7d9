//! Seeded worlds that crash, damage and starve a journal, a server of queues or the processes of a flow, and check the
//! result.
//!
//! A seed repeats a world exactly: the machine, its disk, its clock and its random numbers are simulated
//! (`millstream_journal::storage::simulated`), and one thread plays all processes. The code under test is the journal's
//! own.
//!
//! ```
//! use millstream_sim::crash::{self, Kind};
//!
//! let tally = crash::world(1, Kind::Sound);
//! assert_eq!(tally.failure, None);
//! ```

pub mod bug;
#[cfg(feature = "worlds")]
pub mod cluster;
#[cfg(feature = "worlds")]
pub mod crash;
pub mod frames;
pub mod fuzzed;
#[cfg(feature = "worlds")]
pub mod queues;
#[cfg(feature = "worlds")]
pub mod report;
