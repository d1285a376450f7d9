//! A value of any type, with the names of its fields: for programs that lack the Rust type.
//!
//! ```
//! use millstream_wire::{Schema, Type, Value};
//! let schema = Schema::new("Prices", 1, vec![], vec![])?;
//! let prices = Type::List(Box::new(Type::F64));
//! let value = Value::List(vec![Value::F64(72.5), Value::F64(73.0)]);
//! let bytes = value.to_bytes(&prices, &schema)?;
//! assert_eq!(Value::from_bytes(&bytes, &prices, &schema)?, value);
//! # Ok::<(), Box<millstream_wire::WireError>>(())
//! ```

use crate::error::{Misfit, Result, WireError};
use crate::pack::{Packer, pack_growing};
use crate::scalars::Decimal;
use crate::schema::{Definition, Field, Schema, Shape, Type};
use crate::unpack::Unpacker;

/// A value of any type of a schema.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An `Option` that holds nothing.
    None,
    /// `true` or `false`.
    Bool(bool),
    /// An integer of any width.
    Int(i128),
    /// A float of 32 bits.
    F32(f32),
    /// A float of 64 bits.
    F64(f64),
    /// A string or a character.
    Str(String),
    /// A decimal number as its text.
    Decimal(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// Nanoseconds since 1970, UTC.
    Timestamp(i64),
    /// Values of one type.
    List(Vec<Value>),
    /// Pairs of key and value.
    Map(Vec<(Value, Value)>),
    /// Fields with their names, in the order of the schema.
    Struct(Vec<(String, Value)>),
    /// The name of a variant and its fields.
    Variant(String, Vec<(String, Value)>),
}

impl Value {
    /// Reads a value that takes up all of `bytes`.
    ///
    /// # Errors
    /// The bytes are no value of this type.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn from_bytes(bytes: &[u8], ty: &Type, schema: &Schema) -> Result<Self> {
        let mut values = Unpacker::new(bytes);
        let value = Self::unpack(&mut values, ty, schema)?;
        values.end()?;
        Ok(value)
    }

    /// The value as bytes.
    ///
    /// # Errors
    /// It is no value of this type.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn to_bytes(&self, ty: &Type, schema: &Schema) -> Result<Vec<u8>> {
        pack_growing(|out| self.pack(out, ty, schema))
    }

    /// Reads the next value.
    ///
    /// # Errors
    /// It is of another type.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn unpack(values: &mut Unpacker<'_>, ty: &Type, schema: &Schema) -> Result<Self> {
        unpack(values, ty, schema)
    }

    /// Writes the value.
    ///
    /// # Errors
    /// It is of another type, or there is no space.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn pack(&self, out: &mut Packer<'_>, ty: &Type, schema: &Schema) -> Result<()> {
        pack(self, out, ty, schema)
    }

    /// The name of the kind of value, for errors.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Bool(_) => "a bool",
            Self::Int(_) => "an integer",
            Self::F32(_) | Self::F64(_) => "a float",
            Self::Str(_) => "a string",
            Self::Decimal(_) => "a decimal",
            Self::Bytes(_) => "bytes",
            Self::Timestamp(_) => "a timestamp",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Struct(_) => "a struct",
            Self::Variant(..) => "a variant of an enum",
        }
    }
}

fn unpack(values: &mut Unpacker<'_>, ty: &Type, schema: &Schema) -> Result<Value> {
    Ok(match ty {
        Type::Bool => Value::Bool(values.bool()?),
        Type::F32 => Value::F32(values.f32()?),
        Type::F64 => Value::F64(values.f64()?),
        Type::Char => Value::Str(values.char()?.into()),
        Type::Str => Value::Str(values.str()?.to_owned()),
        Type::Decimal => {
            let text = values.str()?;
            Decimal::new(text).map_err(|_| values.misfit(Misfit::Decimal(text.to_owned())))?;
            Value::Decimal(text.to_owned())
        }
        Type::Bytes => Value::Bytes(values.bytes()?.to_owned()),
        Type::Timestamp => Value::Timestamp(values.int()?),
        Type::Option(_) if values.take_nil()? => Value::None,
        Type::Option(inner) => Value::unpack(values, inner, schema)?,
        Type::List(inner) => {
            let len = values.array()?;
            let items = values.deeper(|values| {
                let item = |at| {
                    let item = Value::unpack(values, inner, schema);
                    item.map_err(|error| error.within(format_args!("[{at}]")))
                };
                (0..len).map(item).collect::<Result<_>>()
            });
            Value::List(items?)
        }
        Type::Map(key, value) => {
            let len = values.map()?;
            let pairs = values.deeper(|values| {
                let pair = |_| {
                    let key = Value::unpack(values, key, schema)?;
                    Ok((key, Value::unpack(values, value, schema)?))
                };
                (0..len).map(pair).collect::<Result<_>>()
            });
            Value::Map(pairs?)
        }
        Type::Named(index) => unpack_named(values, schema.definition(*index)?, schema)?,
        integer => Value::Int(unpack_integer(values, integer)?),
    })
}

fn unpack_integer(values: &mut Unpacker<'_>, ty: &Type) -> Result<i128> {
    let value: i128 = match ty {
        Type::U64 => values.uint()?.into(),
        _ => values.int()?.into(),
    };
    if let Some(misfit) = out_of_range(value, ty) {
        return Err(values.misfit(misfit));
    }
    Ok(value)
}

