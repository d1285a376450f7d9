//! A record of calls as a line: `place(symbol="VOD.L", price=72.5)`, or as JSON.
//!
//! Values look as in JSON. Where JSON has nothing for a value, it is a string: bytes in base64, moments as RFC 3339, decimal numbers,
//! floats that are not finite. A variant of an enum is its name, with fields an object of its name to them.

use std::borrow::Cow;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_wire::{Field, Lineage, Note, Schema, Timestamp, Value};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use millstream_service::{Calls, Content};

/// What a record says, ready to be shown.
pub(super) enum ServiceRecord {
    Call(millstream_wire::Call, Option<Origin>),
    Note(Note),
}

/// The record that made a component make a call.
#[derive(Serialize)]
pub(super) struct Origin {
    /// Its journal, if a note names it.
    journal: Option<String>,
    sequence: u64,
}

impl ServiceRecord {
    /// Reads a record.
    pub(super) fn of(calls: &mut Calls, sequence: u64, body: &[u8]) -> Result<Self, String> {
        match calls
            .read(sequence, body)
            .map_err(|cause| cause.to_string())?
        {
            Content::Call(call, lineage) => {
                let origin = lineage.map(
                    |Lineage {
                         input,
                         sequence: of,
                     }| Origin {
                        journal: calls
                            .input(input, sequence)
                            .ok()
                            .map(|name| name.path.clone()),
                        sequence: of,
                    },
                );
                Ok(ServiceRecord::Call(call, origin))
            }
            Content::Note(note) => Ok(ServiceRecord::Note(note)),
            _ => Err("a kind of record that this version does not know".to_owned()),
        }
    }

    /// Appends it to a line for the eye.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _written = match self {
            ServiceRecord::Call(call, origin) => {
                write_call(out, &call.method, &call.arguments);
                match origin {
                    None => Ok(()),
                    Some(Origin { journal, sequence }) => {
                        let journal = journal.as_deref().unwrap_or("an unknown journal");
                        write!(out, " <- {journal}, record {sequence}")
                    }
                }
            }
            ServiceRecord::Note(Note::Schema(schema)) => {
                let (interface, version) = (schema.interface(), schema.version());
                let methods: Vec<String> = methods(schema).collect();
                write!(
                    out,
                    "# interface {interface}, version {version}: {}",
                    methods.join(", ")
                )
            }
            ServiceRecord::Note(Note::Input { number, input }) => {
                write!(out, "# input {number}: {}", input.path)
            }
            ServiceRecord::Note(Note::Dead {
                input,
                sequence,
                error,
                ..
            }) => {
                let journal = &input.path;
                write!(out, "# dead letter: {journal}, record {sequence}: {error}")
            }
            ServiceRecord::Note(_) => write!(out, "# a note"),
        };
    }
}

/// `place(symbol: str, price: f64)` of each method.
fn methods(schema: &Schema) -> impl Iterator<Item = String> {
    schema.methods().iter().map(|method| {
        let field = |field: &Field| format!("{}: {}", field.name, schema.type_name(&field.ty));
        let arguments: Vec<String> = method.arguments.iter().map(field).collect();
        format!("{}({})", method.name, arguments.join(", "))
    })
}

fn write_call(out: &mut Vec<u8>, method: &str, arguments: &[(String, Value)]) {
    let _written = write!(out, "{method}(");
    for (at, (name, value)) in arguments.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _written = write!(out, "{comma}{name}=");
        let _written = serde_json::to_writer(&mut *out, &Json(value));
    }
    out.push(b')');
}

impl Serialize for ServiceRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            ServiceRecord::Call(call, origin) => {
                map.serialize_entry("method", &call.method)?;
                map.serialize_entry("arguments", &Fields(&call.arguments))?;
                if let Some(origin) = origin {
                    map.serialize_entry("effect_of", origin)?;
                }
            }
            ServiceRecord::Note(Note::Schema(schema)) => {
                map.serialize_entry("note", "schema")?;
                map.serialize_entry("interface", schema.interface())?;
                map.serialize_entry("version", &schema.version())?;
                map.serialize_entry("methods", &methods(schema).collect::<Vec<_>>())?;
            }
            ServiceRecord::Note(Note::Input { number, input }) => {
                map.serialize_entry("note", "input")?;
                map.serialize_entry("number", number)?;
                map.serialize_entry("journal", &input.path)?;
                map.serialize_entry("identity", &input.identity.map(|id| format!("{id:032x}")))?;
            }
            ServiceRecord::Note(Note::Dead {
                input,
                sequence,
                error,
                body,
                ..
            }) => {
                map.serialize_entry("note", "dead")?;
                map.serialize_entry("journal", &input.path)?;
                map.serialize_entry("of", sequence)?;
                map.serialize_entry("error", error)?;
                map.serialize_entry("base64", &BASE64.encode(body))?;
            }
            ServiceRecord::Note(_) => map.serialize_entry("note", "unknown")?,
        }
        map.end()
    }
}

/// A value as JSON.
struct Json<'a>(&'a Value);

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
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
            Value::Bytes(bytes) => to.serialize_str(&BASE64.encode(bytes)),
            Value::Timestamp(ns) => to.collect_str(&Timestamp(*ns)),
            Value::List(items) => to.collect_seq(items.iter().map(Json)),
            Value::Map(pairs) => to.collect_map(
                pairs
                    .iter()
                    .map(|(key, value)| (key_text(key), Json(value))),
            ),
            Value::Struct(fields) => Fields(fields).serialize(to),
            Value::Variant(name, fields) if fields.is_empty() => to.serialize_str(name),
            Value::Variant(name, fields) => to.collect_map([(name, Fields(fields))]),
        }
    }
}

/// A key of an object is a string: that of any other value is its JSON.
fn key_text(key: &Value) -> Cow<'_, str> {
    match key {
        Value::Str(text) | Value::Decimal(text) => text.into(),
        // Numbers and text into memory: nothing in it can fail.
        key => serde_json::to_string(&Json(key)).unwrap_or_default().into(),
    }
}

/// Values with their names.
struct Fields<'a>(&'a [(String, Value)]);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, Json(value))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &Value) -> String {
        serde_json::to_string(&Json(value)).unwrap()
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
            (Value::Variant("Buy".to_owned(), vec![]), "\"Buy\""),
            (
                Value::Variant("At".to_owned(), fields()),
                "{\"At\":{\"x\":1,\"y\":null}}",
            ),
            (
                Value::Map(vec![(Value::Int(7), text("a")), (text("k"), Value::None)]),
                "{\"7\":\"a\",\"k\":null}",
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
