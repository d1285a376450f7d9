//! Seeded worlds that crash, damage and starve a journal or a server of queues, and judge what is left of it.
//!
//! Everything here is repeated by its seed: the machine, its disk, its clock and its random numbers are simulated
//! (`millstream_journal::storage::simulated`), and one thread plays all processes. What is judged is the journal's own code.
//!
//! ```
//! use millstream_sim::crash::{self, Kind};
//!
//! let tally = crash::world(1, Kind::Sound);
//! assert_eq!(tally.failure, None);
//! ```

pub mod crash;
pub mod queues;
pub mod random;
pub mod report;
