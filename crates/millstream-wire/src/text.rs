//! Values as YAML and back, guided by their types.
//!
//! A struct is a mapping of its fields; an optional field without a value, or a field that has its default, may be left
//! out. A variant without fields is its name, one with fields a mapping of its name to them. Bytes are base64, moments
//! RFC 3339. The text is written by `saphyr`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use saphyr::{Mapping, Scalar, ScalarStyle, Yaml, YamlEmitter};

use crate::error::{Result, WireError};
use crate::node::{Content, Node};
use crate::scalars::{Decimal, Timestamp, narrowed};
use crate::schema::{Definition, Field, Schema, Shape, Type};
use crate::value::{Value, out_of_range};

impl Value {
    /// Reads a value from YAML.
    ///
    /// # Errors
    /// [`WireError::Text`] with the line.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn from_text(text: &str, ty: &Type, schema: &Schema) -> Result<Self> {
        let mut documents = crate::node::parse(text)?;
        match documents.pop() {
            Some(document) if documents.is_empty() => read(&document.root, ty, schema),
            Some(_) => Err(WireError::text(1, "more than one document")),
            None => Err(WireError::text(1, "the text is empty")),
        }
    }

    /// The value as YAML, ending with a line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        emit(&yaml(self))
    }
}

/// The text of one document.
pub(crate) fn emit(yaml: &Yaml<'_>) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = YamlEmitter::new(&mut text).dump(yaml);
    let mut text = text.split_off("---\n".len().min(text.len()));
    text.push('\n');
    text
}

/// A value as what `saphyr` writes.
pub(crate) fn yaml(value: &Value) -> Yaml<'_> {
    let plain = |text: String| Yaml::Representation(text.into(), ScalarStyle::Plain, None);
    match value {
        Value::None => Yaml::Value(Scalar::Null),
        Value::Bool(value) => Yaml::Value(Scalar::Boolean(*value)),
        Value::Int(value) => plain(value.to_string()),
        Value::F32(value) if value.is_finite() => plain(format!("{value:?}")),
        Value::F64(value) if value.is_finite() => plain(format!("{value:?}")),
        Value::F32(value) => plain(not_finite((*value).into()).to_owned()),
        Value::F64(value) => plain(not_finite(*value).to_owned()),
        Value::Str(value) => string(value),
        Value::Decimal(value) => plain(value.clone()),
        Value::Bytes(value) => Yaml::Value(Scalar::String(BASE64_STANDARD.encode(value).into())),
        Value::Timestamp(ns) => plain(Timestamp(*ns).to_string()),
        Value::List(items) => Yaml::Sequence(items.iter().map(yaml).collect()),
        Value::Map(pairs) => Yaml::Mapping(
            pairs
                .iter()
                .map(|(key, value)| (yaml(key), yaml(value)))
                .collect(),
        ),
        Value::Struct(fields) => yaml_fields(fields),
        Value::Variant(name, fields) if fields.is_empty() => string(name),
        Value::Variant(name, fields) => {
            let mut pair = Mapping::new();
            pair.insert(string(name), yaml_fields(fields));
            Yaml::Mapping(pair)
        }
    }
}

pub(crate) fn string(text: &str) -> Yaml<'_> {
    Yaml::Value(Scalar::String(text.into()))
}

/// The fields of a struct or the arguments of a call; those that are nothing are left out.
pub(crate) fn yaml_fields(fields: &[(String, Value)]) -> Yaml<'_> {
    let there = fields.iter().filter(|(_, value)| *value != Value::None);
    Yaml::Mapping(
        there
            .map(|(name, value)| (string(name), yaml(value)))
            .collect(),
    )
}

fn not_finite(value: f64) -> &'static str {
    if value.is_nan() {
        ".nan"
    } else if value > 0.0 {
        ".inf"
    } else {
        "-.inf"
    }
}

