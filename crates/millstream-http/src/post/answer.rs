//! What an answer of a server means: an outage, records that it does not take, or neither.

use std::time::Duration;

use millstream_flow::outbox::DeliveryError;
use ureq::Body;
use ureq::http::header::RETRY_AFTER;
use ureq::http::{Response, StatusCode};

/// What is read of an answer.
const ANSWER_BYTES_MAX: u64 = 64 << 10;
/// What an error quotes of it, in characters.
const QUOTED_MAX: usize = 200;
/// The longest delay that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// Why a request has not succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// It is repeated, at the earliest after this time.
    Retry(String, Duration),
    /// The server does not take this body.
    Refused(String),
    /// The server takes none.
    Fatal(String),
}

impl Failed {
    /// What an error of the connection means.
    pub(super) fn of_connection(error: &ureq::Error) -> Self {
        match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => Failed::Fatal(error.to_string()),
            error => Failed::Retry(error.to_string(), Duration::ZERO),
        }
    }

    /// What an answer that is no success means; `said` is quoted of it.
    pub(super) fn of_answer(answer: &Response<Body>, said: &str) -> Self {
        let status = answer.status();
        let what = if said.is_empty() {
            format!("the answer is {status}")
        } else {
            format!("the answer is {status}: {said}")
        };
        match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                Failed::Retry(what, retry_after(answer))
            }
            status if status.is_server_error() => Failed::Retry(what, retry_after(answer)),
            // They say nothing of the records: no record would be taken.
            StatusCode::UNAUTHORIZED
            | StatusCode::PAYMENT_REQUIRED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::PROXY_AUTHENTICATION_REQUIRED
            | StatusCode::GONE => Failed::Fatal(what),
            status if status.is_client_error() => Failed::Refused(what),
            _ => Failed::Fatal(what),
        }
    }

    /// True if this failure says more of a batch than `other`.
    pub(super) fn is_over(&self, other: &Self) -> bool {
        match (self, other) {
            (Failed::Fatal(_), Failed::Fatal(_)) => false,
            (Failed::Fatal(_), _) => true,
            // The longest delay that the server asks for.
            (Failed::Retry(_, delay), Failed::Retry(_, known)) => delay > known,
            _ => false,
        }
    }

    /// The error of a delivery; `record` is named if the delivery has others.
    pub(super) fn error(self, record: Option<u64>) -> DeliveryError {
        let named = |what: String| match record {
            Some(number) => format!("record {number}: {what}"),
            None => what,
        };
        match self {
            Failed::Retry(what, delay) if delay.is_zero() => DeliveryError::retry(named(what)),
            Failed::Retry(what, delay) => DeliveryError::retry_after(named(what), delay),
            Failed::Refused(what) => DeliveryError::refused(named(what)),
            Failed::Fatal(what) => DeliveryError::fatal(named(what)),
        }
    }
}

/// Reads the answer, so that the connection can be used again.
pub(super) fn read(answer: &mut Response<Body>) -> Vec<u8> {
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
    // The status says what counts.
    body.read_to_vec().unwrap_or_default()
}

/// What an error quotes of the body of an answer: the begin of its first line.
pub(super) fn quoted(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(QUOTED_MAX).collect()
}

fn retry_after(answer: &Response<Body>) -> Duration {
    let seconds = answer.headers().get(RETRY_AFTER);
    let seconds = seconds.and_then(|seconds| seconds.to_str().ok()?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or_default()).min(RETRY_AFTER_MAX)
}
