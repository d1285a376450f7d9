//! The calls of an interface: methods, arguments, types and the names of all of them.
//!
//! Records hold values by position only. Their [`Schema`] is a record itself, written once per journal and again when
//! it changes, so that every journal can be read without the program that wrote it. Names stay the same between two
//! versions of an interface, positions do not: see [`Adapter`](crate::Adapter).
//!
//! A schema that exists has been checked: names are unique, types refer to definitions that are there, defaults fit
//! their types, and everything is within limits.
//!
//! ```
//! use millstream_wire::{Field, Method, Schema, Type};
//! let place = Method::new("place", vec![Field::new("price", Type::F64)]);
//! let schema = Schema::new("Orders", 1, vec![place], vec![])?;
//! assert_eq!(schema.method(1)?.name, "place");
//! assert_eq!(Schema::from_bytes(&schema.to_bytes()?)?, schema);
//! # Ok::<(), Box<millstream_wire::WireError>>(())
//! ```

mod binary;

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Result, WireError};

/// The methods of an interface and the types of their arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    id: u32,
    interface: String,
    version: u32,
    methods: Vec<Method>,
    definitions: Vec<Definition>,
}

/// A method. Its number in a record is its position in the schema, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Method {
    /// Its name.
    pub name: String,
    /// Its former names.
    pub aliases: Vec<String>,
    /// Its arguments, in order.
    pub arguments: Vec<Field>,
}

/// An argument of a method, or a field of a struct or variant.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its former names.
    pub aliases: Vec<String>,
    /// Its type.
    pub ty: Type,
    /// The value for a record that has no such field, encoded. An `Option` is nil without this.
    pub default: Option<Vec<u8>>,
}

/// The type of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Type {
    /// `true` or `false`.
    Bool,
    /// A signed integer of 8 bits.
    I8,
    /// A signed integer of 16 bits.
    I16,
    /// A signed integer of 32 bits.
    I32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 8 bits.
    U8,
    /// An unsigned integer of 16 bits.
    U16,
    /// An unsigned integer of 32 bits.
    U32,
    /// An unsigned integer of 64 bits.
    U64,
    /// A float of 32 bits.
    F32,
    /// A float of 64 bits.
    F64,
    /// A Unicode character.
    Char,
    /// A string of UTF-8.
    Str,
    /// Any bytes.
    Bytes,
    /// A moment: nanoseconds since 1970, UTC, as a signed integer.
    Timestamp,
    /// A decimal number, kept as its text.
    Decimal,
    /// A value or nothing.
    Option(Box<Type>),
    /// Any number of values of one type.
    List(Box<Type>),
    /// Pairs of key and value.
    Map(Box<Type>, Box<Type>),
    /// The struct or enum at this position among the schema's definitions.
    Named(usize),
}

/// A struct or an enum.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Definition {
    /// Its name, unique in the schema.
    pub name: String,
    /// Its parts.
    pub shape: Shape,
}

/// The parts of a named type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Shape {
    /// All of these fields.
    Struct(Vec<Field>),
    /// One of these variants.
    Enum(Vec<Variant>),
}

/// One of the forms of an enum. In a record it is its position, counted from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Variant {
    /// Its name.
    pub name: String,
    /// Its former names.
    pub aliases: Vec<String>,
    /// Its fields; often none.
    pub fields: Vec<Field>,
}

/// The parts of a schema, not yet checked.
pub(crate) struct Parts {
    pub interface: String,
    pub version: u32,
    pub methods: Vec<Method>,
    pub definitions: Vec<Definition>,
}

impl Schema {
    /// A schema of parts that were checked.
    pub(crate) fn of_checked(parts: Parts) -> Result<Self> {
        let mut schema = Self {
            id: 0,
            interface: parts.interface,
            version: parts.version,
            methods: parts.methods,
            definitions: parts.definitions,
        };
        // 0 marks a note.
        schema.id = (xxh3_64(&schema.to_bytes()?) as u32).max(1);
        Ok(schema)
    }