pub(crate) fn out_of_range(value: i128, ty: &Type) -> Option<Misfit> {
    let (min, max) = ty.integer_range()?;
    (value < min || value > max).then(|| Misfit::Range {
        value: value.to_string(),
        kind: ty.scalar_name(),
    })
}

fn unpack_named(
    values: &mut Unpacker<'_>,
    definition: &Definition,
    schema: &Schema,
) -> Result<Value> {
    let variants = match &definition.shape {
        Shape::Struct(fields) => {
            values.array_of(fields.len())?;
            let read = values.deeper(|values| unpack_fields(values, fields, schema));
            return Ok(Value::Struct(read?));
        }
        Shape::Enum(variants) => variants,
    };
    let (number, count) = values.variant()?;
    let found = usize::try_from(number).ok().and_then(|at| variants.get(at));
    let variant = found.ok_or_else(|| values.no_variant(number))?;
    values.variant_fields(count, variant.fields.len())?;
    let fields = values.deeper(|values| unpack_fields(values, &variant.fields, schema))?;
    Ok(Value::Variant(variant.name.clone(), fields))
}

pub(crate) fn unpack_fields(
    values: &mut Unpacker<'_>,
    fields: &[Field],
    schema: &Schema,
) -> Result<Vec<(String, Value)>> {
    let read = |field: &Field| {
        let value = Value::unpack(values, &field.ty, schema);
        let value = value.map_err(|error| error.within(&field.name))?;
        Ok((field.name.clone(), value))
    };
    fields.iter().map(read).collect()
}

fn pack(value: &Value, out: &mut Packer<'_>, ty: &Type, schema: &Schema) -> Result<()> {
    match (value, ty) {
        (Value::None, Type::Option(_)) => out.nil(),
        (value, Type::Option(inner)) => pack(value, out, inner, schema),
        (Value::Bool(value), Type::Bool) => out.bool(*value),
        (Value::F32(value), Type::F32) => out.f32(*value),
        (Value::F64(value), Type::F64) => out.f64(*value),
        (Value::F32(value), Type::F64) => out.f64((*value).into()),
        (Value::Str(value), Type::Str) => out.str(value),
        (Value::Str(value), Type::Char) if value.chars().count() == 1 => out.str(value),
        (Value::Decimal(value), Type::Decimal) => out.str(Decimal::new(value)?.as_str()),
        (Value::Bytes(value), Type::Bytes) => out.bytes(value),
        (Value::Timestamp(value), Type::Timestamp) => out.int(*value),
        (Value::Int(value), ty) if ty.integer_range().is_some() => {
            if let Some(misfit) = out_of_range(*value, ty) {
                return Err(WireError::encode(misfit));
            }
            // A number within the range above is an i64 or a u64.
            match i64::try_from(*value) {
                Ok(value) => out.int(value),
                Err(_) => out.uint(*value as u64),
            }
        }
        (Value::List(items), Type::List(inner)) => {
            out.array(items.len())?;
            out.deeper(|out| {
                items.iter().enumerate().try_for_each(|(at, item)| {
                    pack(item, out, inner, schema)
                        .map_err(|error| error.within(format_args!("[{at}]")))
                })
            })
        }
        (Value::Map(pairs), Type::Map(key, value)) => {
            out.map(pairs.len())?;
            out.deeper(|out| {
                pairs.iter().try_for_each(|(k, v)| {
                    pack(k, out, key, schema)?;
                    pack(v, out, value, schema)
                })
            })
        }
        (value, Type::Named(index)) => pack_named(value, out, schema.definition(*index)?, schema),
        (value, ty) => Err(WireError::encode(Misfit::Kind {
            expected: ty.scalar_name(),
            found: value.kind().into(),
        })),
    }
}

fn pack_named(
    value: &Value,
    out: &mut Packer<'_>,
    definition: &Definition,
    schema: &Schema,
) -> Result<()> {
    match (value, &definition.shape) {
        (Value::Struct(given), Shape::Struct(fields)) => {
            out.array(fields.len())?;
            out.deeper(|out| pack_fields(given, out, fields, schema))
        }
        (Value::Variant(name, given), Shape::Enum(variants)) => {
            let found = variants.iter().position(|variant| variant.name == *name);
            let Some(number) = found else {
                return Err(WireError::encode(Misfit::Variant(name.clone())));
            };
            let fields = &variants[number].fields;
            out.variant(number as u64, fields.len())?;
            out.deeper(|out| pack_fields(given, out, fields, schema))
        }
        (value, shape) => Err(WireError::encode(Misfit::Kind {
            expected: match shape {
                Shape::Struct(_) => "a struct",
                Shape::Enum(_) => "a variant of an enum",
            },
            found: value.kind().into(),
        })),
    }
}

pub(crate) fn pack_fields(
    given: &[(String, Value)],
    out: &mut Packer<'_>,
    fields: &[Field],
    schema: &Schema,
) -> Result<()> {
    let unknown = |(name, _): &&(String, Value)| !fields.iter().any(|field| field.name == *name);
    if let Some((name, _)) = given.iter().find(unknown) {
        let misfit = Misfit::Kind {
            expected: "a field of the schema",
            found: name.clone(),
        };
        return Err(WireError::encode(misfit));
    }
    for field in fields {
        let value = given.iter().find(|(name, _)| *name == field.name);
        let packed = match (value, field.absent()) {
            (Some((_, value)), _) => pack(value, out, &field.ty, schema),
            (None, Some(absent)) => out.raw(absent),
            (None, None) => Err(WireError::encode(Misfit::Missing)),
        };
        packed.map_err(|error| error.within(&field.name))?;
    }
    Ok(())
}
