//! How keys and states look, for people and as JSON.
//!
//! A state that is MessagePack is shown as JSON. One that Python wrote is shown by Python, where the
//! program runs in it, and as bytes elsewhere.

use millstream_flow::key::AnyKey;
use millstream_flow::recovery::codec::MESSAGE_PACK;
use millstream_flow::recovery::{SavedKey, json};
use serde_json::{Map, Value};

use super::super::ShowState;

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

/// The state, for people.
pub(super) fn state(saved: &SavedKey, show: ShowState) -> String {
    if saved.tag == MESSAGE_PACK
        && let Some(value) = json::state(&saved.state, &show)
    {
        return value.to_string();
    }
    if let Some(text) = show(saved.tag, &saved.state) {
        return text;
    }
    let length = saved.state.len();
    let digits = json::digits(&saved.state[..length.min(BYTES_SHOWN)]);
    let more = if length > BYTES_SHOWN { "..." } else { "" };
    let by_python = match saved.tag {
        b'p' | b's' | b'l' => " (the command millstream of the Python package shows what it is)",
        _ => "",
    };
    format!(
        "{}, {length} bytes: {digits}{more}{by_python}",
        written(saved.tag)
    )
}

/// The key and its state, as JSON: `step`, `key`, `shard`, `written`, and `state`, `repr` or `hex`.
pub(super) fn line(step: &str, saved: &SavedKey, show: ShowState) -> Value {
    let mut line = head(saved);
    line.insert("step".to_owned(), step.into());
    let (name, value) = match (saved.tag, json::state(&saved.state, &show)) {
        (MESSAGE_PACK, Some(value)) => ("state", value),
        (tag, _) => match show(tag, &saved.state) {
            Some(text) => ("repr", text.into()),
            None => ("hex", json::digits(&saved.state).into()),
        },
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
