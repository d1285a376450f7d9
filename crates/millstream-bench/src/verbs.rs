//! The verbs: their options, and what each prints.

pub mod cluster;
pub mod flow;
pub mod http;
pub mod journal;
pub mod market_spread;
pub mod queue;
pub mod service;
