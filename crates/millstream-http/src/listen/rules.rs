//! What a source accepts.

use std::time::Duration;

use hyper::Method;
use millstream_flow::error::Cause;

use super::body::{Body, CheckItem, Item};
use super::signature::Signature;
use crate::rules::ServerRules;
use crate::url::UrlPath;

/// The methods that a source may accept.
const METHODS: [Method; 5] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
];

/// What a source accepts.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) paths: Vec<UrlPath>,
    /// The path of health checks.
    pub(super) health: Option<UrlPath>,
    pub(super) methods: Vec<String>,
    pub(super) item: Item,
    pub(super) body: Body,
    pub(super) signature: Option<Signature>,
    /// How long a request waits for the reply of the flow.
    pub(super) reply: Option<Duration>,
    /// Checks an item as its reader does.
    pub(super) check_item: Option<CheckItem>,
    pub(super) body_bytes_max: usize,
    pub(super) server: ServerRules,
}

impl Rules {
    /// The methods, as a header has them.
    pub(super) fn allowed(&self) -> String {
        self.methods.join(", ")
    }

    /// Refuses what no request can match, and items that requests do not have.
    pub(super) fn check(&self) -> Result<(), Cause> {
        if self.paths.is_empty() || self.methods.is_empty() {
            return Err("a source of requests has a path and a method".into());
        }
        for path in &self.paths {
            path.check()?;
        }
        if let Some(path) = &self.health {
            path.check().map_err(|error| format!("health: {error}"))?;
        }
        for name in &self.methods {
            let Some(method) = METHODS.iter().find(|known| known.as_str() == name) else {
                return Err(format!(
                    "the methods of a source are GET, POST, PUT, PATCH and DELETE, not \"{name}\""
                )
                .into());
            };
            let has_body = *method != Method::GET && *method != Method::DELETE;
            if self.item == Item::Body && !has_body {
                return Err(format!(
                    "a {name} may have no body: it is an item as a request (item=\"request\")"
                )
                .into());
            }
        }
        if self.item == Item::Request && self.body == Body::Lines {
            return Err("lines are items of their own: body=\"lines\" needs item=\"body\"".into());
        }
        if self.item == Item::Body && self.reply.is_some() {
            return Err("a reply is to a request: it needs item=\"request\"".into());
        }
        if let Some(signature) = &self.signature {
            signature.check()?;
        }
        self.server.check()
    }
}
