//! Values from JSON. Types are not converted: a number in a string is no number.

use std::collections::HashSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::tree::Tree;
use crate::error::{Result, WireError};
use crate::scalars::{Decimal, Timestamp};
use crate::schema::{Definition, Field, Schema, Shape, Type};
use crate::value::{Value, out_of_range};

/// Reads a value of the type.
pub(super) fn value(tree: &Tree, ty: &Type, schema: &Schema) -> Result<Value> {
    Ok(match (ty, tree) {
        (Type::Option(_), Tree::Null) => Value::None,
        (Type::Option(inner), tree) => value(tree, inner, schema)?,
        (Type::Bool, Tree::Bool(value)) => Value::Bool(*value),
        (Type::F32, tree) => Value::F32(f32(tree)?),
        (Type::F64, tree) => Value::F64(float(tree, "f64")?),
        (Type::Str, Tree::Text(text)) => Value::Str(text.clone()),
        (Type::Char, Tree::Text(text)) if text.chars().count() == 1 => Value::Str(text.clone()),
        (Type::Char, tree) => return Err(unexpected("one character", tree)),
        (Type::Decimal, Tree::Text(text)) => {
            let decimal = Decimal::new(text).map_err(WireError::json)?;
            Value::Decimal(decimal.as_str().to_owned())
        }
        (Type::Decimal, tree) => return Err(unexpected("a decimal number in a string", tree)),
        (Type::Bytes, Tree::Text(text)) => {
            let bytes = BASE64_STANDARD.decode(text);
            Value::Bytes(
                bytes.map_err(|error| WireError::json(format_args!("no base64: {error}")))?,
            )
        }
        (Type::Bytes, tree) => return Err(unexpected("base64 in a string", tree)),
        (Type::Timestamp, Tree::Text(text)) => {
            let moment = text.parse::<Timestamp>().map_err(WireError::json)?;
            Value::Timestamp(moment.0)
        }
        (Type::Timestamp, tree) => {
            return Err(unexpected("a moment like \"2026-11-21T09:30:00Z\"", tree));
        }
        (Type::List(inner), Tree::List(items)) => {
            let item = |(at, item)| {
                let item = value(item, inner, schema);
                item.map_err(|error| error.within(format_args!("[{at}]")))
            };
            Value::List(items.iter().enumerate().map(item).collect::<Result<_>>()?)
        }
        (Type::List(_), tree) => return Err(unexpected("an array", tree)),
        (Type::Map(key, inner), Tree::Object(pairs)) => map(pairs, key, inner, schema)?,
        (Type::Map(..), tree) => return Err(unexpected("an object", tree)),
        (Type::Named(index), tree) => named(tree, schema.definition(*index)?, schema)?,
        (integer, Tree::Int(value)) if integer.integer_range().is_some() => {
            match out_of_range(*value, integer) {
                Some(misfit) => return Err(WireError::json(misfit)),
                None => Value::Int(*value),
            }
        }
        (scalar, tree) => return Err(unexpected(scalar.scalar_name(), tree)),
    })
}

/// Reads the fields of a struct or a variant, or the arguments of a method; `what` names one of them.
pub(super) fn fields(
    tree: &Tree,
    fields: &[Field],
    what: &str,
    schema: &Schema,
) -> Result<Vec<(String, Value)>> {
    let Tree::Object(pairs) = tree else {
        let expected = format!("an object of {what}s by name");
        return Err(unexpected(&expected, tree));
    };
    let goes_by =
        |field: &Field, name: &String| field.name == *name || field.aliases.contains(name);
    for (name, _) in pairs {
        if !fields.iter().any(|field| goes_by(field, name)) {
            let shown = Tree::Text(name.clone());
            return Err(WireError::json(format_args!("there is no {what} {shown}")));
        }
    }
    let read = |field: &Field| {
        let mut given = pairs.iter().filter(|(name, _)| goes_by(field, name));
        let read = match (given.next(), given.next(), field.absent()) {
            (Some((name, _)), Some((other, _)), _) => {
                let reason = format_args!("{name} and {other} are names of one {what}");
                Err(WireError::json(reason))
            }
            (Some((_, tree)), None, _) => value(tree, &field.ty, schema),
            (None, _, Some(absent)) => Value::from_bytes(absent, &field.ty, schema),
            (None, _, None) => {
                let reason = format_args!("the {what} is missing and has no default");
                Err(WireError::json(reason))
            }
        };
        let read = read.map_err(|error| error.within(&field.name))?;
        Ok((field.name.clone(), read))
    };
    fields.iter().map(read).collect()
}

