//! A request as an item: its method, path, query, headers and body.
//!
//! ```text
//! item: "\0received", u8 version (2), id, method, path, query, headers, then the body
//! ```
//!
//! The [parts](crate::parts) are bytes.

use hyper::Method;
use hyper::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use hyper::http::request::Parts;

use crate::parts::{put, put_headers, take, take_headers, take_text};

/// The begin of an item.
const MAGIC: &[u8] = b"\0received\x02";

/// A request that a source has received, for [`Item::Request`](crate::Item::Request).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received<'a> {
    /// Its id: that of no other request of the source. It is recorded with the request.
    pub id: &'a str,
    /// Its method.
    pub method: &'a str,
    /// Its path, as the source has it.
    pub path: &'a str,
    /// Its query, without the question mark; escapes are not decoded.
    pub query: &'a str,
    /// Its headers, with names in lower case, in their order. Those of a login are missing: `authorization`,
    /// `proxy-authorization` and `cookie`.
    pub headers: Vec<(&'a str, &'a [u8])>,
    /// Its body, unpacked.
    pub body: &'a [u8],
}

impl<'a> Received<'a> {
    /// Reads an item.
    ///
    /// # Errors
    /// It is none of a source with [`Item::Request`](crate::Item::Request).
    pub fn read(item: &'a [u8]) -> Result<Self, String> {
        Self::parse(item)
            .ok_or_else(|| "it is no request of a source with item=\"request\"".to_owned())
    }

    fn parse(item: &'a [u8]) -> Option<Self> {
        let mut rest = item.strip_prefix(MAGIC)?;
        let id = take_text(&mut rest)?;
        let method = take_text(&mut rest)?;
        let path = take_text(&mut rest)?;
        let query = take_text(&mut rest)?;
        let headers = take_headers(&mut rest, take)?;
        Some(Received {
            id,
            method,
            path,
            query,
            headers,
            body: rest,
        })
    }
}

/// Whether a request of this method may have no body, whatever bodies are.
pub(super) fn may_be_empty(method: &Method) -> bool {
    *method == Method::GET || *method == Method::DELETE
}

/// Makes the item of a request for `path`, as the source has it, with this body.
pub(super) fn item_of(
    request: &Parts,
    (id, path): (&str, &str),
    body: &[u8],
) -> Result<Vec<u8>, String> {
    let secret = [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE];
    let headers = request.headers.iter();
    let headers: Vec<_> = headers.filter(|(name, _)| !secret.contains(name)).collect();
    let mut item = MAGIC.to_vec();
    put(&mut item, id.as_bytes())?;
    put(&mut item, request.method.as_str().as_bytes())?;
    put(&mut item, path.as_bytes())?;
    put(
        &mut item,
        request.uri.query().unwrap_or_default().as_bytes(),
    )?;
    let headers = headers.into_iter();
    put_headers(
        &mut item,
        headers.map(|(name, value)| (name.as_str(), value.as_bytes())),
    )?;
    item.extend_from_slice(body);
    Ok(item)
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    #[test]
    fn an_item_has_what_the_request_has_without_its_secrets() {
        let request = Request::put("/a%20b?c=d&c=%ff")
            .header("X-Of", "one")
            .header("X-Of", &b"\xff"[..])
            .header("Authorization", "Bearer hidden")
            .header("Cookie", "hidden")
            .body(())
            .unwrap();
        let (parts, ()) = request.into_parts();
        let item = item_of(&parts, ("1b-1", "/a b"), b"\0body").unwrap();
        assert!(!item.windows(6).any(|window| window == b"hidden"));
        let received = Received::read(&item).unwrap();
        assert_eq!((received.id, received.method), ("1b-1", "PUT"));
        assert_eq!(received.path, "/a b");
        assert_eq!(received.query, "c=d&c=%ff");
        assert_eq!(received.headers, [("x-of", &b"one"[..]), ("x-of", b"\xff")]);
        assert_eq!(received.body, b"\0body");
        for length in 0..item.len() - received.body.len() {
            assert!(Received::read(&item[..length]).is_err(), "{length}");
        }
    }
}
