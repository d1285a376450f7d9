//! The check of a schema. A schema that passes needs no further checks when records are read.

use std::collections::HashSet;

use crate::error::{Result, WireError};
use crate::limits::{DEPTH_MAX, NAME_LEN_MAX, NAMES_MAX};
use crate::schema::{Definition, Field, Method, Parts, Schema, Shape, Type};
use crate::unpack::Unpacker;
use crate::value::Value;

/// Keys of a document that are no methods: the time of the call.
pub(crate) const RESERVED: &str = "at";

impl Schema {
    /// Creates a schema from its parts.
    ///
    /// # Errors
    /// [`WireError::Schema`] says which name or type is wrong.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn new(
        interface: impl Into<String>,
        version: u32,
        methods: Vec<Method>,
        definitions: Vec<Definition>,
    ) -> Result<Self> {
        let interface = interface.into();
        Self::of_parts(Parts {
            interface,
            version,
            methods,
            definitions,
        })
    }

    /// Reads a schema from any bytes.
    ///
    /// # Errors
    /// The bytes are no schema, one of a newer format, or one that contradicts itself.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut values = Unpacker::new(bytes);
        let schema = Self::unpack(&mut values)?;
        values.end()?;
        Ok(schema)
    }

    pub(crate) fn unpack(values: &mut Unpacker<'_>) -> Result<Self> {
        Self::of_parts(Parts::unpack(values)?)
    }

    fn of_parts(parts: Parts) -> Result<Self> {
        let schema = Self::of_checked(parts)?;
        check(&schema)?;
        Ok(schema)
    }
}

fn check(schema: &Schema) -> Result<()> {
    let check = Check(schema);
    check.name("interface", schema.interface())?;
    let definitions = schema.definitions().iter().map(|it| (&it.name, &[][..]));
    check.names("type", definitions)?;
    let methods = schema
        .methods()
        .iter()
        .map(|it| (&it.name, &it.aliases[..]));
    check.names("method", methods)?;
    for definition in schema.definitions() {
        let name = &definition.name;
        match &definition.shape {
            Shape::Struct(fields) => check.fields(name, fields)?,
            Shape::Enum(variants) if variants.is_empty() => {
                return check.fault(format!("enum {name} has no variants"));
            }
            Shape::Enum(variants) => {
                let names = variants.iter().map(|it| (&it.name, &it.aliases[..]));
                check.names("variant", names)?;
                for variant in variants {
                    check.fields(&format!("{name}.{}", variant.name), &variant.fields)?;
                }
            }
        }
    }
    for method in schema.methods() {
        if method.name == RESERVED {
            return check.fault(format!("a method may not be called {RESERVED}"));
        }
        check.fields(&method.name, &method.arguments)?;
    }
    Ok(())
}

struct Check<'a>(&'a Schema);

impl Check<'_> {
    fn fault(&self, reason: String) -> Result<()> {
        Err(self.0.fault(reason))
    }

    fn name(&self, what: &str, name: &str) -> Result<()> {
        let odd = |c: char| c.is_control() || c.is_whitespace() || c == '.' || c == ':';
        if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains(odd) {
            return self.fault(format!("{name:?} cannot be the name of a {what}"));
        }
        Ok(())
    }

    /// Names and aliases of one level: each may occur once.
    fn names<'n>(
        &self,
        what: &str,
        names: impl ExactSizeIterator<Item = (&'n String, &'n [String])>,
    ) -> Result<()> {
        if names.len() > NAMES_MAX {
            return self.fault(format!("{} {what}s, at most {NAMES_MAX}", names.len()));
        }
        let mut seen = HashSet::new();
        for (name, aliases) in names {
            for name in [name].into_iter().chain(aliases) {
                self.name(what, name)?;
                if !seen.insert(name) {
                    return self.fault(format!("two {what}s are called {name}"));
                }
            }
        }
        Ok(())
    }

    fn fields(&self, of: &str, fields: &[Field]) -> Result<()> {
        let names = fields.iter().map(|it| (&it.name, &it.aliases[..]));
        self.names(&format!("field of {of} "), names)?;
        for field in fields {
            self.ty(&field.ty, 0)
                .and_then(|()| self.default(field))
                .map_err(|error| {
                    let reason = match *error {
                        WireError::Schema { reason, .. } => reason,
                        other => other.to_string(),
                    };
                    self.0.fault(format!("{of}.{}: {reason}", field.name))
                })?;
        }
        Ok(())
    }

    fn default(&self, field: &Field) -> Result<()> {
        let Some(default) = &field.default else {
            return Ok(());
        };
        let mut values = Unpacker::new(default);
        Value::unpack(&mut values, &field.ty, self.0)?;
        values.end()
    }

    fn ty(&self, ty: &Type, depth: usize) -> Result<()> {
        if depth == DEPTH_MAX {
            return self.fault(format!(
                "types are nested more than {DEPTH_MAX} levels deep"
            ));
        }
        match ty {
            Type::Option(inner) if matches!(**inner, Type::Option(_)) => {
                self.fault("an option within an option cannot be told from none".into())
            }
            Type::Option(inner) | Type::List(inner) => self.ty(inner, depth + 1),
            Type::Map(key, value) => {
                self.key(key)?;
                self.ty(value, depth + 1)
            }
            Type::Named(index) => self.0.definition(*index).map(|_| ()),
            _ => Ok(()),
        }
    }

    fn key(&self, ty: &Type) -> Result<()> {
        let fits = match ty {
            Type::F32 | Type::F64 | Type::Option(_) | Type::List(_) | Type::Map(..) => false,
            Type::Named(index) => match &self.0.definition(*index)?.shape {
                Shape::Struct(_) => false,
                Shape::Enum(variants) => variants.iter().all(|it| it.fields.is_empty()),
            },
            _ => true,
        };
        if fits {
            return Ok(());
        }
        self.fault(format!(
            "{} cannot be the key of a map",
            self.0.type_name(ty)
        ))
    }
}
