//! Schemas and values from a seed.

use millstream_wire::{Definition, Field, Method, Schema, Shape, Type, Value, Variant};

/// xorshift64*: enough to vary tests, and the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A number of any magnitude.
    fn number(&mut self) -> i64 {
        let bits = self.below(64);
        (self.next() as i64) >> bits
    }

    fn text(&mut self) -> String {
        const CHARS: &[char] = &[
            'a', 'Z', '0', ' ', '#', ':', '-', '"', '\'', '\\', '\n', '\t', '{', '}', '[', ']',
            ',', '&', '*', '!', '|', '>', '%', '@', '`', '~', 'é', '水', '🚀', '\0', '\u{7f}',
            '\u{85}', '\u{a0}', '\u{2028}', '\u{feff}', '\r', '\u{9f}', '\u{ffff}',
        ];
        let len = self.below(8);
        (0..len).map(|_| CHARS[self.below(CHARS.len())]).collect()
    }
}

const SCALARS: [Type; 16] = [
    Type::Bool,
    Type::I8,
    Type::I16,
    Type::I32,
    Type::I64,
    Type::U8,
    Type::U16,
    Type::U32,
    Type::U64,
    Type::F32,
    Type::F64,
    Type::Char,
    Type::Str,
    Type::Bytes,
    Type::Timestamp,
    Type::Decimal,
];

/// A type; a named one among the first `named`.
fn ty(random: &mut Random, depth: usize, named: usize) -> Type {
    let inner = |random: &mut Random| Box::new(ty(random, depth + 1, named));
    match random.below(if depth < 3 { 24 } else { 16 }) {
        16 | 17 => match inner(random) {
            option if matches!(*option, Type::Option(_)) => *option,
            inner => Type::Option(inner),
        },
        18 | 19 => Type::List(inner(random)),
        20 => {
            let keys = [
                Type::Str,
                Type::U16,
                Type::Char,
                Type::Bool,
                Type::Timestamp,
            ];
            let key = keys[random.below(keys.len())].clone();
            Type::Map(Box::new(key), inner(random))
        }
        21.. if named > 0 => Type::Named(random.below(named)),
        scalar => SCALARS[scalar.min(15)].clone(),
    }
}

fn fields(random: &mut Random, named: usize, least: usize) -> Vec<Field> {
    let count = least + random.below(6);
    (0..count)
        .map(|at| Field::new(format!("f{at}"), ty(random, 0, named)))
        .collect()
}

/// A schema whose types refer to earlier ones only, so that their values are finite.
pub fn schema(random: &mut Random) -> Schema {
    let definition = |random: &mut Random, at: usize| {
        let name = format!("T{at}");
        let shape = if random.below(2) == 0 {
            Shape::Struct(fields(random, at, 0))
        } else {
            let count = 1 + random.below(3);
            let variant = |it| Variant::new(format!("V{it}"), fields(random, at, 0));
            Shape::Enum((0..count).map(variant).collect())
        };
        Definition { name, shape }
    };
    let definitions: Vec<_> = (0..random.below(4))
        .map(|at| definition(random, at))
        .collect();
    let method = |at| Method::new(format!("m{at}"), fields(random, definitions.len(), 0));
    let methods = (0..3).map(method).collect();
    Schema::new("Any", 1, methods, definitions).unwrap()
}

/// A value of the type.
pub fn value(random: &mut Random, ty: &Type, schema: &Schema) -> Value {
    let len = random.below(4);
    match ty {
        Type::Bool => Value::Bool(random.below(2) == 0),
        Type::F32 => Value::F32(f32::from_bits(random.next() as u32 & 0xff7f_ffff)),
        Type::F64 => Value::F64(f64::from_bits(random.next() & 0xffef_ffff_ffff_ffff)),
        Type::Char => Value::Str(random.text().chars().next().unwrap_or('x').into()),
        Type::Str => Value::Str(random.text()),
        Type::Bytes => Value::Bytes(random.text().into_bytes()),
        Type::Timestamp => Value::Timestamp(random.number()),
        Type::Decimal => Value::Decimal(format!("{}.{}", random.number(), len)),
        Type::Option(_) if random.below(3) == 0 => Value::None,
        Type::Option(inner) => value(random, inner, schema),
        Type::List(inner) => Value::List((0..len).map(|_| value(random, inner, schema)).collect()),
        Type::Map(key, inner) => {
            let mut pairs: Vec<(Value, Value)> = Vec::new();
            for _ in 0..len {
                let key = value(random, key, schema);
                if !pairs.iter().any(|(known, _)| *known == key) {
                    pairs.push((key, value(random, inner, schema)));
                }
            }
            Value::Map(pairs)
        }
        Type::Named(index) => match &schema.definition(*index).unwrap().shape {
            Shape::Struct(fields) => Value::Struct(values(random, fields, schema)),
            Shape::Enum(variants) => {
                let variant = &variants[random.below(variants.len())];
                Value::Variant(
                    variant.name.clone(),
                    values(random, &variant.fields, schema),
                )
            }
        },
        integer => {
            let (min, max) = integer.integer_range().unwrap();
            Value::Int(match random.below(4) {
                0 => min,
                1 => max,
                _ => i128::from(random.number()).clamp(min, max),
            })
        }
    }
}

/// A value for each field.
pub fn values(random: &mut Random, fields: &[Field], schema: &Schema) -> Vec<(String, Value)> {
    let value = |field: &Field| (field.name.clone(), value(random, &field.ty, schema));
    fields.iter().map(value).collect()
}