fn unexpected(expected: &str, found: &Tree) -> Box<WireError> {
    WireError::json(format_args!("expected {expected}, found {found}"))
}

fn float(tree: &Tree, name: &str) -> Result<f64> {
    Ok(match tree {
        Tree::Int(value) => *value as f64,
        Tree::Float(value) => *value,
        Tree::Text(text) if text == "NaN" => f64::NAN,
        Tree::Text(text) if text == "inf" => f64::INFINITY,
        Tree::Text(text) if text == "-inf" => f64::NEG_INFINITY,
        tree => return Err(unexpected(name, tree)),
    })
}

fn f32(tree: &Tree) -> Result<f32> {
    let wide = float(tree, "f32")?;
    let narrow = wide as f32;
    if narrow.is_infinite() && wide.is_finite() {
        Err(WireError::json(format_args!(
            "{tree} is out of range for f32"
        )))
    } else {
        Ok(narrow)
    }
}

fn map(pairs: &[(String, Tree)], key: &Type, inner: &Type, schema: &Schema) -> Result<Value> {
    let pair = |(name, tree): &(String, Tree)| {
        let read = key_of(name, key, schema).and_then(|key| Ok((key, value(tree, inner, schema)?)));
        read.map_err(|error| error.within(format_args!("[{}]", Tree::Text(name.clone()))))
    };
    let pairs: Vec<_> = pairs.iter().map(pair).collect::<Result<_>>()?;
    // Two texts may mean one key: "1" and "01".
    let mut seen = HashSet::new();
    for (value, _) in &pairs {
        if !seen.insert(value.to_bytes(key, schema)?) {
            let text = serde_json::to_string(value).unwrap_or_default();
            return Err(WireError::json(format_args!(
                "the key {text} is there twice"
            )));
        }
    }
    Ok(Value::Map(pairs))
}

/// A key of a map from the key of an object.
fn key_of(text: &str, ty: &Type, schema: &Schema) -> Result<Value> {
    let tree = match ty {
        // A moment has the range of an integer, and is a text.
        Type::Timestamp => None,
        Type::Bool => text.parse().ok().map(Tree::Bool),
        ty if ty.integer_range().is_some() => text.parse().ok().map(Tree::Int),
        _ => None,
    };
    value(
        &tree.unwrap_or_else(|| Tree::Text(text.to_owned())),
        ty,
        schema,
    )
}

fn named(tree: &Tree, definition: &Definition, schema: &Schema) -> Result<Value> {
    let variants = match &definition.shape {
        Shape::Struct(of) => return Ok(Value::Struct(fields(tree, of, "field", schema)?)),
        Shape::Enum(variants) => variants,
    };
    let nothing = Tree::Object(Vec::new());
    let (name, of) = match tree {
        Tree::Text(name) => (name, &nothing),
        Tree::Object(pairs) if pairs.len() == 1 => (&pairs[0].0, &pairs[0].1),
        tree => {
            let expected = format!("a variant of {}", definition.name);
            return Err(unexpected(&expected, tree));
        }
    };
    let found = variants
        .iter()
        .find(|variant| variant.name == *name || variant.aliases.contains(name));
    let Some(variant) = found else {
        let known: Vec<&str> = variants.iter().map(|it| it.name.as_str()).collect();
        let of = &definition.name;
        let known = known.join(", ");
        let name = Tree::Text(name.clone());
        return Err(WireError::json(format_args!(
            "{of} is one of {known}, not {name}"
        )));
    };
    let read = fields(of, &variant.fields, "field", schema);
    let read = read.map_err(|error| error.within(&variant.name))?;
    Ok(Value::Variant(variant.name.clone(), read))
}
