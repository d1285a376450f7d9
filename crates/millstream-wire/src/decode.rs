//! From bytes to Rust values, borrowed where the type allows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::{Misfit, Result};
use crate::scalars::{Decimal, Timestamp};
use crate::unpack::Unpacker;

/// A value that can be read from a record of its own schema. Derived for structs and enums by `Wire`.
///
/// Records of another version of the schema go through an [`Adapter`](crate::Adapter) first.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from a record",
    note = "structs and enums of your own need `#[derive(Wire)]`"
)]
pub trait Decode<'a>: Sized {
    /// Reads the value.
    ///
    /// # Errors
    /// The bytes are something else; the error says where and what.
    #[doc(hidden)] // For the other crates of Millstream.
    fn decode(values: &mut Unpacker<'a>) -> Result<Self>;

    /// Reads a list of such values; a list of `u8` is bytes.
    ///
    /// # Errors
    /// As [`decode`](Self::decode), with the position in the list.
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    fn decode_list(values: &mut Unpacker<'a>) -> Result<Vec<Self>> {
        let len = values.array()?;
        values.deeper(|values| {
            let item =
                |at| Self::decode(values).map_err(|error| error.within(format_args!("[{at}]")));
            (0..len).map(item).collect()
        })
    }
}

/// Reads a value that takes up all of `bytes`.
///
/// # Errors
/// As [`Decode::decode`]; bytes that follow.
pub fn unpacked<'a, T: Decode<'a>>(bytes: &'a [u8]) -> Result<T> {
    let mut values = Unpacker::new(bytes);
    let value = T::decode(&mut values)?;
    values.end()?;
    Ok(value)
}

/// Reads a field or an argument, whose name goes into the error.
///
/// # Errors
/// As [`Decode::decode`].
#[inline]
#[doc(hidden)] // For the other crates of Millstream.
pub fn decode_field<'a, T: Decode<'a>>(values: &mut Unpacker<'a>, name: &'static str) -> Result<T> {
    T::decode(values).map_err(|error| error.within(name))
}

macro_rules! scalars {
    ($($type:ty: $verb:ident($($name:literal)?);)*) => {$(
        impl Decode<'_> for $type {
            #[inline]
            fn decode(values: &mut Unpacker<'_>) -> Result<Self> {
                values.$verb($($name)?)
            }
        }
    )*};
}

scalars! {
    bool: bool();
    i8: narrow_int("i8");
    i16: narrow_int("i16");
    i32: narrow_int("i32");
    i64: int();
    u16: narrow_int("u16");
    u32: narrow_int("u32");
    u64: uint();
    f32: f32();
    f64: f64();
    char: char();
}

impl<'a> Decode<'a> for u8 {
    #[inline]
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        values.narrow_int("u8")
    }
    #[inline]
    fn decode_list(values: &mut Unpacker<'a>) -> Result<Vec<Self>> {
        values.bytes().map(<[u8]>::to_owned)
    }
}

impl<'a> Decode<'a> for &'a str {
    #[inline]
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        values.str()
    }
}

impl Decode<'_> for String {
    #[inline]
    fn decode(values: &mut Unpacker<'_>) -> Result<Self> {
        values.str().map(str::to_owned)
    }
}

impl<'a> Decode<'a> for Cow<'a, str> {
    #[inline]
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        values.str().map(Cow::Borrowed)
    }
}

impl<'a> Decode<'a> for &'a [u8] {
    #[inline]
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        values.bytes()
    }
}

impl<'a> Decode<'a> for Cow<'a, [u8]> {
    #[inline]
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        values.bytes().map(Cow::Borrowed)
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Box<T> {
    #[inline]
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        T::decode(values).map(Self::new)
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    #[inline]
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        if values.take_nil()? {
            return Ok(None);
        }
        T::decode(values).map(Some)
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Vec<T> {
    #[inline]
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        T::decode_list(values)
    }
}

impl<'a, K: Decode<'a> + Ord, V: Decode<'a>> Decode<'a> for BTreeMap<K, V> {
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        let len = values.map()?;
        values.deeper(|values| {
            let pair = |_| Ok((K::decode(values)?, V::decode(values)?));
            (0..len).map(pair).collect()
        })
    }
}

impl Decode<'_> for Timestamp {
    #[inline]
    fn decode(values: &mut Unpacker<'_>) -> Result<Self> {
        values.int().map(Self)
    }
}

impl<'a> Decode<'a> for Decimal<'a> {
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        let text = values.str()?;
        Self::new(text).map_err(|_| values.misfit(Misfit::Decimal(text.to_owned())))
    }
}
