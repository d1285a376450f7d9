//! The state that all connections of a leader share.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::secret::Secret;
use super::served::Served;
use super::tls::LeaderSide;

/// The state that all connections of a leader share.
pub(super) struct Leader<'a> {
    pub served: Vec<Served>,
    pub secret: Option<Secret>,
    pub tls: LeaderSide,
    pub heartbeat: Duration,
    pub stop: &'a AtomicBool,
}
