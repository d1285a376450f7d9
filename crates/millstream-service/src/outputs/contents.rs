//! The contents of calls, the bytes after the lineage: whether a recorded call and one that is made now are the same,
//! and their text.

use std::collections::HashMap;
use std::sync::Arc;

use millstream_wire::{Adapter, Call, Cause, Method, Schema, Unpacker, Value};

use crate::inputs::calls::Calls;

/// How long the text of a call in an error is at most, in characters.
const TEXT_LEN_MAX: usize = 200;

/// Compares calls of the versions of some interfaces.
#[derive(Default)]
pub(crate) struct Contents {
    /// By the schemas of the recorded call and of the new one; `None` where the one cannot be read as the other.
    adapters: HashMap<(u32, u32), Option<Adapter>>,
}

/// The schema of a call, the number of its method, and its arguments.
struct Parts<'a> {
    schema: u32,
    method: u64,
    arguments: Unpacker<'a>,
}

impl<'a> Parts<'a> {
    fn of(contents: &'a [u8]) -> Result<Self, Cause> {
        let mut values = Unpacker::new(contents);
        values.array()?;
        Ok(Self {
            schema: values.narrow_int("u32")?,
            method: values.uint()?,
            arguments: values,
        })
    }
}

impl Contents {
    /// Whether the recorded call, which is in the record `sequence`, has the method and the arguments of the one that
    /// is made now. Arguments and fields that only one of the versions has are not compared, nor is the order of maps.
    pub fn are_same(
        &mut self,
        recorded: &[u8],
        sequence: u64,
        calls: &mut Calls,
        made: &[u8],
        schemas: &[Arc<Schema>],
    ) -> Result<bool, Cause> {
        let theirs = Parts::of(recorded)?;
        let ours = Parts::of(made)?;
        let our_schema = schema_of(ours.schema, schemas)?;
        let our_method = our_schema.method(ours.method)?;
        if theirs.schema == ours.schema {
            return Ok(theirs.method == ours.method
                && agree(
                    &Call::unpack(our_method, theirs.arguments, our_schema)?,
                    &Call::unpack(our_method, ours.arguments, our_schema)?,
                    our_method,
                ));
        }
        let their_schema = calls.schema(theirs.schema, sequence)?;
        let their_method = their_schema.method(theirs.method)?;
        let is_named =
            our_method.name == their_method.name || our_method.aliases.contains(&their_method.name);
        if their_schema.interface() != our_schema.interface() || !is_named {
            return Ok(false);
        }
        let adapter = self
            .adapters
            .entry((theirs.schema, ours.schema))
            .or_insert_with(|| Adapter::new(their_schema, our_schema).ok());
        if let Some(adapter) = adapter
            && let Ok(Some((_, adapted))) = adapter.adapt(theirs.method, theirs.arguments.clone())
            && adapted.rest() == ours.arguments.rest()
        {
            return Ok(true);
        }
        Ok(agree(
            &Call::unpack(their_method, theirs.arguments, their_schema)?,
            &Call::unpack(our_method, ours.arguments, our_schema)?,
            our_method,
        ))
    }
}

/// A call that the component makes, as text.
pub(crate) fn text_of(contents: &[u8], schemas: &[Arc<Schema>]) -> Result<String, Cause> {
    let Parts {
        schema,
        method,
        arguments,
    } = Parts::of(contents)?;
    let schema = schema_of(schema, schemas)?;
    shown(schema, method, arguments)
}

/// The call in the record `sequence`, as text.
pub(crate) fn recorded_text(
    contents: &[u8],
    sequence: u64,
    calls: &mut Calls,
) -> Result<String, Cause> {
    let Parts {
        schema,
        method,
        arguments,
    } = Parts::of(contents)?;
    shown(calls.schema(schema, sequence)?, method, arguments)
}

fn shown(schema: &Schema, method: u64, arguments: Unpacker<'_>) -> Result<String, Cause> {
    let line = Call::unpack(schema.method(method)?, arguments, schema)?.to_line();
    Ok(match line.char_indices().nth(TEXT_LEN_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    })
}

fn schema_of(id: u32, schemas: &[Arc<Schema>]) -> Result<&Schema, Cause> {
    let found = schemas.iter().find(|schema| schema.id() == id);
    Ok(found.ok_or("the publisher has not announced its interface")?)
}

