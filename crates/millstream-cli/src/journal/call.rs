//! A record of calls as a line: `place(symbol="VOD.L", price=72.5)`, or as JSON.
//!
//! Values look as in JSON, see [`Value`](millstream_wire::Value).

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use millstream_journal::chain;
use millstream_wire::{Field, Lineage, NamedValues, Note, Schema};
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
            .map_err(|cause| chain(&*cause).to_string())?
        {
            Content::Call(call, lineage) => {
                let origin = lineage.map(
                    |Lineage {
                         input,
                         sequence: of,
                         ..
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
                out.extend_from_slice(call.to_line().as_bytes());
                match origin {
                    None => Ok(()),
                    Some(Origin { journal, sequence }) => {
                        let journal = journal.as_deref().unwrap_or("an unknown journal");
                        write!(out, " <- {journal}, record {sequence}")
                    }
                }
            }
            ServiceRecord::Note(Note::Schema(schema)) => {
                let interface = schema.interface();
                let version = schema.version();
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
                path,
                sequence,
                error,
                ..
            }) => write!(out, "# dead letter: {path}, record {sequence}: {error}"),
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

impl Serialize for ServiceRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self {
            ServiceRecord::Call(call, origin) => {
                map.serialize_entry("method", &call.method)?;
                map.serialize_entry("arguments", &NamedValues(&call.arguments))?;
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
                map.serialize_entry("identity", &format!("{:032x}", input.identity))?;
            }
            ServiceRecord::Note(Note::Dead {
                path,
                sequence,
                error,
                body,
                ..
            }) => {
                map.serialize_entry("note", "dead")?;
                map.serialize_entry("journal", path)?;
                map.serialize_entry("of", sequence)?;
                map.serialize_entry("error", error)?;
                map.serialize_entry("base64", &BASE64.encode(body))?;
            }
            ServiceRecord::Note(_) => map.serialize_entry("note", "unknown")?,
        }
        map.end()
    }
}
