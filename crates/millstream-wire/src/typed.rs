//! From Rust types to types of a schema.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::Result;
use crate::scalars::{Decimal, Timestamp};
use crate::schema::Type;
use crate::types::Types;

/// A Rust type that a schema can describe. Derived for structs and enums by `Wire`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no type in a schema",
    note = "structs and enums of your own need `#[derive(Wire)]`"
)]
#[doc(hidden)] // For the other crates of Millstream.
pub trait Typed {
    /// Its type in the schema; structs and enums add their definition to `types`.
    ///
    /// # Errors
    /// Two different types have the same name.
    #[doc(hidden)] // For the other crates of Millstream.
    fn wire_type(types: &mut Types) -> Result<Type>;

    /// The type of a list of such values; a list of `u8` is bytes.
    ///
    /// # Errors
    /// As [`wire_type`](Self::wire_type).
    #[doc(hidden)] // For the other crates of Millstream.
    fn list_type(types: &mut Types) -> Result<Type> {
        Ok(Type::List(Box::new(Self::wire_type(types)?)))
    }
}

macro_rules! scalars {
    ($($type:ty: $name:ident),* $(,)?) => {$(
        impl Typed for $type {
            fn wire_type(_types: &mut Types) -> Result<Type> {
                Ok(Type::$name)
            }
        }
    )*};
}

scalars! {
    bool: Bool, i8: I8, i16: I16, i32: I32, i64: I64, u16: U16, u32: U32, u64: U64,
    f32: F32, f64: F64, char: Char, str: Str, String: Str,
}

impl Typed for u8 {
    fn wire_type(_types: &mut Types) -> Result<Type> {
        Ok(Type::U8)
    }
    fn list_type(_types: &mut Types) -> Result<Type> {
        Ok(Type::Bytes)
    }
}

macro_rules! transparent {
    ($($type:ty),*) => {$(
        impl<T: Typed + ?Sized> Typed for $type {
            fn wire_type(types: &mut Types) -> Result<Type> {
                T::wire_type(types)
            }
        }
    )*};
}

transparent!(&T, Box<T>);

impl<T: Typed + ToOwned + ?Sized> Typed for Cow<'_, T> {
    fn wire_type(types: &mut Types) -> Result<Type> {
        T::wire_type(types)
    }
}

impl<T: Typed> Typed for Option<T> {
    fn wire_type(types: &mut Types) -> Result<Type> {
        Ok(Type::Option(Box::new(T::wire_type(types)?)))
    }
}

impl<T: Typed> Typed for [T] {
    fn wire_type(types: &mut Types) -> Result<Type> {
        T::list_type(types)
    }
}

impl<T: Typed> Typed for Vec<T> {
    fn wire_type(types: &mut Types) -> Result<Type> {
        T::list_type(types)
    }
}

impl<K: Typed, V: Typed> Typed for BTreeMap<K, V> {
    fn wire_type(types: &mut Types) -> Result<Type> {
        let key = Box::new(K::wire_type(types)?);
        Ok(Type::Map(key, Box::new(V::wire_type(types)?)))
    }
}

impl Typed for Timestamp {
    fn wire_type(_types: &mut Types) -> Result<Type> {
        Ok(Type::Timestamp)
    }
}

impl Typed for Decimal<'_> {
    fn wire_type(_types: &mut Types) -> Result<Type> {
        Ok(Type::Decimal)
    }
}
