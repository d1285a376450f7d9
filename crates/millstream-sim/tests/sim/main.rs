//! The short forms of the proofs, as part of `make test`. The long ones are run by hand: see `docs/how-we-test.md`.

mod cluster;
mod crashes;
mod fuzzed;
mod late_syncs;
mod queues;
