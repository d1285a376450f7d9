//! From Rust values to bytes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::error::Result;
use crate::pack::{Packer, pack};
use crate::scalars::{Decimal, Timestamp};

/// A value that can be written into a record. Derived for structs and enums by `Wire`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written into a record",
    note = "structs and enums of your own need `#[derive(Wire)]`"
)]
pub trait Encode {
    /// An upper bound of the bytes that [`encode`](Self::encode) writes: the size to claim.
    #[doc(hidden)] // For the other crates of Millstream.
    fn size_max(&self) -> usize;

    /// Writes the value.
    ///
    /// # Errors
    /// The claimed space is too small.
    #[doc(hidden)] // For the other crates of Millstream.
    fn encode(&self, out: &mut Packer<'_>) -> Result<()>;

    /// [`size_max`](Self::size_max) of a list of such values.
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    fn list_size_max(list: &[Self]) -> usize
    where
        Self: Sized,
    {
        HEAD_SIZE_MAX + list.iter().map(Self::size_max).sum::<usize>()
    }

    /// Writes a list of such values; a list of `u8` is bytes.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    #[inline]
    #[doc(hidden)] // For the other crates of Millstream.
    fn encode_list(list: &[Self], out: &mut Packer<'_>) -> Result<()>
    where
        Self: Sized,
    {
        out.array(list.len())?;
        out.deeper(|out| list.iter().try_for_each(|item| item.encode(out)))
    }
}

/// The bytes of a value in new memory.
///
/// # Errors
/// As [`Encode::encode`].
pub fn packed<T: Encode + ?Sized>(value: &T) -> Result<Vec<u8>> {
    pack(value.size_max(), |out| value.encode(out))
}

/// How many bytes the head of a string, bytes, an array or a map takes at most.
#[doc(hidden)] // For the other crates of Millstream.
pub const HEAD_SIZE_MAX: usize = 5;

macro_rules! scalars {
    ($($type:ty: $size:literal, $verb:ident as $wide:ty;)*) => {$(
        impl Encode for $type {
            #[inline]
            fn size_max(&self) -> usize {
                $size
            }
            #[inline]
            fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
                out.$verb(<$wide>::from(*self))
            }
        }
    )*};
}

scalars! {
    bool: 1, bool as bool;
    i8: 2, int as i64;
    i16: 3, int as i64;
    i32: 5, int as i64;
    i64: 9, int as i64;
    u16: 3, uint as u64;
    u32: 5, uint as u64;
    u64: 9, uint as u64;
    f32: 5, f32 as f32;
    f64: 9, f64 as f64;
    char: 5, char as char;
}

impl Encode for u8 {
    #[inline]
    fn size_max(&self) -> usize {
        2
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        out.uint(u64::from(*self))
    }
    #[inline]
    fn list_size_max(list: &[Self]) -> usize {
        HEAD_SIZE_MAX + list.len()
    }
    #[inline]
    fn encode_list(list: &[Self], out: &mut Packer<'_>) -> Result<()> {
        out.bytes(list)
    }
}

impl Encode for str {
    #[inline]
    fn size_max(&self) -> usize {
        HEAD_SIZE_MAX + self.len()
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        out.str(self)
    }
}

impl Encode for String {
    #[inline]
    fn size_max(&self) -> usize {
        self.as_str().size_max()
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        out.str(self)
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    #[inline]
    fn size_max(&self) -> usize {
        (**self).size_max()
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        (**self).encode(out)
    }
}

impl<T: Encode + ?Sized> Encode for Box<T> {
    #[inline]
    fn size_max(&self) -> usize {
        (**self).size_max()
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        (**self).encode(out)
    }
}

impl<T: Encode + ToOwned + ?Sized> Encode for Cow<'_, T> {
    #[inline]
    fn size_max(&self) -> usize {
        (**self).size_max()
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        (**self).encode(out)
    }
}

impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn size_max(&self) -> usize {
        self.as_ref().map_or(1, Encode::size_max)
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        match self {
            Some(value) => value.encode(out),
            None => out.nil(),
        }
    }
}

impl<T: Encode> Encode for [T] {
    #[inline]
    fn size_max(&self) -> usize {
        T::list_size_max(self)
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        T::encode_list(self, out)
    }
}

impl<T: Encode> Encode for Vec<T> {
    #[inline]
    fn size_max(&self) -> usize {
        self.as_slice().size_max()
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        self.as_slice().encode(out)
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn size_max(&self) -> usize {
        let pairs = self.iter();
        HEAD_SIZE_MAX
            + pairs
                .map(|(k, v)| k.size_max() + v.size_max())
                .sum::<usize>()
    }
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        out.map(self.len())?;
        out.deeper(|out| {
            self.iter().try_for_each(|(key, value)| {
                key.encode(out)?;
                value.encode(out)
            })
        })
    }
}

impl Encode for Timestamp {
    #[inline]
    fn size_max(&self) -> usize {
        self.0.size_max()
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        out.int(self.0)
    }
}

impl Encode for Decimal<'_> {
    #[inline]
    fn size_max(&self) -> usize {
        self.as_str().size_max()
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        out.str(self.as_str())
    }
}
