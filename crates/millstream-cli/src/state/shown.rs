//! How keys and states look, for people and as JSON.
//!
//! A state that is MessagePack is shown as JSON, its structure with names by the layout of its step. One that Python wrote is shown by Python, where the
//! program runs in it, and as bytes elsewhere.

use millstream_flow::checkpoint::{SavedKey, json};
use millstream_flow::key::AnyKey;
use millstream_flow::shown::{self, Shows};
use millstream_flow::state::codec::MESSAGE_PACK;
use serde_json::{Map, Value};

use crate::moment;

/// Shows a state that another language wrote, given the tag of its format and its bytes; `None` for a format that it
/// does not know.
pub type ShowState = fn(u8, &[u8]) -> Option<String>;

/// The longest state that is shown as bytes as a whole.
const BYTES_SHOWN: usize = 64;

/// What the ways of writing a state are called.
fn written(tag: u8) -> String {
    match tag {
        MESSAGE_PACK => "messagepack".to_owned(),
        b'p' => "pickle".to_owned(),
        b's' => "msgspec".to_owned(),
        b'l' => "snapshot".to_owned(),
        other => format!("format {other}"),
    }
}

/// The key; bytes that are none were written by something else.
pub(super) fn key(saved: &SavedKey) -> AnyKey {
    let read = AnyKey::load(&mut &saved.key[..]);
    read.unwrap_or_else(|| AnyKey::Bytes(saved.key.clone()))
}

/// A key as a person types it: text without quotes, others as they are shown.
pub(super) fn plain(key: &AnyKey) -> String {
    match key {
        AnyKey::Text(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What is known of a state.
enum Known {
    /// Plain data.
    Data(Value),
    /// An object of another language, as that shows it.
    Object(String),
    /// Bytes, as hexadecimal digits, and how they are written.
    Bytes(u8, String),
}

impl Known {
    fn of(saved: &SavedKey, layout: &[String], show: ShowState) -> Self {
        let shows = Shows {
            object: &show,
            time: moment::show,
        };
        let data = (saved.tag == MESSAGE_PACK).then(|| {
            let named = shown::state(layout, &saved.state, &shows);
            named.or_else(|| json::state(&saved.state, &show))
        });
        let Some(data) = data.flatten() else {
            return match show(saved.tag, &saved.state) {
                Some(text) => Known::Object(text),
                None => Known::Bytes(saved.tag, json::digits(&saved.state)),
            };
        };
        // An object may stand alone in an envelope of plain data.
        let alone = data.as_object().map_or(0, Map::len);
        let how = data["written"].as_u64();
        match (alone, data["repr"].as_str(), how, data["hex"].as_str()) {
            (1, Some(text), ..) => Known::Object(text.to_owned()),
            (2, _, Some(how), Some(digits)) => Known::Bytes(how as u8, digits.to_owned()),
            _ => Known::Data(data),
        }
    }
}

/// The state, for people.
pub(super) fn state(saved: &SavedKey, layout: &[String], show: ShowState) -> String {
    let (how, digits) = match Known::of(saved, layout, show) {
        Known::Data(data) => return data.to_string(),
        Known::Object(text) => return text,
        Known::Bytes(how, digits) => (how, digits),
    };
    let length = digits.len() / 2;
    let shown = &digits[..digits.len().min(2 * BYTES_SHOWN)];
    let more = if length > BYTES_SHOWN { "..." } else { "" };
    let by_python = match how {
        b'p' | b's' | b'l' => " (the command millstream of the Python package shows what it is)",
        _ => "",
    };
    format!("{}, {length} bytes: {shown}{more}{by_python}", written(how))
}

/// The key and its state, as JSON: `step`, `key`, `shard`, `written`, and `state`, `repr` or `hex`.
pub(super) fn line(step: &str, saved: &SavedKey, layout: &[String], show: ShowState) -> Value {
    let mut line = head(saved);
    line.insert("step".to_owned(), step.into());
    let (name, value) = match Known::of(saved, layout, show) {
        Known::Data(data) => ("state", data),
        Known::Object(text) => ("repr", text.into()),
        Known::Bytes(_, digits) => ("hex", digits.into()),
    };
    line.insert(name.to_owned(), value);
    Value::Object(line)
}

/// What there is to say of a key without its state.
pub(super) fn head(saved: &SavedKey) -> Map<String, Value> {
    let mut line = Map::new();
    line.insert("key".to_owned(), json::key(&key(saved)));
    line.insert("shard".to_owned(), saved.shard.into());
    line.insert("written".to_owned(), written(saved.tag).into());
    line.insert("bytes".to_owned(), saved.state.len().into());
    line
}
