//! Paths and queries of URLs, whose escapes such as `%20` are decoded.
//!
//! A path is compared segment by segment, after each was decoded: `/a%2Fb` is no path `/a/b`.

use std::borrow::Cow;
use std::fmt;

use hyper::StatusCode;
use millstream_flow::error::Cause;

use crate::refusal::Refusal;

/// The path of a server, as in a URL.
#[derive(Clone, Debug)]
pub(crate) struct UrlPath(String);

impl UrlPath {
    pub(crate) fn new(path: &str) -> Self {
        UrlPath(path.to_owned())
    }

    /// Refuses what is the path of no request.
    pub(crate) fn check(&self) -> Result<(), Cause> {
        if !self.0.starts_with('/') {
            return Err(format!("the path begins with /, unlike \"{}\"", self.0).into());
        }
        match self.0.split('/').find_map(|segment| decode(segment).err()) {
            Some(error) => Err(format!("the path {}: {error}", self.0).into()),
            None => Ok(()),
        }
    }

    /// Refuses the path of a request that is another one.
    pub(crate) fn check_request(&self, path: &str) -> Result<(), Refusal> {
        if self.is_path_of(path)? {
            Ok(())
        } else {
            Err(Refusal::path(path))
        }
    }

    /// Whether it is the path of a request.
    pub(crate) fn is_path_of(&self, path: &str) -> Result<bool, Refusal> {
        // Without an allocation in the usual case.
        Ok(path == self.0 || segments(path)? == segments(&self.0)?)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UrlPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The segments of a path, decoded. The first one, before the first slash, is empty.
pub(crate) fn segments(path: &str) -> Result<Vec<Cow<'_, str>>, Refusal> {
    let decoded: Result<_, String> = path.split('/').map(decode).collect();
    decoded.map_err(|error| bad_request(format!("the path: {error}")))
}

/// The value of the first parameter of this name in a query, decoded.
pub(crate) fn parameter<'a>(query: &'a str, name: &str) -> Result<Option<Cow<'a, str>>, Refusal> {
    let bad = |error| bad_request(format!("the query: {error}"));
    for parameter in query.split('&') {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if decode(key).map_err(bad)? == name {
            return decode(value).map(Some).map_err(bad);
        }
    }
    Ok(None)
}

/// The parameters of a query, decoded.
#[cfg(feature = "gateway")]
pub(crate) fn parameters(query: &str) -> Result<Vec<(String, String)>, Refusal> {
    let given = query.split('&').filter(|parameter| !parameter.is_empty());
    let decoded: Result<_, String> = given
        .map(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            Ok((decode(key)?.into_owned(), decode(value)?.into_owned()))
        })
        .collect();
    decoded.map_err(|error| bad_request(format!("the query: {error}")))
}

fn bad_request(line: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, line)
}

/// Decodes a part of a URL.
///
/// # Errors
/// What is no escape, or no UTF-8.
fn decode(part: &str) -> Result<Cow<'_, str>, String> {
    if !part.contains('%') {
        return Ok(Cow::Borrowed(part));
    }
    let mut decoded = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let Some((byte, after)) = escaped(after) else {
            let shown = String::from_utf8_lossy(&after[..after.len().min(2)]);
            return Err(format!(
                "\"%{shown}\" is no escape: that is % and two hexadecimal digits"
            ));
        };
        decoded.push(byte);
        rest = after;
    }
    let decoded = String::from_utf8(decoded);
    decoded
        .map(Cow::Owned)
        .map_err(|_| format!("the escapes of \"{part}\" are no text in UTF-8"))
}

/// The byte of two hexadecimal digits, and what follows them.
fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    let (&[high, low], rest) = text.split_first_chunk()?;
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = digit(high)? << 4 | digit(low)?;
    Some((u8::try_from(byte).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_in_segments_and_parameters() {
        let path = segments("/a%20b/%C3%A9%2f/%").map_err(|refusal| refusal.line);
        assert_eq!(
            path,
            Err("the path: \"%\" is no escape: that is % and two hexadecimal digits".to_owned())
        );
        assert_eq!(segments("/a%20b/%C3%A9%2f").unwrap(), ["", "a b", "é/"]);
        let query = "x&tok%65n=a%2Bb+c&token=2";
        assert_eq!(parameter(query, "token").unwrap().unwrap(), "a+b+c");
        assert_eq!(parameter(query, "x").unwrap().unwrap(), "");
        assert_eq!(parameter("", "x").unwrap(), None);
    }

    #[test]
    fn a_bad_escape_is_named() {
        for (part, named) in [
            ("a%zz", "\"%zz\""),
            ("%4", "\"%4\""),
            ("%+1", "\"%+1\""),
            ("%ff", "\"%ff\""),
        ] {
            let refusal = parameter(&format!("a={part}"), "a").unwrap_err();
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST);
            assert!(refusal.line.contains(named), "{}", refusal.line);
        }
        assert!(parameter("a%zz=1", "b").is_err());
        assert!(UrlPath::new("/%x").check().is_err());
    }

    #[test]
    fn paths_are_equal_when_their_segments_are() {
        let path = UrlPath::new("/a b/c%2Fd");
        path.check().unwrap();
        for same in ["/a b/c%2Fd", "/a%20b/c%2fd", "/%61%20b/c%2Fd"] {
            path.check_request(same).unwrap();
        }
        for other in ["/a b/c/d", "/a%20b/c%2Fd/", "/", ""] {
            assert_eq!(
                path.check_request(other).unwrap_err().status,
                StatusCode::NOT_FOUND
            );
        }
    }
}
