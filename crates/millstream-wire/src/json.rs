//! Values and the arguments of calls as JSON, and back, guided by their types.
//!
//! A struct is an object of its fields, a variant without fields its name, one with fields an object of its name to
//! them. Where JSON has nothing for a value, it is a string: bytes in base64, moments as RFC 3339, decimal numbers,
//! floats that are not finite, the keys of maps.
//!
//! Invariant: what [`write`] writes for a value of a type, [`read`] reads as the same value.
//!
//! ```
//! use millstream_wire::{Call, Field, Method, NamedValues, Schema, Type};
//! let place = Method::new("place", vec![Field::new("price", Type::F64)]);
//! let schema = Schema::new("Orders", 1, vec![place], vec![])?;
//! let call = Call::from_json("place", br#"{"price": 72.5}"#, &schema)?;
//! assert_eq!(serde_json::to_string(&NamedValues(&call.arguments)).unwrap(), r#"{"price":72.5}"#);
//! let error = Call::from_json("place", br#"{"price": "high"}"#, &schema).unwrap_err();
//! assert_eq!(error.to_string(), r#"place.price: expected f64, found "high""#);
//! # Ok::<(), Box<millstream_wire::WireError>>(())
//! ```

mod read;
mod tree;
mod write;

pub use write::NamedValues;

use crate::call::Call;
use crate::error::{Result, WireError};
use crate::schema::{Schema, Type};
use crate::value::Value;

use tree::Tree;

impl Value {
    /// Reads a value from JSON.
    ///
    /// # Errors
    /// [`WireError::Json`]: the text is not JSON, or no value of this type.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn from_json(text: &[u8], ty: &Type, schema: &Schema) -> Result<Self> {
        read::value(&parse(text)?, ty, schema)
    }
}

impl Call {
    /// The call on one line, its arguments as JSON: `place(symbol="VOD.L", price=72.5)`.
    #[must_use]
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn to_line(&self) -> String {
        let shown = |(name, value): &(String, Value)| {
            // Without an error: a value has an answer for each of its kinds.
            let value = serde_json::to_string(value).unwrap_or_default();
            format!("{name}={value}")
        };
        let arguments: Vec<String> = self.arguments.iter().map(shown).collect();
        format!("{}({})", self.method, arguments.join(", "))
    }

    /// Reads a call of `method` from its arguments, an object of JSON by name. An argument with a default may be
    /// omitted. Nothing at all is an object without arguments.
    ///
    /// # Errors
    /// [`WireError::UnknownMethod`]; [`WireError::Json`], which names the method, the argument and the field.
    pub fn from_json(method: &str, arguments: &[u8], schema: &Schema) -> Result<Self> {
        let (_, method) = schema.method_named(method)?;
        let tree = if arguments.trim_ascii().is_empty() {
            Tree::Object(Vec::new())
        } else {
            parse(arguments).map_err(|error| error.within(&method.name))?
        };
        let arguments = read::fields(&tree, &method.arguments, "argument", schema);
        Ok(Self {
            at: None,
            method: method.name.clone(),
            arguments: arguments.map_err(|error| error.within(&method.name))?,
        })
    }
}

fn parse(text: &[u8]) -> Result<Tree> {
    serde_json::from_slice(text).map_err(|error| WireError::json(format_args!("no JSON: {error}")))
}