/// Whether the arguments agree that both have; `method` is that of `ours`.
fn agree(theirs: &Call, ours: &Call, method: &Method) -> bool {
    ours.arguments.iter().all(|(name, ours)| {
        let field = method.arguments.iter().find(|field| field.name == *name);
        let is_named = |known: &String| {
            known == name || field.is_some_and(|field| field.aliases.contains(known))
        };
        let found = theirs.arguments.iter().find(|(known, _)| is_named(known));
        found.is_none_or(|(_, theirs)| are_equal(theirs, ours))
    })
}

/// Whether two values are equal, where fields that one of them lacks do not count, nor does the order of a map.
fn are_equal(theirs: &Value, ours: &Value) -> bool {
    match (theirs, ours) {
        (Value::List(theirs), Value::List(ours)) => {
            theirs.len() == ours.len()
                && theirs
                    .iter()
                    .zip(ours)
                    .all(|(theirs, ours)| are_equal(theirs, ours))
        }
        (Value::Map(theirs), Value::Map(ours)) => {
            let theirs = sorted(theirs);
            let ours = sorted(ours);
            let mut pairs = theirs.iter().zip(&ours);
            theirs.len() == ours.len()
                && pairs.all(|((one, their), (other, our))| {
                    are_equal(one, other) && are_equal(their, our)
                })
        }
        (Value::Struct(theirs), Value::Struct(ours)) => have_equal_fields(theirs, ours),
        (Value::Variant(theirs, their), Value::Variant(ours, our)) => {
            theirs == ours && have_equal_fields(their, our)
        }
        // By their bits: one that is no number is equal to itself.
        (Value::F64(theirs), Value::F64(ours)) => theirs.to_bits() == ours.to_bits(),
        (Value::F32(theirs), Value::F32(ours)) => theirs.to_bits() == ours.to_bits(),
        (Value::F32(theirs), Value::F64(ours)) => f64::from(*theirs).to_bits() == ours.to_bits(),
        (Value::Decimal(theirs), Value::Str(ours)) => theirs == ours,
        (theirs, ours) => theirs == ours,
    }
}

fn have_equal_fields(theirs: &[(String, Value)], ours: &[(String, Value)]) -> bool {
    ours.iter().all(|(name, ours)| {
        let found = theirs.iter().find(|(known, _)| known == name);
        found.is_none_or(|(_, theirs)| are_equal(theirs, ours))
    })
}

fn sorted(pairs: &[(Value, Value)]) -> Vec<&(Value, Value)> {
    let mut sorted: Vec<_> = pairs.iter().collect();
    sorted.sort_by_cached_key(|(key, _)| format!("{key:?}"));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: Value) -> (String, Value) {
        (name.to_owned(), value)
    }

    #[test]
    fn the_order_of_a_map_and_fields_of_one_side_do_not_count() {
        let entry = |key: &str, n| (Value::Str(key.to_owned()), Value::Int(n));
        let map = |pairs: &[(Value, Value)]| Value::Map(pairs.to_vec());
        let (a, b, c) = (entry("a", 1), entry("b", 2), entry("b", 3));
        assert!(are_equal(
            &map(&[a.clone(), b.clone()]),
            &map(&[b.clone(), a.clone()])
        ));
        assert!(!are_equal(
            &map(&[a.clone(), b.clone()]),
            &map(&[a.clone(), c])
        ));
        assert!(!are_equal(&map(&[a.clone(), b]), &map(&[a])));
        let one = Value::Struct(vec![pair("id", Value::Int(1))]);
        let two = Value::Struct(vec![pair("id", Value::Int(1)), pair("more", Value::None)]);
        let three = Value::Struct(vec![pair("id", Value::Int(2)), pair("more", Value::None)]);
        assert!(are_equal(&one, &two) && are_equal(&two, &one));
        assert!(!are_equal(&one, &three));
        let list = |of: &Value| Value::List(vec![of.clone()]);
        assert!(are_equal(&list(&one), &list(&two)) && !are_equal(&list(&one), &list(&three)));
    }

    #[test]
    fn what_is_no_number_is_equal_to_itself() {
        let nan = Value::List(vec![Value::F64(f64::NAN)]);
        assert!(are_equal(&nan, &nan));
        assert!(!are_equal(&Value::F64(0.0), &Value::F64(-0.0)));
        assert!(are_equal(&Value::F32(0.5), &Value::F64(0.5)));
    }
}
