//! The body of a request: its limits, and how it is read.

use std::io::Read;
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, EXPECT};
use hyper::{HeaderMap, StatusCode};
use tokio::time::timeout;

use crate::budget::Reserved;
use crate::refusal::{Answer, Refusal};

/// How much of a body is unpacked at once.
const UNPACKED_CHUNK: usize = 16 << 10;
/// What is read of a body that is refused, so that the client reads the answer.
const DISCARDED_BYTES_MAX: usize = 4 << 20;
const DISCARD_TIME: Duration = Duration::from_secs(1);

/// Refuses a declared length over the limit.
pub(crate) fn check_length(headers: &HeaderMap, bytes_max: usize) -> Result<(), Refusal> {
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    let length = length.and_then(|length| length.parse().ok());
    if length.is_some_and(|length: u64| length > bytes_max as u64) {
        Err(too_large(bytes_max))
    } else {
        Ok(())
    }
}

/// The content type in lower case, without its parameters.
pub(crate) fn content_type(headers: &HeaderMap) -> Option<String> {
    let kind = String::from_utf8_lossy(headers.get(CONTENT_TYPE)?.as_bytes());
    let essence = kind.split(';').next().unwrap_or_default();
    Some(essence.trim().to_ascii_lowercase())
}

/// Refuses compressed bodies.
pub(crate) fn check_encoding(headers: &HeaderMap) -> Result<(), Refusal> {
    if is_gzip(headers)? {
        Err(unsupported("gzip", ""))
    } else {
        Ok(())
    }
}

/// Whether the body is packed by gzip; refuses any other encoding.
pub(crate) fn is_gzip(headers: &HeaderMap) -> Result<bool, Refusal> {
    let mut is_gzip = false;
    for encoding in headers.get_all(CONTENT_ENCODING) {
        let encoding = String::from_utf8_lossy(encoding.as_bytes());
        match encoding.trim().to_ascii_lowercase().as_str() {
            "identity" => {}
            "gzip" | "x-gzip" if !is_gzip => is_gzip = true,
            _ => return Err(unsupported(&encoding, ": gzip is")),
        }
    }
    Ok(is_gzip)
}

fn unsupported(encoding: &str, but: &str) -> Refusal {
    let line = format!("the content encoding {encoding} is not supported{but}");
    Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, line)
}

/// Unpacks a body to at most `bytes_max`. No more memory is taken than that, whatever the body claims.
pub(crate) fn unpack(
    packed: &[u8],
    bytes_max: usize,
    reserved: &mut Reserved<'_>,
) -> Result<Vec<u8>, Refusal> {
    let mut reader = MultiGzDecoder::new(packed);
    let mut body = Vec::new();
    let mut chunk = vec![0; UNPACKED_CHUNK];
    loop {
        let read = reader.read(&mut chunk).map_err(|error| {
            let line = format!("the body is not gzip: {error}");
            Refusal::new(StatusCode::BAD_REQUEST, line)
        })?;
        if read == 0 {
            return Ok(body);
        }
        if body.len() + read > bytes_max {
            return Err(too_large(bytes_max));
        }
        reserved.grow(read as u64)?;
        body.extend_from_slice(&chunk[..read]);
    }
}

/// Reads a body of at most `bytes_max` within `limit`.
pub(crate) async fn read_body(
    body: &mut Incoming,
    bytes_max: usize,
    limit: Duration,
    reserved: &mut Reserved<'_>,
) -> Result<Vec<u8>, Refusal> {
    let read = async {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let line = format!("the body cannot be read: {error}");
                Refusal::new(StatusCode::BAD_REQUEST, line)
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if bytes.len() + data.len() > bytes_max {
                return Err(too_large(bytes_max));
            }
            reserved.grow(data.len() as u64)?;
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    };
    timeout(limit, read).await.map_err(|_| {
        let line = "the body did not arrive in time";
        Refusal::new(StatusCode::REQUEST_TIMEOUT, line)
    })?
}

/// Answers a request that is refused before its body was read.
pub(crate) async fn refuse_head(
    refusal: Refusal,
    headers: &HeaderMap,
    body: &mut Incoming,
) -> Answer {
    // A client that asks before it sends the body sends none.
    if headers.contains_key(EXPECT) {
        refusal.answer()
    } else {
        refuse_body(refusal, body).await
    }
}

/// Answers a request that is refused, and reads what is left of its body: a client that is still writing would not see
/// the answer.
pub(crate) async fn refuse_body(refusal: Refusal, body: &mut Incoming) -> Answer {
    if refusal.status != StatusCode::REQUEST_TIMEOUT {
        discard_body(body).await;
    }
    refusal.answer()
}

async fn discard_body(body: &mut Incoming) {
    let discard = async {
        let mut left = DISCARDED_BYTES_MAX;
        while let Some(Ok(frame)) = body.frame().await {
            let read = frame.data_ref().map_or(0, |data| data.len());
            if read >= left {
                return;
            }
            left -= read;
        }
    };
    let _ = timeout(DISCARD_TIME, discard).await;
}

fn too_large(bytes_max: usize) -> Refusal {
    let line = format!("the body is larger than {bytes_max} bytes");
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, line)
}
