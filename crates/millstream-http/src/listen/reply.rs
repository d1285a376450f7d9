//! A reply of the flow to a request, and the item that carries it to the requests that wait.
//!
//! ```text
//! item: "\0reply", u8 version (1), the id of the request, u32 LE status, headers, then the body
//! ```
//!
//! The [parts](crate::parts) are bytes.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderName, TRANSFER_ENCODING};
use hyper::{Response, StatusCode};

use crate::parts::{header, put, put_headers, take_headers, take_length, take_text};
use crate::refusal::Answer;

/// The begin of an item.
const MAGIC: &[u8] = b"\0reply\x01";

/// The headers that the server sets.
const OWN: [HeaderName; 3] = [CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING];

/// The answer of a flow to a request, for [`Listen::replies`](crate::Listen::replies).
///
/// ```
/// use millstream_http::Reply;
///
/// let reply = Reply {
///     request: "1b-1".to_owned(),
///     status: 200,
///     headers: vec![("content-type".to_owned(), "application/json".to_owned())],
///     body: b"{\"text\": \"ordered\"}".to_vec(),
/// };
/// let mut item = Vec::new();
/// reply.encode(&mut item)?;
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The id of the request: [`Received::id`](crate::Received::id).
    pub request: String,
    /// The status, from 200 to 599.
    pub status: u16,
    /// Its headers. The connection and the length of the body are the server's.
    pub headers: Vec<(String, String)>,
    /// The body. That of a reply with the status 204, 205 or 304 is empty.
    pub body: Vec<u8>,
}

impl Reply {
    /// Appends the item of this reply.
    ///
    /// # Errors
    /// Why it cannot be sent: a status or a header that is none, or a body that its status forbids. The text has no
    /// value of a header.
    pub fn encode(&self, item: &mut Vec<u8>) -> Result<(), String> {
        self.head()?;
        item.extend_from_slice(MAGIC);
        put(item, self.request.as_bytes())?;
        item.extend_from_slice(&u32::from(self.status).to_le_bytes());
        let headers = self.headers.iter();
        put_headers(
            item,
            headers.map(|(name, value)| (name.as_str(), value.as_bytes())),
        )?;
        item.extend_from_slice(&self.body);
        Ok(())
    }

    /// Reads an item; `None` if it is no reply.
    pub(super) fn read(item: &[u8]) -> Option<Self> {
        let mut rest = item.strip_prefix(MAGIC)?;
        let request = take_text(&mut rest)?.to_owned();
        let status = take_length(&mut rest)?.try_into().ok()?;
        let headers = take_headers(&mut rest, take_text)?.into_iter();
        Some(Reply {
            request,
            status,
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            body: rest.to_vec(),
        })
    }

    /// The answer to the request.
    pub(super) fn answer(self) -> Result<Answer, String> {
        let head = self.head()?;
        Ok(head.map(|()| Full::new(Bytes::from(self.body))))
    }

    /// The answer without its body, if a client can read it.
    fn head(&self) -> Result<Response<()>, String> {
        let status = StatusCode::from_u16(self.status)
            .ok()
            .filter(|status| (200..600).contains(&status.as_u16()))
            .ok_or_else(|| format!("the status of a reply is 200 to 599, not {}", self.status))?;
        if [204, 205, 304].contains(&self.status) && !self.body.is_empty() {
            return Err(format!(
                "a reply with the status {} has no body",
                self.status
            ));
        }
        let mut head = Response::new(());
        *head.status_mut() = status;
        for (name, value) in &self.headers {
            let (name, value) = header(name, value, ("server", &OWN))?;
            head.headers_mut().append(name, value);
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_read_as_it_was_made_and_no_part_of_it_is_one() {
        let reply = Reply {
            request: "1b-1".to_owned(),
            status: 418,
            headers: vec![("x-of".to_owned(), "one".to_owned())],
            body: b"\0body".to_vec(),
        };
        let mut item = Vec::new();
        reply.encode(&mut item).unwrap();
        assert_eq!(Reply::read(&item), Some(reply.clone()));
        for length in 0..item.len() - reply.body.len() {
            assert_eq!(Reply::read(&item[..length]), None, "{length}");
        }
    }

    #[test]
    fn what_no_client_could_read_is_refused() {
        let reply = |status, name: &str, value: &str, body: &[u8]| Reply {
            request: "1".to_owned(),
            status,
            headers: vec![(name.to_owned(), value.to_owned())],
            body: body.to_vec(),
        };
        for (wrong, why) in [
            (reply(101, "a", "b", b""), "200 to 599, not 101"),
            (reply(600, "a", "b", b""), "200 to 599, not 600"),
            (reply(204, "a", "b", b"x"), "204 has no body"),
            (reply(200, "a b", "c", b""), "no name of a header: \"a b\""),
            (
                reply(200, "a", "hidden\n", b""),
                "the value of the header a",
            ),
            (reply(200, "Content-Length", "9", b""), "set by the server"),
        ] {
            let error = wrong.encode(&mut Vec::new()).unwrap_err();
            assert!(error.contains(why) && !error.contains("hidden"), "{error}");
        }
    }
}
