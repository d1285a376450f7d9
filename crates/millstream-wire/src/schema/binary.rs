//! A schema as bytes: `[version of this format, interface, version, types, methods]`.
//!
//! A type that holds no others is its code; one that does is an array that begins with its code.

use super::{Definition, Field, Method, Parts, Schema, Shape, Type, Variant};
use crate::error::{Misfit, Result};
use crate::pack::{Packer, pack_growing};
use crate::unpack::Unpacker;

/// The version of the format of schema records and of the calls that follow them.
pub const FORMAT: u64 = 1;

const OPTION: u64 = 16;
const LIST: u64 = 17;
const MAP: u64 = 18;
const NAMED: u64 = 19;

impl Parts {
    /// Reads the parts of a schema from any bytes.
    pub fn unpack(values: &mut Unpacker<'_>) -> Result<Self> {
        let len = values.array()?;
        let format = if len == 0 { 0 } else { values.uint()? };
        if format != FORMAT || len != 5 {
            return Err(values.misfit(Misfit::Kind {
                expected: "a schema of format 1",
                found: format!("format {format} with {len} parts"),
            }));
        }
        Ok(Parts {
            interface: values.str()?.to_owned(),
            version: values.narrow_int("u32")?,
            definitions: list(values, definition)?,
            methods: list(values, |values| {
                values.array_of(3)?;
                Ok(Method {
                    name: values.str()?.to_owned(),
                    aliases: list(values, name)?,
                    arguments: list(values, field)?,
                })
            })?,
        })
    }
}

impl Schema {
    /// The schema as bytes.
    ///
    /// # Errors
    /// None with a schema whose parts are in memory.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        pack_growing(|out| self.pack(out))
    }

    pub(crate) fn pack(&self, out: &mut Packer<'_>) -> Result<()> {
        out.array(5)?;
        out.uint(FORMAT)?;
        out.str(&self.interface)?;
        out.uint(self.version.into())?;
        write_list(out, &self.definitions, write_definition)?;
        write_list(out, &self.methods, |out, method| {
            out.array(3)?;
            out.str(&method.name)?;
            write_list(out, &method.aliases, |out, name| out.str(name))?;
            write_list(out, &method.arguments, write_field)
        })
    }
}

fn write_list<T>(
    out: &mut Packer<'_>,
    items: &[T],
    mut write: impl FnMut(&mut Packer<'_>, &T) -> Result<()>,
) -> Result<()> {
    out.array(items.len())?;
    items.iter().try_for_each(|item| write(out, item))
}

fn list<'a, T>(
    values: &mut Unpacker<'a>,
    mut read: impl FnMut(&mut Unpacker<'a>) -> Result<T>,
) -> Result<Vec<T>> {
    (0..values.array()?).map(|_| read(values)).collect()
}

fn name(values: &mut Unpacker<'_>) -> Result<String> {
    values.str().map(str::to_owned)
}

/// A struct is `[name, fields]`, an enum `[name, nil, variants]`.
fn write_definition(out: &mut Packer<'_>, definition: &Definition) -> Result<()> {
    match &definition.shape {
        Shape::Struct(fields) => {
            out.array(2)?;
            out.str(&definition.name)?;
            write_list(out, fields, write_field)
        }
        Shape::Enum(variants) => {
            out.array(3)?;
            out.str(&definition.name)?;
            out.nil()?;
            write_list(out, variants, |out, variant| {
                out.array(3)?;
                out.str(&variant.name)?;
                write_list(out, &variant.aliases, |out, name| out.str(name))?;
                write_list(out, &variant.fields, write_field)
            })
        }
    }
}

fn definition(values: &mut Unpacker<'_>) -> Result<Definition> {
    let len = values.array()?;
    let name = name(values)?;
    if !values.take_nil()? {
        if len != 2 {
            return Err(wrong_length(values, 2, len));
        }
        let shape = Shape::Struct(list(values, field)?);
        return Ok(Definition { name, shape });
    }
    if len != 3 {
        return Err(wrong_length(values, 3, len));
    }
    let shape = Shape::Enum(list(values, variant)?);
    Ok(Definition { name, shape })
}

fn wrong_length(values: &Unpacker<'_>, expected: usize, found: usize) -> Box<crate::WireError> {
    values.misfit(Misfit::Length { expected, found })
}

fn variant(values: &mut Unpacker<'_>) -> Result<Variant> {
    values.array_of(3)?;
    Ok(Variant {
        name: name(values)?,
        aliases: list(values, name)?,
        fields: list(values, field)?,
    })
}

fn write_field(out: &mut Packer<'_>, field: &Field) -> Result<()> {
    out.array(4)?;
    out.str(&field.name)?;
    write_list(out, &field.aliases, |out, name| out.str(name))?;
    write_type(out, &field.ty)?;
    match &field.default {
        Some(default) => out.bytes(default),
        None => out.nil(),
    }
}

fn field(values: &mut Unpacker<'_>) -> Result<Field> {
    values.array_of(4)?;
    let name = name(values)?;
    let aliases = list(values, self::name)?;
    let ty = read_type(values)?;
    let default = if values.take_nil()? {
        None
    } else {
        Some(values.bytes()?.to_owned())
    };
    Ok(Field {
        name,
        aliases,
        ty,
        default,
    })
}

fn write_type(out: &mut Packer<'_>, ty: &Type) -> Result<()> {
    let (code, inner): (u64, &[&Type]) = match ty {
        Type::Option(inner) => (OPTION, &[inner]),
        Type::List(inner) => (LIST, &[inner]),
        Type::Map(key, value) => (MAP, &[key, value]),
        Type::Named(index) => {
            out.array(2)?;
            out.uint(NAMED)?;
            return out.uint(*index as u64);
        }
        scalar => {
            let code = Type::SCALARS.iter().position(|it| it == scalar);
            return out.uint(code.unwrap_or_default() as u64);
        }
    };
    out.array(1 + inner.len())?;
    out.uint(code)?;
    inner.iter().try_for_each(|ty| write_type(out, ty))
}

fn read_type(values: &mut Unpacker<'_>) -> Result<Type> {
    values.deeper(|values| {
        let len = if values.at_array() {
            values.array()?
        } else {
            0
        };
        let code = values.uint()?;
        Ok(match (code, len) {
            (OPTION, 2) => Type::Option(Box::new(read_type(values)?)),
            (LIST, 2) => Type::List(Box::new(read_type(values)?)),
            (MAP, 3) => {
                let key = read_type(values)?;
                Type::Map(Box::new(key), Box::new(read_type(values)?))
            }
            (NAMED, 2) => Type::Named(values.narrow_int("a type")?),
            (code, 0) if code < OPTION => Type::SCALARS[code as usize].clone(),
            _ => {
                return Err(values.misfit(Misfit::Kind {
                    expected: "a type",
                    found: format!("code {code}"),
                }));
            }
        })
    })
}
