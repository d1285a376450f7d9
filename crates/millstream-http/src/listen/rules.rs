//! What a source accepts.

use millstream_flow::error::Cause;

use super::body::{Body, CheckItem};
use crate::rules::ServerRules;
use crate::url::UrlPath;

/// What a source accepts.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) path: UrlPath,
    pub(super) body: Body,
    /// Checks an item as its reader does.
    pub(super) check_item: Option<CheckItem>,
    pub(super) body_bytes_max: usize,
    pub(super) server: ServerRules,
}

impl Rules {
    /// Refuses what no request can match.
    pub(super) fn check(&self) -> Result<(), Cause> {
        self.path.check()?;
        self.server.check()
    }
}
