//! Tests with their calls a little wrong: what a component must survive.
//!
//! For each call a variant in which it is missing, one in which it comes twice, and one in which it changes places with the next. For the
//! first call of each method a variant for each field in which that is empty: nothing, zero, no text.

use std::collections::HashSet;

use millstream_wire::{Call, Field, Schema, Shape, Type, Value};

/// The variants of a test, each with a name that stays the same while the calls do.
pub(super) fn variants(input: &[Call], interfaces: &[Schema]) -> Vec<(String, Vec<Call>)> {
    let mut variants = Vec::new();
    for at in 0..input.len() {
        let number = at + 1;
        let mut missing = input.to_vec();
        missing.remove(at);
        variants.push((format!("missing-{number}"), missing));
        let mut doubled = input.to_vec();
        doubled.insert(at, input[at].clone());
        variants.push((format!("doubled-{number}"), doubled));
        if number < input.len() {
            let mut swapped = input.to_vec();
            swapped.swap(at, number);
            variants.push((format!("swapped-{number}"), swapped));
        }
    }
    let mut seen = HashSet::new();
    for (at, call) in input.iter().enumerate() {
        if !seen.insert(&call.method) {
            continue;
        }
        let schemas = interfaces.iter();
        let known =
            schemas.filter_map(|schema| Some((schema, schema.method_named(&call.method).ok()?.1)));
        for (schema, method) in known.take(1) {
            for (name, arguments) in emptied(&call.arguments, &method.arguments, schema) {
                let mut input = input.to_vec();
                input[at].arguments = arguments;
                variants.push((format!("empty-{}-{name}", call.method), input));
            }
        }
    }
    variants
}

type Fields = Vec<(String, Value)>;

/// For each field the same fields with that one empty; the fields of structs one by one.
fn emptied(given: &Fields, fields: &[Field], schema: &Schema) -> Vec<(String, Fields)> {
    let mut variants = Vec::new();
    for (at, ((name, value), field)) in given.iter().zip(fields).enumerate() {
        let with = |value: Value| {
            let mut given = given.clone();
            given[at].1 = value;
            given
        };
        let within =
            match (value, &field.ty) {
                (Value::Struct(inner), Type::Named(index)) => schema
                    .definition(*index)
                    .ok()
                    .and_then(|it| match &it.shape {
                        Shape::Struct(fields) => Some(emptied(inner, fields, schema)),
                        Shape::Enum(_) => None,
                    }),
                _ => None,
            };
        match within {
            Some(inner) => variants.extend(inner.into_iter().map(|(inner_name, inner)| {
                (format!("{name}-{inner_name}"), with(Value::Struct(inner)))
            })),
            None => {
                if let Some(empty) = empty(&field.ty).filter(|empty| empty != value) {
                    variants.push((name.clone(), with(empty)));
                }
            }
        }
    }
    variants
}

/// The value of a type that says least, where there is one.
fn empty(ty: &Type) -> Option<Value> {
    Some(match ty {
        Type::Bool => Value::Bool(false),
        Type::F32 => Value::F32(0.0),
        Type::F64 => Value::F64(0.0),
        Type::Str => Value::Str(String::new()),
        Type::Bytes => Value::Bytes(Vec::new()),
        Type::Timestamp => Value::Timestamp(0),
        Type::Decimal => Value::Decimal("0".into()),
        Type::Option(_) => Value::None,
        Type::List(_) => Value::List(Vec::new()),
        Type::Map(..) => Value::Map(Vec::new()),
        Type::Char | Type::Named(_) => return None,
        _ => Value::Int(0),
    })
}
