//! Answers to requests that are not accepted: a status and one line.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Response, StatusCode};

pub(crate) type Answer = Response<Full<Bytes>>;

/// Why a request is not accepted.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) line: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, line: impl Into<String>) -> Self {
        let header = match status {
            StatusCode::UNAUTHORIZED => Some((WWW_AUTHENTICATE, "Bearer")),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Some((RETRY_AFTER, "1"))
            }
            _ => None,
        };
        let header = header.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let line = line.into();
        Refusal {
            status,
            line,
            header,
        }
    }

    /// Another method than those of the path.
    pub(crate) fn method(allowed: &str, method: &Method) -> Self {
        let line = format!("the method is {allowed}, not {method}");
        let mut refusal = Self::new(StatusCode::METHOD_NOT_ALLOWED, line);
        let allowed = HeaderValue::from_str(allowed).ok();
        refusal.header = allowed.map(|allowed| (ALLOW, allowed));
        refusal
    }

    /// A signature that is missing or wrong.
    pub(crate) fn unsigned(line: &str) -> Self {
        let mut refusal = Self::new(StatusCode::UNAUTHORIZED, line);
        refusal.header = None;
        refusal
    }

    /// Another path than the one that is served.
    pub(crate) fn path(path: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("no such path: {path}"))
    }

    pub(crate) fn answer(self) -> Answer {
        let mut answer = text(
            self.status,
            "text/plain; charset=utf-8",
            format!("{}\n", self.line),
        );
        if let Some((name, value)) = self.header {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

/// The answer to a request that is accepted.
pub(crate) fn accepted(items: usize) -> Answer {
    json(format!("{{\"items\": {items}}}\n"))
}

/// The answer to a request that is accepted, and to which the flow has not replied.
pub(crate) fn unanswered(items: usize) -> Answer {
    let mut answer = accepted(items);
    *answer.status_mut() = StatusCode::ACCEPTED;
    answer
}

/// An answer of JSON.
pub(crate) fn json(body: String) -> Answer {
    text(StatusCode::OK, "application/json", body)
}

/// An answer of plain text, such as the challenge of a sender.
pub(crate) fn plain(body: String) -> Answer {
    let mut answer = text(StatusCode::OK, "text/plain; charset=utf-8", body);
    let no_sniff = HeaderValue::from_static("nosniff");
    answer
        .headers_mut()
        .insert(X_CONTENT_TYPE_OPTIONS, no_sniff);
    answer
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
