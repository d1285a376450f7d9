//! Saved keys and states as JSON, for programs that read them without the flow.
//!
//! JSON has fewer types than MessagePack. Bytes become `{"hex": "..."}`, an integer of more than 64 bits `{"integer":
//! "..."}`; a map key that is not text becomes the text of its JSON, and so does text in a map with other keys.
//!
//! ```
//! use millstream_flow::checkpoint::json;
//!
//! let saved = [0x81, 0x07, 0x92, 0xa1, b'a', 0xc0]; // {7: ["a", nil]}
//! assert_eq!(json::state(&saved, &|_, _| None).unwrap().to_string(), r#"{"7":["a",null]}"#);
//! assert!(json::state(&saved[..5], &|_, _| None).is_none());
//! ```

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value, json};

use crate::key::AnyKey;

/// Renders a value that another language wrote, from its extension type and its bytes; `None` if the bytes are
/// not of that language.
pub type Show<'a> = &'a dyn Fn(u8, &[u8]) -> Option<String>;

/// Converts a state from MessagePack; `None` if the bytes are not MessagePack. An object of another language
/// inside it becomes `{"repr": "..."}` if `show` recognises it, else `{"written": ..., "hex": "..."}`. A state to which
/// something was added is a list of the state as it was first, and of what was added.
#[must_use]
pub fn state(bytes: &[u8], show: Show<'_>) -> Option<Value> {
    let mut rest = bytes;
    let mut values = Vec::new();
    while values.is_empty() || !rest.is_empty() {
        let mut reader = rmp_serde::Deserializer::new(&mut rest);
        values.push(AnyValue(show).deserialize(&mut reader).ok()?);
    }
    match values.len() {
        1 => values.pop(),
        _ => Some(Value::Array(values)),
    }
}

/// Skips one value of MessagePack; `None` if the bytes do not begin with one.
pub(crate) fn skip(from: &mut &[u8]) -> Option<()> {
    let mut reader = rmp_serde::Deserializer::new(from);
    AnyValue(&|_, _| None).deserialize(&mut reader).ok()?;
    Some(())
}

/// Converts a key to text, a number, a boolean, `{"hex": "..."}` for bytes, or a list.
#[must_use]
pub fn key(key: &AnyKey) -> Value {
    match key {
        AnyKey::Text(text) => Value::from(text.as_str()),
        AnyKey::Bytes(bytes) => hex(bytes),
        AnyKey::Integer(number) => integer(*number),
        AnyKey::Bool(flag) => Value::from(*flag),
        AnyKey::Tuple(members) => members.iter().map(self::key).collect(),
    }
}

/// Converts bytes to `{"hex": "..."}`.
#[must_use]
pub fn hex(bytes: &[u8]) -> Value {
    json!({ "hex": digits(bytes) })
}

/// Formats bytes as hexadecimal digits.
#[must_use]
pub fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn integer(number: i128) -> Value {
    // Most readers of JSON round larger numbers to 64-bit floats.
    match (i64::try_from(number), u64::try_from(number)) {
        (Ok(number), _) => Value::from(number),
        (_, Ok(number)) => Value::from(number),
        _ => json!({ "integer": number.to_string() }),
    }
}

/// A value of any type, on its way from MessagePack to JSON.
#[derive(Clone, Copy)]
struct AnyValue<'a>(Show<'a>);

impl<'de> DeserializeSeed<'de> for AnyValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

/// An extension of MessagePack: its type and its bytes.
struct Extension(u8, Vec<u8>);

impl<'de> Deserialize<'de> for Extension {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Extension;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an extension")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Extension, A::Error> {
                let short = || serde::de::Error::custom("an extension is truncated");
                let kind = from.next_element::<i8>()?.ok_or_else(short)?;
                let bytes = from.next_element_seed(Bytes)?.ok_or_else(short)?;
                Ok(Extension(kind as u8, bytes))
            }
        }
        from.deserialize_tuple(2, Parts)
    }
}

/// Bytes that are not a list of numbers.
struct Bytes;

impl<'de> DeserializeSeed<'de> for Bytes {
    type Value = Vec<u8>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Vec<u8>, D::Error> {
        from.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }
    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }
}

impl<'de> Visitor<'de> for AnyValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value).map(Value::Number);
        Ok(number.unwrap_or_else(|| Value::from(value.to_string())))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_bytes<E>(self, value: &[u8]) -> Result<Value, E> {
        Ok(hex(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
    // In MessagePack only an extension is a newtype struct.
    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        let Extension(kind, bytes) = Extension::deserialize(from)?;
        Ok(match (self.0)(kind, &bytes) {
            Some(text) => json!({ "repr": text }),
            None => json!({ "written": kind, "hex": digits(&bytes) }),
        })
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = from.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = from.next_entry_seed(self, self)? {
            entries.push(entry);
        }
        let are_texts = entries
            .iter()
            .all(|(key, _): &(Value, Value)| key.is_string());
        let named = entries.into_iter().map(|(key, value)| match key {
            Value::String(text) if are_texts => (text, value),
            other => (other.to_string(), value),
        });
        Ok(Value::Object(named.collect()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::*;

    #[derive(Serialize)]
    struct Account {
        name: &'static str,
        balance: f64,
        limits: Option<(u8, i64)>,
        orders: BTreeMap<u32, Vec<bool>>,
        side: Side,
    }

    #[derive(Serialize)]
    enum Side {
        Buy { lots: u64 },
    }

    #[test]
    fn states_are_converted_with_their_names() {
        let account = Account {
            name: "ann",
            balance: 1.5,
            limits: Some((3, -4)),
            orders: BTreeMap::from([(7, vec![true])]),
            side: Side::Buy { lots: u64::MAX },
        };
        let saved = rmp_serde::to_vec_named(&account).expect("it is written");
        assert_eq!(
            state(&saved, &|_, _| None).expect("it is read"),
            json!({
                "name": "ann", "balance": 1.5, "limits": [3, -4], "orders": {"7": [true]},
                "side": {"Buy": {"lots": u64::MAX}},
            })
        );
        for cut in 0..saved.len() {
            assert_eq!(state(&saved[..cut], &|_, _| None), None);
        }
        let bytes = state(&[0xc4, 2, 1, 255], &|_, _| None);
        assert_eq!(bytes, Some(json!({"hex": "01ff"})));
        // {1: 2, "1": 3}
        let both = state(&[0x82, 1, 2, 0xa1, b'1', 3], &|_, _| None);
        assert_eq!(both, Some(json!({"1": 2, "\"1\"": 3})));
        // A list of two extensions, as Python writes objects.
        let objects = [0x92, 0xd5, b'p', 1, 2, 0xd4, b'x', 3];
        let show = |how, bytes: &[u8]| (how == b'p').then(|| format!("{bytes:?}"));
        let shown = json!([{"repr": "[1, 2]"}, {"written": b'x', "hex": "03"}]);
        assert_eq!(state(&objects, &show), Some(shown));
    }

    #[test]
    fn keys_are_converted() {
        let tuple = AnyKey::Tuple(vec![
            AnyKey::Text("a".to_owned()),
            AnyKey::Bytes(vec![0, 16]),
            AnyKey::Integer(-7),
            AnyKey::Integer(i128::MAX),
        ]);
        let expected = json!(["a", {"hex": "0010"}, -7, {"integer": i128::MAX.to_string()}]);
        assert_eq!(key(&tuple), expected);
    }
}