    /// The number of this schema in each call: a hash of all of it, never 0. So publishers need not agree on numbers,
    /// and a record means the same wherever it is copied.
    #[inline]
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The name of the interface.
    #[must_use]
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The version that its author gave it.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// All methods, in order.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn methods(&self) -> &[Method] {
        &self.methods
    }

    /// All structs and enums.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// The struct or enum of a [`Type::Named`] of this schema.
    ///
    /// # Errors
    /// The type belongs to another schema.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn definition(&self, index: usize) -> Result<&Definition> {
        let reason = || format!("there is no type of number {index}");
        self.definitions
            .get(index)
            .ok_or_else(|| self.fault(reason()))
    }

    /// The method that a record names by its number.
    ///
    /// # Errors
    /// There is none.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn method(&self, number: u64) -> Result<&Method> {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let method = index.and_then(|index| self.methods.get(index));
        method.ok_or_else(|| self.unknown_method(number))
    }

    /// Number and description of the method of this name, which may be an alias.
    ///
    /// # Errors
    /// There is none.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn method_named(&self, name: &str) -> Result<(u64, &Method)> {
        let goes_by =
            |method: &&Method| method.name == name || method.aliases.iter().any(|a| a == name);
        match self.methods.iter().position(|method| goes_by(&method)) {
            Some(index) => Ok((index as u64 + 1, &self.methods[index])),
            None => Err(self.unknown_method(name)),
        }
    }

    /// The error that a call names a method that is not there.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn unknown_method(&self, method: impl fmt::Display) -> Box<WireError> {
        Box::new(WireError::UnknownMethod {
            interface: self.interface.clone(),
            method: method.to_string(),
        })
    }

    pub(crate) fn fault(&self, reason: impl Into<String>) -> Box<WireError> {
        Box::new(WireError::Schema {
            interface: self.interface.clone(),
            reason: reason.into(),
        })
    }

    /// How a type is written, as in Rust: `Option<List<NewOrder>>`.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn type_name(&self, ty: &Type) -> String {
        match ty {
            Type::Option(inner) => format!("Option<{}>", self.type_name(inner)),
            Type::List(inner) => format!("List<{}>", self.type_name(inner)),
            Type::Map(key, value) => {
                format!("Map<{}, {}>", self.type_name(key), self.type_name(value))
            }
            Type::Named(index) => match self.definitions.get(*index) {
                Some(definition) => definition.name.clone(),
                None => format!("type {index}"),
            },
            scalar => scalar.scalar_name().to_owned(),
        }
    }
}

impl Method {
    /// A method with these arguments.
    pub fn new(name: impl Into<String>, arguments: Vec<Field>) -> Self {
        Self {
            name: name.into(),
            aliases: Vec::new(),
            arguments,
        }
    }
}

impl Field {
    /// A field that must be there.
    pub fn new(name: impl Into<String>, ty: Type) -> Self {
        Self {
            name: name.into(),
            aliases: Vec::new(),
            ty,
            default: None,
        }
    }

    /// The encoded value of the field where a record or a text has none.
    #[must_use]
    pub fn absent(&self) -> Option<&[u8]> {
        match (&self.default, &self.ty) {
            (Some(default), _) => Some(default),
            (None, Type::Option(_)) => Some(&[0xc0]),
            (None, _) => None,
        }
    }
}

impl Variant {
    /// A variant with these fields.
    pub fn new(name: impl Into<String>, fields: Vec<Field>) -> Self {
        Self {
            name: name.into(),
            aliases: Vec::new(),
            fields,
        }
    }
}

impl Type {
    /// The types that hold no others, each at the position that is its code in a schema record.
    const SCALARS: [Self; 16] = [
        Self::Bool,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F32,
        Self::F64,
        Self::Char,
        Self::Str,
        Self::Bytes,
        Self::Timestamp,
        Self::Decimal,
    ];

    /// The name of a type that holds no others; of one that does, its kind.
    #[must_use]
    pub fn scalar_name(&self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Char => "char",
            Self::Str => "str",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Decimal => "decimal",
            Self::Option(_) => "option",
            Self::List(_) => "list",
            Self::Map(..) => "map",
            Self::Named(_) => "named",
        }
    }

    /// The smallest and the largest number of an integer type.
    #[must_use]
    pub fn integer_range(&self) -> Option<(i128, i128)> {
        Some(match self {
            Self::I8 => (i8::MIN.into(), i8::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::I64 | Self::Timestamp => (i64::MIN.into(), i64::MAX.into()),
            Self::U8 => (0, u8::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::U64 => (0, u64::MAX.into()),
            _ => return None,
        })
    }
}
