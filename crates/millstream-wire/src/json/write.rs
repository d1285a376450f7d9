//! Values to JSON.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Serialize, Serializer};

use crate::scalars::Timestamp;
use crate::value::Value;

/// Values with their names, such as the arguments of a call: an object of JSON.
#[derive(Debug, Clone, Copy)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct NamedValues<'a>(pub &'a [(String, Value)]);

impl Serialize for NamedValues<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// A value as JSON.
impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::None => to.serialize_unit(),
            Value::Bool(value) => to.serialize_bool(*value),
            // An integer of a schema is within i64 or u64.
            Value::Int(value) => match i64::try_from(*value) {
                Ok(value) => to.serialize_i64(value),
                Err(_) => to.serialize_u64(*value as u64),
            },
            Value::F32(value) if value.is_finite() => to.serialize_f32(*value),
            Value::F64(value) if value.is_finite() => to.serialize_f64(*value),
            Value::F32(value) => to.collect_str(value),
            Value::F64(value) => to.collect_str(value),
            Value::Str(text) | Value::Decimal(text) => to.serialize_str(text),
            Value::Bytes(bytes) => to.serialize_str(&BASE64_STANDARD.encode(bytes)),
            Value::Timestamp(ns) => to.collect_str(&Timestamp(*ns)),
            Value::List(items) => to.collect_seq(items),
            Value::Map(pairs) => {
                to.collect_map(pairs.iter().map(|(key, value)| (key_text(key), value)))
            }
            Value::Struct(fields) => NamedValues(fields).serialize(to),
            Value::Variant(name, fields) if fields.is_empty() => to.serialize_str(name),
            Value::Variant(name, fields) => to.collect_map([(name, NamedValues(fields))]),
        }
    }
}

/// A key of an object is a string: that of a value which is no string in JSON is its JSON.
fn key_text(key: &Value) -> Cow<'_, str> {
    match key {
        Value::Str(text) | Value::Decimal(text) => text.into(),
        Value::Variant(name, fields) if fields.is_empty() => name.into(),
        Value::Bytes(bytes) => BASE64_STANDARD.encode(bytes).into(),
        Value::Timestamp(ns) => Timestamp(*ns).to_string().into(),
        // Numbers and text into memory: nothing in it can fail.
        key => serde_json::to_string(key).unwrap_or_default().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &Value) -> String {
        serde_json::to_string(value).unwrap()
    }

    #[test]
    fn every_kind_of_value_has_its_json() {
        let text = |text: &str| Value::Str(text.to_owned());
        let fields = || {
            vec![
                ("x".to_owned(), Value::Int(1)),
                ("y".to_owned(), Value::None),
            ]
        };
        let buy = || Value::Variant("Buy".to_owned(), vec![]);
        for (value, json) in [
            (Value::None, "null"),
            (Value::Bool(true), "true"),
            (Value::Int(i64::MIN.into()), "-9223372036854775808"),
            (Value::Int(u64::MAX.into()), "18446744073709551615"),
            (Value::F32(72.3), "72.3"),
            (Value::F64(0.1), "0.1"),
            (Value::F64(f64::NEG_INFINITY), "\"-inf\""),
            (Value::F32(f32::NAN), "\"NaN\""),
            (text("a\n\"b\""), "\"a\\n\\\"b\\\"\""),
            (Value::Decimal("1.50".to_owned()), "\"1.50\""),
            (Value::Bytes(vec![255, 0]), "\"/wA=\""),
            (Value::Timestamp(0), "\"1970-01-01T00:00:00Z\""),
            (Value::List(vec![Value::Int(1), text("b")]), "[1,\"b\"]"),
            (Value::Struct(fields()), "{\"x\":1,\"y\":null}"),
            (buy(), "\"Buy\""),
            (
                Value::Variant("At".to_owned(), fields()),
                "{\"At\":{\"x\":1,\"y\":null}}",
            ),
            (
                Value::Map(vec![(Value::Int(7), text("a")), (text("k"), Value::None)]),
                "{\"7\":\"a\",\"k\":null}",
            ),
            (
                Value::Map(vec![(buy(), Value::Int(1)), (Value::Timestamp(0), buy())]),
                "{\"Buy\":1,\"1970-01-01T00:00:00Z\":\"Buy\"}",
            ),
            (
                Value::Map(vec![(Value::Struct(fields()), Value::Int(2))]),
                "{\"{\\\"x\\\":1,\\\"y\\\":null}\":2}",
            ),
        ] {
            assert_eq!(shown(&value), json, "{value:?}");
        }
    }
}