/// Reads a node as a value of the type.
pub(crate) fn read(node: &Node, ty: &Type, schema: &Schema) -> Result<Value> {
    Ok(match ty {
        Type::Bool => Value::Bool(parsed(node, "a bool")?),
        Type::F32 => {
            let number = float(node)?;
            let out_of_range = || node.fault(format_args!("{number:e} is out of range for f32"));
            Value::F32(narrowed(number).ok_or_else(out_of_range)?)
        }
        Type::F64 => Value::F64(float(node)?),
        Type::Str => Value::Str(node.scalar()?.to_owned()),
        Type::Char => {
            let text = node.scalar()?;
            if text.chars().count() != 1 {
                return Err(node.fault(format_args!("expected one character, found {text:?}")));
            }
            Value::Str(text.to_owned())
        }
        Type::Decimal => {
            let text = node.scalar()?;
            let decimal = Decimal::new(text).map_err(|error| node.fault(error))?;
            Value::Decimal(decimal.as_str().to_owned())
        }
        Type::Bytes => {
            let bytes = BASE64_STANDARD.decode(node.scalar()?);
            Value::Bytes(bytes.map_err(|error| node.fault(format_args!("no base64: {error}")))?)
        }
        Type::Timestamp => {
            let moment: std::result::Result<Timestamp, _> = node.scalar()?.parse();
            Value::Timestamp(moment.map_err(|error| node.fault(error))?.0)
        }
        Type::Option(_) if node.is_null() => Value::None,
        Type::Option(inner) => read(node, inner, schema)?,
        Type::List(inner) => {
            let Content::List(items) = &node.content else {
                return Err(node.fault("expected a list"));
            };
            let item = |(at, item)| {
                let item = read(item, inner, schema);
                item.map_err(|error: Box<WireError>| error.within(format_args!("[{at}]")))
            };
            Value::List(items.iter().enumerate().map(item).collect::<Result<_>>()?)
        }
        Type::Map(key, value) => {
            let pair = |(k, v): &(Node, Node)| Ok((read(k, key, schema)?, read(v, value, schema)?));
            Value::Map(node.pairs()?.iter().map(pair).collect::<Result<_>>()?)
        }
        Type::Named(index) => read_named(node, schema.definition(*index)?, schema)?,
        integer => {
            let value: i128 = parsed(node, integer.scalar_name())?;
            if let Some(misfit) = out_of_range(value, integer) {
                return Err(node.fault(misfit));
            }
            Value::Int(value)
        }
    })
}

fn parsed<T: std::str::FromStr>(node: &Node, expected: &str) -> Result<T> {
    let text = node.scalar()?;
    let fault = |_| node.fault(format_args!("expected {expected}, found {text:?}"));
    text.parse().map_err(fault)
}

fn float(node: &Node) -> Result<f64> {
    match node.scalar()? {
        ".nan" => Ok(f64::NAN),
        ".inf" => Ok(f64::INFINITY),
        "-.inf" => Ok(f64::NEG_INFINITY),
        _ => parsed(node, "a float"),
    }
}

fn read_named(node: &Node, definition: &Definition, schema: &Schema) -> Result<Value> {
    let variants = match &definition.shape {
        Shape::Struct(fields) => return Ok(Value::Struct(read_fields(node, fields, schema)?)),
        Shape::Enum(variants) => variants,
    };
    let (name, fields) = match &node.content {
        Content::Map(pairs) if pairs.len() == 1 => (pairs[0].0.scalar()?, Some(&pairs[0].1)),
        _ => (node.scalar()?, None),
    };
    let named = |name: &str| variants.iter().find(|variant| variant.name == name);
    let Some(variant) = named(name) else {
        let known = variants.iter().map(|variant| variant.name.as_str());
        let known = known.collect::<Vec<_>>().join(", ");
        let enum_name = &definition.name;
        return Err(node.fault(format_args!("{enum_name} is one of {known}, not {name}")));
    };
    let fields = match fields {
        Some(fields) => read_fields(fields, &variant.fields, schema)?,
        None => read_pairs(node, &[], &variant.fields, schema)?,
    };
    Ok(Value::Variant(variant.name.clone(), fields))
}

/// Reads the fields of a struct or variant, or the arguments of a method, by their names.
pub(crate) fn read_fields(
    node: &Node,
    fields: &[Field],
    schema: &Schema,
) -> Result<Vec<(String, Value)>> {
    let pairs = if node.is_null() { &[] } else { node.pairs()? };
    read_pairs(node, pairs, fields, schema)
}

fn read_pairs(
    node: &Node,
    pairs: &[(Node, Node)],
    fields: &[Field],
    schema: &Schema,
) -> Result<Vec<(String, Value)>> {
    for (key, _) in pairs {
        let name = key.scalar()?;
        if !fields.iter().any(|field| goes_by(field, name)) {
            return Err(key.fault(format_args!("there is no field {name}")));
        }
    }
    let read = |field: &Field| {
        let given = pairs
            .iter()
            .find(|(key, _)| key.scalar().is_ok_and(|name| goes_by(field, name)));
        let value = match (given, field.absent()) {
            (Some((_, value)), _) => read(value, &field.ty, schema),
            (None, Some(absent)) => Value::from_bytes(absent, &field.ty, schema),
            (None, None) => Err(node.fault("the field is missing and has no default")),
        };
        let value = value.map_err(|error| error.within(&field.name))?;
        Ok((field.name.clone(), value))
    };
    fields.iter().map(read).collect()
}

fn goes_by(field: &Field, name: &str) -> bool {
    field.name == name || field.aliases.iter().any(|alias| alias == name)
}
