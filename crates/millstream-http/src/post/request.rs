//! A record that is a request of its own: what of it depends on the item, and its body.
//!
//! ```text
//! record:   "\0request", u8 version (1), optional key, optional method, optional URL, u32 LE count,
//!           count times: bytes name, bytes value, then the body
//! ```
//!
//! The [parts](crate::parts) are bytes, some optional.

use ureq::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use ureq::http::{HeaderName, HeaderValue, Method, Uri};

use crate::parts::{self, put_headers, put_optional, take_headers, take_optional, take_text};

/// The begin of a record. No JSON document begins so.
const MAGIC: &[u8] = b"\0request\x01";

/// The methods that a sink may send.
const METHODS: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

/// A request as the record of an outbox, for [`Batch::Requests`](crate::Batch::Requests).
///
/// ```
/// use millstream_http::PostRequest;
///
/// let request = PostRequest {
///     key: Some(b"order 7".to_vec()),
///     url: Some("https://example.com/orders/7".to_owned()),
///     method: Some("PUT".to_owned()),
///     body: b"{\"quantity\": 2}".to_vec(),
///     ..PostRequest::default()
/// };
/// let mut record = Vec::new();
/// request.encode(&mut record)?;
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostRequest {
    /// Requests of one key are sent one after the other, in the order of their records. `None`: in no order with any
    /// other.
    pub key: Option<Vec<u8>>,
    /// The method: `POST`, `PUT`, `PATCH` or `DELETE`. `None`: that of the sink.
    pub method: Option<String>,
    /// The URL. `None`: that of the sink.
    pub url: Option<String>,
    /// Headers, which replace those of the sink that have the same name.
    pub headers: Vec<(String, String)>,
    /// The body. A `DELETE` is sent without it.
    pub body: Vec<u8>,
}

impl PostRequest {
    /// Appends the record of this request.
    ///
    /// # Errors
    /// Why it cannot be sent: a method, a URL or a header that is none. The text has no value of a header: it may be a
    /// secret.
    pub fn encode(&self, record: &mut Vec<u8>) -> Result<(), String> {
        if let Some(name) = &self.method {
            method(name)?;
        }
        if let Some(url) = &self.url {
            check_url(url)?;
        }
        for (name, value) in &self.headers {
            header(name, value)?;
        }
        record.extend_from_slice(MAGIC);
        put_optional(record, self.key.as_deref())?;
        put_optional(record, self.method.as_deref().map(str::as_bytes))?;
        put_optional(record, self.url.as_deref().map(str::as_bytes))?;
        let headers = self.headers.iter();
        put_headers(
            record,
            headers.map(|(name, value)| (name.as_str(), value.as_bytes())),
        )?;
        record.extend_from_slice(&self.body);
        Ok(())
    }

    /// Returns the body of a record, which is the whole record if it is none of a request.
    #[must_use]
    pub fn body_of(record: &[u8]) -> &[u8] {
        View::read(record).map_or(record, |request| request.body)
    }
}

/// A request in a record.
#[derive(Debug, Default)]
pub(super) struct View<'a> {
    pub(super) key: Option<&'a [u8]>,
    pub(super) method: Option<&'a str>,
    pub(super) url: Option<&'a str>,
    pub(super) headers: Vec<(&'a str, &'a str)>,
    pub(super) body: &'a [u8],
}

impl<'a> View<'a> {
    /// Reads a record; `None` if it is none of a request.
    pub(super) fn read(record: &'a [u8]) -> Option<Self> {
        let mut rest = record.strip_prefix(MAGIC)?;
        let key = take_optional(&mut rest)?;
        let method = text(take_optional(&mut rest)?)?;
        let url = text(take_optional(&mut rest)?)?;
        let headers = take_headers(&mut rest, take_text)?;
        Some(View {
            key,
            method,
            url,
            headers,
            body: rest,
        })
    }
}

