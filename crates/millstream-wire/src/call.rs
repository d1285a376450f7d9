//! Calls with all their names, and the schemas of a journal by which records become such calls.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr::{Mapping, Yaml};

use crate::check::RESERVED;
use crate::error::{Result, WireError};
use crate::node::{Content, Node};
use crate::pack::{Packer, pack_growing};
use crate::record::{Head, InputName, Lineage, Note, Record};
use crate::schema::{Method, Schema, Type};
use crate::text::{emit, read, read_fields, string, yaml, yaml_fields};
use crate::unpack::Unpacker;
use crate::value::{Value, pack_fields, unpack_fields};

/// A method call, as a text or a program without its types sees it.
///
/// As YAML it is a mapping of the method to its arguments: to the argument itself where there is one, else
/// to a mapping by name.
/// ```yaml
/// at: 2026-11-21T09:30:00Z
/// place: {symbol: VOD.L, price: 72.5}
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The time of the call, in nanoseconds since 1970, where it matters.
    pub at: Option<i64>,
    /// The name of the method.
    pub method: String,
    /// The arguments with their names, in the order of the schema.
    pub arguments: Vec<(String, Value)>,
}

impl Call {
    /// Reads the arguments of a call.
    ///
    /// # Errors
    /// The arguments do not match the schema; the error names the method.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn unpack(method: &Method, mut values: Unpacker<'_>, schema: &Schema) -> Result<Self> {
        let arguments = unpack_fields(&mut values, &method.arguments, schema)
            .and_then(|arguments| values.end().map(|()| arguments))
            .map_err(|error| error.within(&method.name))?;
        Ok(Self {
            at: None,
            method: method.name.clone(),
            arguments,
        })
    }

    /// The body of a record with this call.
    ///
    /// # Errors
    /// The schema has no such method, or other arguments.
    pub fn to_bytes(&self, schema: &Schema, lineage: Option<Lineage>) -> Result<Vec<u8>> {
        pack_growing(|out| self.pack(out, schema, lineage))
    }

    /// The same without the lineage, which a [`Transport`](crate::Transport) writes.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes).
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn contents(&self, schema: &Schema) -> Result<Vec<u8>> {
        pack_growing(|out| self.pack_contents(out, schema))
    }

    /// Writes the body of a record with this call.
    ///
    /// # Errors
    /// As [`to_bytes`](Self::to_bytes); no space.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn pack(
        &self,
        out: &mut Packer<'_>,
        schema: &Schema,
        lineage: Option<Lineage>,
    ) -> Result<()> {
        Lineage::pack(lineage, out)?;
        self.pack_contents(out, schema)
    }

    fn pack_contents(&self, out: &mut Packer<'_>, schema: &Schema) -> Result<()> {
        let (number, method) = schema.method_named(&self.method)?;
        let head = Head {
            schema: schema.id(),
            method: number,
            arguments: method.arguments.len(),
        };
        head.pack(out)?;
        pack_fields(&self.arguments, out, &method.arguments, schema)
            .map_err(|error| error.within(&method.name))
    }

    /// The call as YAML, ending with a line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        let at = self.at.map(Value::Timestamp);
        let mut pairs = Mapping::new();
        if let Some(at) = &at {
            pairs.insert(string(RESERVED), yaml(at));
        }
        let arguments = match &self.arguments[..] {
            [(_, only)] => yaml(only),
            several => yaml_fields(several),
        };
        pairs.insert(string(&self.method), arguments);
        emit(&Yaml::Mapping(pairs))
    }

    /// Reads a call from YAML.
    ///
    /// # Errors
    /// [`WireError::Text`] with the line.
    pub fn from_text(text: &str, schema: &Schema) -> Result<Self> {
        let mut documents = crate::node::parse(text)?;
        match documents.pop() {
            Some(document) if documents.is_empty() => Self::from_node(&document.root, schema),
            Some(_) => Err(WireError::text(1, "more than one document")),
            None => Err(WireError::text(1, "the text is empty")),
        }
    }

    pub(crate) fn from_node(node: &Node, schema: &Schema) -> Result<Self> {
        let mut at = None;
        let mut call = None;
        for (key, value) in node.pairs()? {
            let name = key.scalar()?;
            if name == RESERVED {
                at = Self::read_time(value)?.or(at);
            } else if call.replace((key, name, value)).is_some() {
                return Err(key.fault("one document is one call"));
            }
        }
        let Some((key, name, value)) = call else {
            return Err(node.fault("there is no method"));
        };
        let (_, method) = schema
            .method_named(name)
            .map_err(|error| key.fault(error))?;
        let arguments = read_arguments(value, method, schema);
        Ok(Self {
            at,
            method: method.name.clone(),
            arguments: arguments.map_err(|error| error.within(name))?,
        })
    }

    /// The time in a document.
    pub(crate) fn read_time(node: &Node) -> Result<Option<i64>> {
        let bare = Schema::new("time", 1, Vec::new(), Vec::new())?;
        Ok(match read(node, &Type::Timestamp, &bare)? {
            Value::Timestamp(ns) => Some(ns),
            _ => None,
        })
    }
}

