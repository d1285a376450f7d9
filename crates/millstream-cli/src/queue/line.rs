//! An item as a line of JSON: any bytes, flags, and when it expires.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use super::client::{Item, Origin};

/// Up to here `set` takes an expiry for seconds from now: 30 days.
const RELATIVE_MAX_S: u64 = 2_592_000;

/// What `drain --json` prints and `put --json` reads. The bytes are text where they are UTF-8.
#[derive(Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none", borrow)]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// The client's own number.
    #[serde(default)]
    pub(super) flags: u32,
    /// When it expires, in milliseconds since 1970; without it never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expires_ms: Option<u64>,
    /// The item's number in its queue. It gets another one when it is put again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    /// When it was added, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    added_ms: Option<u64>,
    /// How often it was delivered and came back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deliveries: Option<u64>,
    /// When it first came back, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_failed_ms: Option<u64>,
    /// The queue that it left because it failed or expired there. An item that is put again has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<Origin>,
}

impl<'a> Line<'a> {
    pub(super) fn of(item: &'a Item) -> Self {
        let text = std::str::from_utf8(&item.body).ok();
        let details = item.details();
        let details = details.as_ref();
        Line {
            base64: text.is_none().then(|| BASE64.encode(&item.body)),
            text: text.map(Cow::Borrowed),
            flags: u32::try_from(item.flags()).unwrap_or(0),
            expires_ms: details.map(|it| it.expiry_ms).filter(|&at| at != 0),
            id: details.map(|it| it.id),
            added_ms: details.map(|it| it.added_ms),
            deliveries: details.map(|it| it.deliveries),
            first_failed_ms: details.and_then(|it| it.first_failed_ms),
            origin: details.and_then(|it| it.origin.clone()),
        }
    }

    /// Read a line.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // The caller adds the number of the line.
            text.split(" at line ").next().unwrap_or(&text).to_owned()
        })
    }

    /// The item's bytes.
    pub(super) fn body(&self) -> Result<Cow<'_, [u8]>, String> {
        match (&self.text, &self.base64) {
            (Some(text), None) => Ok(Cow::Borrowed(text.as_bytes())),
            (None, Some(base64)) => BASE64
                .decode(base64)
                .map(Cow::Owned)
                .map_err(|error| format!("base64: {error}")),
            _ => Err("one of \"text\" and \"base64\" is needed".to_owned()),
        }
    }

    /// As `set` takes it: seconds since 1970, not before the moment; 0 never, -1 for what has expired.
    pub(super) fn expiry_s(&self) -> i64 {
        match self.expires_ms.map(|at| at.div_ceil(1_000)) {
            None => 0,
            // Numbers up to here would count from now.
            Some(0..=RELATIVE_MAX_S) => -1,
            Some(seconds) => i64::try_from(seconds).unwrap_or(i64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_one_body_is_refused() {
        for (line, expected) in [
            (r#"{"text":"a","base64":"YQ=="}"#, "one of"),
            (r#"{"flags":1}"#, "one of"),
            (r#"{"base64":"*"}"#, "base64: "),
        ] {
            let error = Line::parse(line.as_bytes()).unwrap().body().unwrap_err();
            assert!(error.starts_with(expected), "{line} gives {error}");
        }
        assert!(Line::parse(b"{\"txt\":\"a\"}").unwrap_err().contains("txt"));
    }

    #[test]
    fn an_expiry_is_rounded_up() {
        let line = Line::parse(br#"{"text":"a","expires_ms":1700000000001}"#).unwrap();
        assert_eq!(line.expiry_s(), 1_700_000_001);
        let line = Line::parse(br#"{"text":"a","expires_ms":5000}"#).unwrap();
        assert_eq!(line.expiry_s(), -1);
    }
}