/// Whether a record is one of a sink with a request for each record.
pub(super) fn is_request(record: &[u8]) -> bool {
    record.starts_with(MAGIC)
}

/// Reads a method that may be sent.
pub(super) fn method(name: &str) -> Result<Method, String> {
    let found = METHODS.into_iter().find(|method| method.as_str() == name);
    found.ok_or_else(|| format!("the method is POST, PUT, PATCH or DELETE, not \"{name}\""))
}

/// Refuses what is no URL, or has a secret that errors would show.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    let what = "the URL begins with http:// or https:// and a host";
    let uri: Uri = url.parse().map_err(|_| what)?;
    match (uri.scheme_str(), uri.authority()) {
        (Some("http" | "https"), Some(host)) if !host.as_str().contains('@') => Ok(()),
        (Some("http" | "https"), Some(_)) => {
            Err("the URL has a password; pass it as a header".to_owned())
        }
        _ => Err(what.to_owned()),
    }
}

/// Reads a header of a request.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    parts::header(name, value, ("sink", &[CONTENT_LENGTH, TRANSFER_ENCODING]))
}

/// An optional text; `None` if it is none.
fn text(bytes: Option<&[u8]>) -> Option<Option<&str>> {
    bytes
        .map(|bytes| std::str::from_utf8(bytes).ok())
        .map_or(Some(None), |text| text.map(Some))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> PostRequest {
        PostRequest {
            key: Some(b"\xff\0".to_vec()),
            method: Some("PUT".to_owned()),
            url: Some("http://a/b?c=d".to_owned()),
            headers: vec![("X-Of".to_owned(), "me".to_owned())],
            body: b"\0request".to_vec(),
        }
    }

    #[test]
    fn a_record_has_what_the_request_has() {
        let mut record = Vec::new();
        let mut empty = Vec::new();
        full().encode(&mut record).unwrap();
        let view = View::read(&record).unwrap();
        assert_eq!(view.key, Some(&b"\xff\0"[..]));
        assert_eq!(
            (view.method, view.url),
            (Some("PUT"), Some("http://a/b?c=d"))
        );
        assert_eq!(view.headers, [("X-Of", "me")]);
        assert_eq!(view.body, b"\0request");
        PostRequest::default().encode(&mut empty).unwrap();
        let view = View::read(&empty).unwrap();
        assert_eq!((view.key, view.method, view.url), (None, None, None));
        assert!(view.headers.is_empty() && view.body.is_empty());
    }

    #[test]
    fn a_damaged_record_is_none() {
        let mut record = Vec::new();
        full().encode(&mut record).unwrap();
        let head = record.len() - full().body.len();
        for length in 0..head {
            assert!(View::read(&record[..length]).is_none(), "{length}");
        }
        assert!(!is_request(b"[1]") && !is_request(b"") && is_request(&record));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_without_its_secrets() {
        let ok = full();
        let mut record = Vec::new();
        let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
        for (request, says) in [
            (
                PostRequest {
                    method: Some("GET".to_owned()),
                    ..ok.clone()
                },
                "not \"GET\"",
            ),
            (
                PostRequest {
                    url: Some("a/b".to_owned()),
                    ..ok.clone()
                },
                "begins with http://",
            ),
            (
                PostRequest {
                    url: Some("http://me:secret@a/".to_owned()),
                    ..ok.clone()
                },
                "pass it as a header",
            ),
            (
                PostRequest {
                    headers: header("a b", "secret"),
                    ..ok.clone()
                },
                "\"a b\"",
            ),
            (
                PostRequest {
                    headers: header("X", "secret\r\nY: 1"),
                    ..ok.clone()
                },
                "the header X has characters",
            ),
            (
                PostRequest {
                    headers: header("content-length", "1"),
                    ..ok.clone()
                },
                "is set by the sink",
            ),
        ] {
            let error = request.encode(&mut record).unwrap_err();
            assert!(error.contains(says) && !error.contains("secret"), "{error}");
            assert!(record.is_empty());
        }
    }
}
