//! Sources of requests, as Python sees them.

use std::time::Duration;

use millstream_flow::error::Cause;
use millstream_http::{Body, Digest, Hash, Item, Received, Signature};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::bytes::{ByteSource, bound_call};
use super::decode::Decode;
use crate::error::usage;

/// How a sender signs; the tolerance in seconds.
#[derive(FromPyObject)]
pub(crate) struct SignatureParts {
    scheme: String,
    secrets: Vec<String>,
    tolerance: f64,
    verify_token: Option<String>,
    header: String,
    prefix: String,
    hash: String,
    base64: bool,
}

impl SignatureParts {
    fn signature(&self) -> PyResult<Signature> {
        let wrong = |what: &str| PyValueError::new_err(what.to_owned());
        let (first, others) = self
            .secrets
            .split_first()
            .ok_or_else(|| wrong("a signature has a secret"))?;
        let mut signature = match self.scheme.as_str() {
            "stripe" => Signature::stripe(first),
            "slack" => Signature::slack(first),
            "meta" => {
                let verify_token = self.verify_token.as_deref().unwrap_or_default();
                Signature::meta(first, verify_token)
            }
            _ => {
                let hash = match self.hash.as_str() {
                    "sha256" => Hash::Sha256,
                    "sha512" => Hash::Sha512,
                    "sha1" => Hash::Sha1,
                    other => {
                        let what = format!(
                            "the hash of a signature is \"sha256\", \"sha512\" or \"sha1\", not \"{other}\""
                        );
                        return Err(PyValueError::new_err(what));
                    }
                };
                let base64 = self.base64;
                Signature::hmac(&self.header, &self.prefix, Digest { hash, base64 }, first)
            }
        };
        for secret in others {
            signature = signature.or_secret(secret);
        }
        let tolerance = Duration::try_from_secs_f64(self.tolerance)?;
        Ok(signature.tolerance(tolerance))
    }
}

/// A request in an item: id, method, path, query, headers with bytes, body.
type Parts<'py> = (
    String,
    String,
    String,
    String,
    Vec<(String, Bound<'py, PyBytes>)>,
    Bound<'py, PyBytes>,
);

/// Reads an item of a source with `item="request"`.
#[pyfunction]
pub(crate) fn http_received<'py>(py: Python<'py>, item: &[u8]) -> PyResult<Parts<'py>> {
    let received = Received::read(item).map_err(PyValueError::new_err)?;
    let headers = received.headers.iter();
    Ok((
        received.id.to_owned(),
        received.method.to_owned(),
        received.path.to_owned(),
        received.query.to_owned(),
        headers
            .map(|(name, value)| ((*name).to_owned(), PyBytes::new(py, value)))
            .collect(),
        PyBytes::new(py, received.body),
    ))
}

fn body_of(body: &str) -> PyResult<Body> {
    match body {
        "json" => Ok(Body::Json),
        "lines" => Ok(Body::Lines),
        "bytes" => Ok(Body::Bytes),
        "text" => Ok(Body::Text),
        "form" => Ok(Body::Form),
        other => Err(PyValueError::new_err(format!(
            "body is \"json\", \"lines\", \"bytes\", \"text\" or \"form\", not \"{other}\""
        ))),
    }
}

fn item_of(item: &str) -> PyResult<Item> {
    match item {
        "body" => Ok(Item::Body),
        "request" => Ok(Item::Request),
        other => Err(PyValueError::new_err(format!(
            "item is \"body\" or \"request\", not \"{other}\""
        ))),
    }
}

/// Listens on an address for requests; `timeout` in seconds.
#[pyfunction]
#[pyo3(signature = (address, *, paths, methods, health, item, body, signature, reply, token, origins, max_body, max_pending, max_connections, timeout, requests, decode, on_bound))]
#[expect(clippy::too_many_arguments, reason = "they are named in Python")]
pub(crate) fn http_listen(
    py: Python<'_>,
    address: &str,
    paths: Vec<String>,
    methods: Vec<String>,
    health: Option<&str>,
    item: &str,
    body: &str,
    signature: Option<SignatureParts>,
    reply: Option<f64>,
    token: Option<&str>,
    origins: Vec<String>,
    max_body: usize,
    max_pending: u64,
    max_connections: usize,
    timeout: f64,
    requests: Option<u64>,
    decode: Option<&Bound<'_, PyAny>>,
    on_bound: Option<Py<PyAny>>,
) -> PyResult<ByteSource> {
    let mut source = millstream_http::listen(address)
        .paths(paths.iter().map(String::as_str))
        .methods(methods.iter().map(String::as_str))
        .item(item_of(item)?)
        .body(body_of(body)?)
        .max_body(max_body)
        .max_pending(max_pending)
        .max_connections(max_connections)
        .timeout(Duration::try_from_secs_f64(timeout)?);
    if let Some(health) = health {
        source = source.health(health);
    }
    if let Some(parts) = signature {
        source = source.signature(parts.signature()?);
    }
    if let Some(limit) = reply {
        let limit = Duration::try_from_secs_f64(limit)?;
        source = source.reply(limit);
    }
    if let Some(token) = token {
        source = source.token(token);
    }
    for origin in origins {
        source = source.origin(&origin);
    }
    if let Some(count) = requests {
        source = source.requests(count);
    }
    if let Some(call) = on_bound {
        source = source.on_bound(bound_call(call));
    }
    let wrong = |why: Cause| usage(py, &why.to_string());
    source.check().map_err(wrong)?;
    Ok(ByteSource::of_http(source, Decode::read(decode)?))
}
