//! Variants of tests with small changes to their calls, which a component must survive.
//!
//! | variant | what is wrong |
//! |---|---|
//! | `missing-N`, `doubled-N`, `swapped-N` | the N-th call is missing, comes twice, changes places with the next |
//! | `VALUE-METHOD-FIELD` | in the first call of the method the field has the value |
//! | `VALUE-METHOD` | in the first call of the method all fields that can have the value have it |
//! | the same with `-N` after it | in the N-th call, which is not the first of its method |
//!
//! The values are `empty`, `nan`, `minus-1`, `largest` and `long`, each for the types that have it. Swapped calls keep
//! the order of their times. The numbers of variants are limited ([`PLACED_MAX`], [`OVERRIDDEN_MAX`]); those that come
//! first in the table come first.

use std::collections::HashSet;

use millstream_wire::{Call, Field, Schema, Shape, Type, Value};

/// How many variants have calls missing, doubled or swapped, at most.
pub(crate) const PLACED_MAX: usize = 300;
/// How many variants have fields overridden, at most.
pub(crate) const OVERRIDDEN_MAX: usize = 400;
/// How long a long text is, in characters.
const LONG: usize = 10_000;

/// A variant of a test. Its name stays the same while the calls do.
pub(crate) struct Variant {
    pub name: String,
    at: usize,
    change: Change,
}

enum Change {
    Missing,
    Doubled,
    Swapped,
    Arguments(Fields),
}

type Fields = Vec<(String, Value)>;

impl Variant {
    /// The calls of the variant.
    pub fn calls(&self, input: &[Call]) -> Vec<Call> {
        let mut calls = input.to_vec();
        let at = self.at;
        match &self.change {
            Change::Missing => drop(calls.remove(at)),
            Change::Doubled => calls.insert(at, input[at].clone()),
            Change::Swapped => {
                calls.swap(at, at + 1);
                // It is the calls that change places; time advances as before.
                (calls[at].at, calls[at + 1].at) = (input[at].at, input[at + 1].at);
            }
            Change::Arguments(arguments) => calls[at].arguments = arguments.clone(),
        }
        calls
    }
}

/// The variants of a test, and how many there would be without a limit.
pub(crate) fn variants(input: &[Call], interfaces: &[Schema]) -> (Vec<Variant>, usize) {
    let mut placed = placed(input);
    let mut overridden = overridden(input, interfaces);
    let all = placed.len() + overridden.len();
    placed.truncate(PLACED_MAX);
    overridden.truncate(OVERRIDDEN_MAX);
    placed.append(&mut overridden);
    (placed, all)
}

fn placed(input: &[Call]) -> Vec<Variant> {
    let mut variants = Vec::new();
    for at in 0..input.len() {
        let is_call = |at: usize| input.get(at).is_some_and(|call| !call.method.is_empty());
        if !is_call(at) {
            continue;
        }
        let mut add = |name: &str, change| {
            let name = format!("{name}-{}", at + 1);
            variants.push(Variant { name, at, change });
        };
        add("missing", Change::Missing);
        add("doubled", Change::Doubled);
        if is_call(at + 1) {
            add("swapped", Change::Swapped);
        }
    }
    variants
}

/// First the variants of each method's first call, a field at a time and all at once, then the same of later calls, all
/// at once and a field at a time.
fn overridden(input: &[Call], interfaces: &[Schema]) -> Vec<Variant> {
    let mut first = Vec::new();
    let mut first_all = Vec::new();
    let mut later = Vec::new();
    let mut later_all = Vec::new();
    let mut seen = HashSet::new();
    for (at, call) in input.iter().enumerate() {
        let mut known = interfaces
            .iter()
            .filter_map(|schema| Some((schema, schema.method_named(&call.method).ok()?.1)));
        let Some((schema, method)) = known.next() else {
            continue;
        };
        let is_first = seen.insert(&call.method);
        let number = if is_first {
            String::new()
        } else {
            format!("-{}", at + 1)
        };
        let (singles, several) = if is_first {
            (&mut first, &mut first_all)
        } else {
            (&mut later, &mut later_all)
        };
        for kind in KINDS {
            let found = fields(kind, &call.arguments, &method.arguments, schema);
            if found.len() > 1 {
                several.push(Variant {
                    name: format!("{}-{}{number}", kind.name(), call.method),
                    at,
                    change: Change::Arguments(all(&call.arguments, &found)),
                });
            }
            for (path, value) in found {
                let mut arguments = call.arguments.clone();
                let name = path.join("-");
                set(&mut arguments, &path, value);
                singles.push(Variant {
                    name: format!("{}-{}-{name}{number}", kind.name(), call.method),
                    at,
                    change: Change::Arguments(arguments),
                });
            }
        }
    }
    [first, first_all, later_all, later]
        .into_iter()
        .flatten()
        .collect()
}

