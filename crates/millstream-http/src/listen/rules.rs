//! What a source accepts.

use std::time::Duration;

use millstream_flow::error::Cause;

use super::body::Body;

/// What a source accepts.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) path: String,
    pub(super) body: Body,
    pub(super) token: Option<String>,
    pub(super) body_bytes_max: usize,
    pub(super) connections_max: usize,
    pub(super) timeout: Duration,
}

impl Rules {
    /// Refuses what no request can match.
    pub(super) fn check(&self) -> Result<(), Cause> {
        if !self.path.starts_with('/') {
            return Err(format!("the path begins with /, unlike \"{}\"", self.path).into());
        }
        match &self.token {
            Some(token)
                if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) =>
            {
                Err("a token is one or more visible ASCII characters".into())
            }
            _ => Ok(()),
        }
    }
}
