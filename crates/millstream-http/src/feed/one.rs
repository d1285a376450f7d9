//! The requests of a server that is one feed.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Either;
use hyper::Request;
use hyper::body::Incoming;
use hyper::http::request::Parts;

use super::clients::Clients;
use super::connection::{Answer, Connection, Handler, feed};
use crate::places::Purpose;
use crate::refusal::Refusal;
use crate::rules::ServerRules;
use crate::url::UrlPath;

/// The requests of a server that is one feed.
pub(super) struct OneFeed {
    pub(super) path: UrlPath,
    pub(super) rules: ServerRules,
    pub(super) clients: Arc<Clients>,
}

impl Handler for OneFeed {
    const NAME: &'static str = "http feed";

    fn timeout(&self) -> Duration {
        self.rules.timeout
    }

    async fn answer(&self, connection: &Connection, request: Request<Incoming>) -> Answer {
        let (mut parts, _) = request.into_parts();
        let outcome = self.outcome(connection, &mut parts);
        let mut answer = outcome.unwrap_or_else(|refusal| refusal.answer().map(Either::Left));
        self.rules.allow_page(&parts.headers, answer.headers_mut());
        answer
    }
}

impl OneFeed {
    fn outcome(&self, connection: &Connection, request: &mut Parts) -> Result<Answer, Refusal> {
        if let Some(answer) = self.rules.check_page(request, "GET")? {
            return Ok(answer.map(Either::Left));
        }
        self.rules.check_reader(request)?;
        connection.place.confirm(Purpose::Client)?;
        self.path.check_request(request.uri.path())?;
        feed(self.rules.timeout, &self.clients, connection, request)
    }
}
