//! A service that is looked at, and what a look finds.

use super::look::Look;
use super::service::ServiceOf;
use super::traced::Traced;
use crate::sections::service_figures::{PartSnapshot, ServiceSnapshot};
use crate::stacks::StackOf;

/// What a look has found.
#[derive(Clone, Default)]
pub(super) struct Looked {
    pub(super) services: Vec<ServiceSnapshot>,
    pub(super) processes: Vec<PartSnapshot>,
    /// Why the files of a system cannot be read.
    pub(super) error: Option<String>,
}

/// A service, and what is remembered of it.
pub(super) struct Watched {
    pub(super) service: ServiceOf,
    pub(super) look: Look,
    pub(super) traced: Traced,
}

impl Watched {
    pub(super) fn new(service: ServiceOf, stacks: Option<StackOf>) -> Self {
        Watched {
            service,
            look: Look::new(stacks),
            traced: Traced::default(),
        }
    }
}
