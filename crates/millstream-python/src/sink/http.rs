//! Sinks that post, and feeds for browsers, as Python sees them.

use std::path::PathBuf;
use std::time::Duration;

use millstream_flow::error::{Cause, chain};
use millstream_flow::outbox::Outbox;
use millstream_http::{Batch, OAuth, Reply};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::bytes::ByteSink;
use super::outbox::{Retry, limited};
use super::post_encode::{Parts, PostEncoder};
use crate::error::usage;
use crate::source::{ByteSource, bound_call};

/// The most bytes of a delivery whose requests are parallel.
const PARALLEL_BYTES: usize = 16 << 20;

/// Client credentials: the URL of the token server, the client, its secret, whether both are in the body, further
/// parameters.
type Credentials = (String, String, String, bool, Vec<(String, String)>);

/// A sink that posts to a URL; times in seconds. Bodies are what `encode` makes of the items. Without a URL `parts` has
/// one for each item.
#[pyfunction]
#[pyo3(signature = (url, encode, *, body, parts, checks_json, method, parallel, oauth, headers, timeout, ca, retry, max_bytes, max_age, batch, wait_at_end))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn http_post(
    url: Option<&str>,
    encode: Py<PyAny>,
    body: &str,
    parts: Option<Parts>,
    checks_json: bool,
    method: &str,
    parallel: usize,
    oauth: Option<Credentials>,
    headers: Vec<(String, String)>,
    timeout: f64,
    ca: Option<PathBuf>,
    retry: Retry,
    max_bytes: u64,
    max_age: Option<f64>,
    batch: usize,
    wait_at_end: f64,
) -> PyResult<ByteSink> {
    let bodies = match body {
        "array" => Batch::Array,
        "lines" => Batch::Lines,
        "each" => Batch::Requests,
        other => {
            let what = format!("body is \"array\", \"lines\" or \"each\", not \"{other}\"");
            return Err(PyValueError::new_err(what));
        }
    };
    let timeout = Duration::try_from_secs_f64(timeout)?;
    let mut post = url.map_or_else(millstream_http::post_requests, millstream_http::post);
    post = post.batch(bodies).timeout(timeout);
    post = post.method(method).parallel(parallel);
    if let Some(credentials) = oauth {
        post = post.oauth(oauth_of(credentials));
    }
    let is_json = headers.iter().all(|(name, value)| {
        !name.eq_ignore_ascii_case("content-type") || millstream_http::is_json_type(value)
    });
    for (name, value) in headers {
        post = post.header(&name, &value);
    }
    if let Some(ca) = ca {
        post = post.ca(ca);
    }
    let mut outbox = limited(
        Outbox::new(post),
        retry,
        max_bytes,
        max_age,
        batch,
        wait_at_end,
    )?;
    if parallel > 1 {
        outbox = outbox.batch_bytes(PARALLEL_BYTES);
    }
    let encoder = PostEncoder::new(encode, checks_json && is_json, parts);
    Ok(ByteSink::of_post(outbox, encoder))
}

fn oauth_of((url, id, secret, in_body, parameters): Credentials) -> OAuth {
    let mut oauth = OAuth::new(&url, &id, &secret);
    if in_body {
        oauth = oauth.in_body();
    }
    for (name, value) in parameters {
        oauth = oauth.parameter(&name, &value);
    }
    oauth
}

/// A feed of a stream for browsers; `timeout` in seconds. Items are the text that `encode` makes of them.
#[pyfunction]
#[pyo3(signature = (address, encode, *, path, token, origins, max_client, max_connections, timeout, on_bound))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn http_feed(
    py: Python<'_>,
    address: &str,
    encode: Py<PyAny>,
    path: &str,
    token: Option<&str>,
    origins: Vec<String>,
    max_client: usize,
    max_connections: usize,
    timeout: f64,
    on_bound: Option<Py<PyAny>>,
) -> PyResult<ByteSink> {
    let timeout = Duration::try_from_secs_f64(timeout)?;
    let mut feed = millstream_http::feed(address)
        .path(path)
        .max_client(max_client)
        .max_connections(max_connections)
        .timeout(timeout);
    if let Some(token) = token {
        feed = feed.token(token);
    }
    for origin in origins {
        feed = feed.origin(&origin);
    }
    if let Some(call) = on_bound {
        feed = feed.on_bound(bound_call(call));
    }
    let wrong = |why: Cause| usage(py, &why.to_string());
    feed.check().map_err(wrong)?;
    Ok(ByteSink::of_feed(feed, encode))
}

/// The sink of the replies to the requests of `source`, which `encode` makes of the items.
#[pyfunction]
pub(crate) fn http_replies(
    source: &Bound<'_, ByteSource>,
    encode: Py<PyAny>,
) -> PyResult<ByteSink> {
    let replies = source.get().replies();
    let replies = replies.map_err(|why| usage(source.py(), &chain(&*why).to_string()))?;
    Ok(ByteSink::of_replies(replies, encode))
}

/// The item of a reply.
#[pyfunction]
pub(crate) fn http_reply<'py>(
    py: Python<'py>,
    request: String,
    status: u16,
    headers: Vec<(String, String)>,
    body: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let reply = Reply {
        request,
        status,
        headers,
        body: body.to_vec(),
    };
    let mut item = Vec::new();
    reply.encode(&mut item).map_err(PyValueError::new_err)?;
    Ok(PyBytes::new(py, &item))
}
