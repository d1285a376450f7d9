//! The benchmarks of the program: what they measure, and how it is put into numbers.

pub mod embedded;
pub mod figures;
pub mod flow;
pub mod idle;
pub mod journal;
pub mod market_spread;
pub mod peers;
pub mod queue;
pub mod service;
