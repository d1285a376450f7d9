//! Services whose components are Python objects, on the runner of the crate `millstream`.
//!
//! The Python half (`_service_interfaces.py`) reads interfaces from annotations; here values go between Python objects
//! and records, field by field, with no text or dict between.

mod classes;
mod decode;
mod encode;
mod gateway;
mod interface;
mod outlet;
mod runner;
mod test;

pub(crate) use gateway::Gateway;
pub(crate) use interface::Interface;
pub(crate) use outlet::{Outlet, Recorder};
pub(crate) use runner::{
    Clock, Meter, OneOffs, Reporter, Service, When, service_ask, service_has_input,
};
pub(crate) use test::{
    Trial, service_export, service_history, service_latency, service_test, service_variants,
};
