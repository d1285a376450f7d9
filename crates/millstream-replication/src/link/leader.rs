//! The state that all connections of a leader share.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use millstream_link::{ListenerSide, Secret};

use super::served::Served;

/// The state that all connections of a leader share.
pub(super) struct Leader<'a> {
    pub served: Vec<Served>,
    pub secret: Option<Secret>,
    pub tls: ListenerSide,
    pub heartbeat: Duration,
    /// Whether followers are let count by themselves.
    pub admits: bool,
    pub stop: &'a AtomicBool,
}