/// A kind of value that a component may not expect.
#[derive(Clone, Copy)]
enum Kind {
    Empty,
    Nan,
    MinusOne,
    Largest,
    Long,
}

const KINDS: [Kind; 5] = [
    Kind::Empty,
    Kind::Nan,
    Kind::MinusOne,
    Kind::Largest,
    Kind::Long,
];

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Empty => "empty",
            Kind::Nan => "nan",
            Kind::MinusOne => "minus-1",
            Kind::Largest => "largest",
            Kind::Long => "long",
        }
    }

    /// The value of this kind that a type has, if it has one.
    fn value(self, ty: &Type) -> Option<Value> {
        match (self, ty) {
            (Kind::Empty, Type::Option(_)) => Some(Value::None),
            (_, Type::Option(inner)) => self.value(inner),
            (Kind::Empty, ty) => empty(ty),
            (Kind::Nan, Type::F32) => Some(Value::F32(f32::NAN)),
            (Kind::Nan, Type::F64) => Some(Value::F64(f64::NAN)),
            (Kind::Nan, _) => None,
            (Kind::MinusOne, ty) => minus_one(ty),
            (Kind::Largest, ty) => largest(ty),
            (Kind::Long, Type::Str) => Some(Value::Str("x".repeat(LONG))),
            (Kind::Long, Type::Bytes) => Some(Value::Bytes(vec![b'x'; LONG])),
            (Kind::Long, _) => None,
        }
    }
}

/// The empty value of a type, where there is one.
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

fn minus_one(ty: &Type) -> Option<Value> {
    Some(match ty {
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => Value::Int(-1),
        Type::F32 => Value::F32(-1.0),
        Type::F64 => Value::F64(-1.0),
        Type::Timestamp => Value::Timestamp(-1),
        Type::Decimal => Value::Decimal("-1".into()),
        _ => return None,
    })
}

fn largest(ty: &Type) -> Option<Value> {
    Some(match ty {
        Type::F32 => Value::F32(f32::MAX),
        Type::F64 => Value::F64(f64::MAX),
        Type::Timestamp => Value::Timestamp(i64::MAX),
        Type::Decimal => Value::Decimal("9".repeat(28)),
        integer => Value::Int(integer.integer_range()?.1),
    })
}

/// The fields that can have a value of this kind and have another: the way to each through structs, and the value.
fn fields(
    kind: Kind,
    given: &Fields,
    fields_of: &[Field],
    schema: &Schema,
) -> Vec<(Vec<String>, Value)> {
    let mut found = Vec::new();
    for ((name, value), field) in given.iter().zip(fields_of) {
        if let (Value::Struct(inner), Some(parts)) = (value, parts(&field.ty, schema)) {
            for (mut path, value) in fields(kind, inner, parts, schema) {
                path.insert(0, name.clone());
                found.push((path, value));
            }
        } else if let Some(wrong) = kind.value(&field.ty).filter(|wrong| wrong != value) {
            found.push((vec![name.clone()], wrong));
        }
    }
    found
}

/// The fields of a struct.
fn parts<'a>(ty: &Type, schema: &'a Schema) -> Option<&'a [Field]> {
    match ty {
        Type::Option(inner) => parts(inner, schema),
        Type::Named(index) => match &schema.definition(*index).ok()?.shape {
            Shape::Struct(fields) => Some(fields),
            Shape::Enum(_) => None,
        },
        _ => None,
    }
}

fn all(given: &Fields, values: &[(Vec<String>, Value)]) -> Fields {
    let mut arguments = given.clone();
    for (path, value) in values {
        set(&mut arguments, path, value.clone());
    }
    arguments
}

fn set(fields: &mut Fields, path: &[String], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    let Some((_, field)) = fields.iter_mut().find(|(name, _)| name == first) else {
        return;
    };
    match field {
        Value::Struct(inner) if !rest.is_empty() => set(inner, rest, value),
        field => *field = value,
    }
}
