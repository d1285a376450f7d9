//! Collects the structs and enums that the arguments of an interface use, each once.

use crate::encode::{Encode, packed};
use crate::error::{Result, WireError};
use crate::schema::{Definition, Field, Method, Schema, Shape, Type, Variant};

/// The named types met so far. [`Typed`](crate::Typed) adds those that it needs.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Types {
    interface: &'static str,
    definitions: Vec<Definition>,
    /// The Rust type of each definition, by its full path.
    paths: Vec<&'static str>,
}

impl Types {
    /// Starts the collection for an interface.
    #[must_use]
    pub fn new(interface: &'static str) -> Self {
        Self {
            interface,
            definitions: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Adds a struct or enum unless it is there already. `path` is its name with that of its module, which
    /// distinguishes two types of one name; a type may refer to itself within `shape`.
    ///
    /// # Errors
    /// Another type has the same name; what `shape` returns.
    pub fn define(
        &mut self,
        path: &'static str,
        name: &str,
        shape: impl FnOnce(&mut Self) -> Result<Shape>,
    ) -> Result<Type> {
        if let Some(index) = self.paths.iter().position(|known| *known == path) {
            return Ok(Type::Named(index));
        }
        if let Some(index) = self.definitions.iter().position(|known| known.name == name) {
            return Err(Box::new(WireError::Schema {
                interface: self.interface.to_owned(),
                reason: format!("{path} and {} have the same name", self.paths[index]),
            }));
        }
        let index = self.definitions.len();
        self.paths.push(path);
        self.definitions.push(Definition {
            name: name.to_owned(),
            shape: Shape::Struct(Vec::new()),
        });
        self.definitions[index].shape = shape(self)?;
        Ok(Type::Named(index))
    }

    /// Ends the collection.
    ///
    /// # Errors
    /// As [`Schema::new`].
    pub fn schema(self, version: u32, methods: Vec<Method>) -> Result<Schema> {
        Schema::new(self.interface, version, methods, self.definitions)
    }
}

impl Field {
    /// The same field with its former names.
    #[must_use]
    pub fn aliases(mut self, aliases: &[&str]) -> Self {
        self.aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        self
    }

    /// The same field with a default value.
    ///
    /// # Errors
    /// The value cannot be encoded.
    pub fn default_value<T: Encode>(mut self, value: &T) -> Result<Self> {
        self.default = Some(packed(value)?);
        Ok(self)
    }
}

impl Variant {
    /// The same variant with its former names.
    #[must_use]
    pub fn aliases(mut self, aliases: &[&str]) -> Self {
        self.aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        self
    }
}

impl Method {
    /// The same method with its former names.
    #[must_use]
    pub fn aliases(mut self, aliases: &[&str]) -> Self {
        self.aliases = aliases.iter().map(|alias| (*alias).to_owned()).collect();
        self
    }
}
