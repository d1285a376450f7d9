//! JSON as every connector has it: RFC 8259, whose numbers are finite and whose strings are text.

use serde_json::Value;

/// Refuses a text that is not one JSON document: NaN, infinite numbers, halves of surrogate pairs and more than 127
/// levels among others.
///
/// # Errors
/// One line that says what is wrong, and where.
///
/// ```
/// assert!(millstream_http::check_json(b"{\"n\": 1.5}").is_ok());
/// assert!(millstream_http::check_json(b"{\"n\": NaN}").is_err());
/// ```
#[doc(hidden)] // For the other crates of Millstream.
pub fn check_json(text: &[u8]) -> Result<(), String> {
    let checked: Result<Value, _> = serde_json::from_slice(text);
    checked
        .map(drop)
        .map_err(|error| format!("it is not JSON: {error}"))
}

/// Whether a content type is one of JSON, or of lines of it.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn is_json_type(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    let essence = essence.trim().to_ascii_lowercase();
    is_json_document(&essence) || is_json_lines(&essence)
}

/// Whether a content type, in lower case and without parameters, is one of a JSON document.
pub(crate) fn is_json_document(essence: &str) -> bool {
    essence == "application/json" || essence.ends_with("+json")
}

/// Whether a content type, in lower case and without parameters, is one of lines of JSON.
pub(crate) fn is_json_lines(essence: &str) -> bool {
    [
        "application/x-ndjson",
        "application/jsonl",
        "application/x-jsonlines",
    ]
    .contains(&essence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_reader_takes_is_refused() {
        for text in [
            "NaN",
            "[Infinity]",
            "{\"a\": -Infinity}",
            "1e999",
            "\"\\ud800\"",
            "",
            "{",
            "1 2",
            "\u{1}",
        ] {
            let error = check_json(text.as_bytes()).unwrap_err();
            assert!(error.contains("not JSON"), "{text}: {error}");
        }
        assert!(check_json(b"\"\xff\"").is_err());
        for text in [
            "1",
            "\"\\ud83d\\ude00\"",
            " {\"a\": [null]}\n",
            &"9".repeat(300),
        ] {
            assert_eq!(check_json(text.as_bytes()), Ok(()), "{text}");
        }
    }

    #[test]
    fn content_types_of_json() {
        for kind in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/vnd.api+json",
            "application/x-ndjson",
        ] {
            assert!(is_json_type(kind), "{kind}");
        }
        assert!(!is_json_type("text/plain") && !is_json_type(""));
    }
}