fn read_arguments(node: &Node, method: &Method, schema: &Schema) -> Result<Vec<(String, Value)>> {
    match (&method.arguments[..], &node.content) {
        ([only], _) => {
            let value = read(node, &only.ty, schema);
            let value = value.map_err(|error| error.within(&only.name))?;
            Ok(vec![(only.name.clone(), value)])
        }
        ([], Content::List(items)) if items.is_empty() => Ok(Vec::new()),
        (several, _) => read_fields(node, several, schema),
    }
}

/// The schemas of a journal, from its notes.
#[derive(Debug, Default, Clone)]
pub struct Catalog {
    schemas: HashMap<u32, Arc<Schema>>,
    inputs: HashMap<u32, InputName>,
}

impl Catalog {
    /// Adds the contents of a note.
    ///
    /// # Errors
    /// Two schemas have one id: one of a pair in four thousand million.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn learn(&mut self, note: Note) -> Result<()> {
        match note {
            Note::Schema(schema) => {
                let known = self.schemas.get(&schema.id());
                if let Some(known) = known.filter(|known| ***known != schema) {
                    let reason = format!("has the same id as {}", known.interface());
                    return Err(schema.fault(reason));
                }
                self.schemas.insert(schema.id(), Arc::new(schema));
            }
            Note::Input { number, input } => {
                self.inputs.insert(number, input);
            }
            Note::Dead { .. } => {}
        }
        Ok(())
    }

    /// Adds notes from before those that are known: a newer note of the same kind stays.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn learn_older(&mut self, older: Self) {
        for (id, schema) in older.schemas {
            self.schemas.entry(id).or_insert(schema);
        }
        for (number, input) in older.inputs {
            self.inputs.entry(number).or_insert(input);
        }
    }

    /// The schema of an id.
    #[must_use]
    pub fn schema(&self, id: u32) -> Option<&Arc<Schema>> {
        self.schemas.get(&id)
    }

    /// All schemas, in no order.
    pub fn schemas(&self) -> impl Iterator<Item = &Arc<Schema>> {
        self.schemas.values()
    }

    /// The journal of an input of a [`Lineage`].
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn input(&self, number: u32) -> Option<&InputName> {
        self.inputs.get(&number)
    }

    /// How many inputs notes have named.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// Reads the body of a record: learns from a note, returns a call.
    ///
    /// # Errors
    /// No note holds the schema of the record, or the record does not match it.
    pub fn read(&mut self, body: &[u8]) -> Result<Option<(Option<Lineage>, Call)>> {
        match Record::read(body)? {
            Record::Note(note) => self.learn(Note::from_bytes(note)?).map(|()| None),
            Record::Call(lineage, head, values) => {
                let Some(schema) = self.schemas.get(&head.schema) else {
                    return Err(Box::new(WireError::UnknownSchema { id: head.schema }));
                };
                let method = schema.method(head.method)?;
                let call = Call::unpack(method, values, schema)?;
                Ok(Some((lineage, call)))
            }
        }
    }
}
