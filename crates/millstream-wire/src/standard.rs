//! Types of the standard library that a schema has no type of its own for, each as the nearest one: so that schemas,
//! and programs in other languages, know the same types as before.
//!
//! | Rust | in the schema |
//! |---|---|
//! | `HashMap` | a map, in the order of the encoded keys: the same map has the same bytes in each run |
//! | `[T; N]` | a list, `[u8; N]` bytes; another number of values is an error when it is read |
//! | `usize`, `isize` | `u64`, `i64` |
//! | `u128`, `i128` | a decimal: all digits are kept |
//! | `Duration` | `u64`: nanoseconds, up to 584 years |
//! | `SystemTime` | a timestamp, of the years 1678 to 2262 |
//!
//! ```
//! use std::time::Duration;
//! use millstream_wire::{packed, unpacked};
//!
//! assert_eq!(unpacked::<Duration>(&packed(&Duration::from_secs(3))?)?, Duration::from_secs(3));
//! assert_eq!(unpacked::<[u16; 2]>(&packed(&[7u16, 8])?)?, [7, 8]);
//! assert!(unpacked::<[u16; 3]>(&packed(&[7u16, 8])?).is_err());
//! assert_eq!(unpacked::<u128>(&packed(&u128::MAX)?)?, u128::MAX);
//! # Ok::<(), Box<millstream_wire::WireError>>(())
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::decode::Decode;
use crate::encode::{Encode, HEAD_SIZE_MAX, packed};
use crate::error::{Misfit, Result, WireError};
use crate::pack::Packer;
use crate::schema::Type;
use crate::typed::Typed;
use crate::types::Types;
use crate::unpack::Unpacker;

fn range(value: impl ToString, kind: &'static str) -> Misfit {
    Misfit::Range {
        value: value.to_string(),
        kind,
    }
}

impl<K: Typed, V: Typed, S> Typed for HashMap<K, V, S> {
    fn wire_type(types: &mut Types) -> Result<Type> {
        let key = Box::new(K::wire_type(types)?);
        Ok(Type::Map(key, Box::new(V::wire_type(types)?)))
    }
}

impl<K: Encode, V: Encode, S> Encode for HashMap<K, V, S> {
    fn size_max(&self) -> usize {
        let pairs = self.iter();
        let sizes = pairs.map(|(key, value)| key.size_max() + value.size_max());
        HEAD_SIZE_MAX + sizes.sum::<usize>()
    }
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        let pairs = self.iter().map(|(key, value)| Ok((packed(key)?, value)));
        let mut pairs: Vec<(Vec<u8>, &V)> = pairs.collect::<Result<_>>()?;
        pairs.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        out.map(pairs.len())?;
        out.deeper(|out| {
            pairs.iter().try_for_each(|(key, value)| {
                out.raw(key)?;
                value.encode(out)
            })
        })
    }
}

impl<'a, K, V, S> Decode<'a> for HashMap<K, V, S>
where
    K: Decode<'a> + Eq + Hash,
    V: Decode<'a>,
    S: BuildHasher + Default,
{
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        let len = values.map()?;
        values.deeper(|values| {
            let pair = |_| Ok((K::decode(values)?, V::decode(values)?));
            (0..len).map(pair).collect()
        })
    }
}

impl<T: Typed, const N: usize> Typed for [T; N] {
    fn wire_type(types: &mut Types) -> Result<Type> {
        T::list_type(types)
    }
}

impl<T: Encode, const N: usize> Encode for [T; N] {
    #[inline]
    fn size_max(&self) -> usize {
        T::list_size_max(self)
    }
    #[inline]
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        T::encode_list(self, out)
    }
}

impl<'a, T: Decode<'a>, const N: usize> Decode<'a> for [T; N] {
    fn decode(values: &mut Unpacker<'a>) -> Result<Self> {
        let list = T::decode_list(values)?;
        let expected = N;
        let found = list.len();
        let array = list.try_into();
        array.map_err(|_| values.misfit(Misfit::Length { expected, found }))
    }
}

macro_rules! sizes {
    ($($t:ty, $wide:ty, $name:ident, $kind:literal;)*) => {$(
        impl Typed for $t {
            fn wire_type(_types: &mut Types) -> Result<Type> {
                Ok(Type::$name)
            }
        }
        impl Encode for $t {
            #[inline]
            fn size_max(&self) -> usize {
                9
            }
            #[inline]
            fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
                // A machine has 64 bits at most.
                (*self as $wide).encode(out)
            }
        }
        impl Decode<'_> for $t {
            fn decode(values: &mut Unpacker<'_>) -> Result<Self> {
                let wide = <$wide>::decode(values)?;
                Self::try_from(wide).map_err(|_| values.misfit(range(wide, $kind)))
            }
        }
    )*};
}
sizes! {
    usize, u64, U64, "usize";
    isize, i64, I64, "isize";
}

macro_rules! wide {
    ($($t:ty, $kind:literal;)*) => {$(
        impl Typed for $t {
            fn wire_type(_types: &mut Types) -> Result<Type> {
                Ok(Type::Decimal)
            }
        }
        impl Encode for $t {
            fn size_max(&self) -> usize {
                HEAD_SIZE_MAX + 40
            }
            fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
                out.str(&self.to_string())
            }
        }
        impl Decode<'_> for $t {
            fn decode(values: &mut Unpacker<'_>) -> Result<Self> {
                let text = values.str()?;
                text.parse().map_err(|_| values.misfit(range(text, $kind)))
            }
        }
    )*};
}
wide! {
    u128, "u128";
    i128, "i128";
}

impl Typed for Duration {
    fn wire_type(_types: &mut Types) -> Result<Type> {
        Ok(Type::U64)
    }
}

impl Encode for Duration {
    fn size_max(&self) -> usize {
        9
    }
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        let ns = u64::try_from(self.as_nanos());
        let ns = ns.map_err(|_| {
            WireError::encode(range(format_args!("{self:?}"), "a number of nanoseconds"))
        });
        out.uint(ns?)
    }
}

impl Decode<'_> for Duration {
    fn decode(values: &mut Unpacker<'_>) -> Result<Self> {
        values.uint().map(Self::from_nanos)
    }
}

impl Typed for SystemTime {
    fn wire_type(_types: &mut Types) -> Result<Type> {
        Ok(Type::Timestamp)
    }
}

impl Encode for SystemTime {
    fn size_max(&self) -> usize {
        9
    }
    fn encode(&self, out: &mut Packer<'_>) -> Result<()> {
        let ns = match self.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_nanos()).ok(),
            Err(before) => i64::try_from(before.duration().as_nanos())
                .ok()
                .map(|ns| -ns),
        };
        let ns = ns.ok_or_else(|| {
            let value = format!("{self:?}");
            WireError::encode(range(value, "a timestamp, of the years 1678 to 2262"))
        });
        out.int(ns?)
    }
}

impl Decode<'_> for SystemTime {
    fn decode(values: &mut Unpacker<'_>) -> Result<Self> {
        let ns = values.int()?;
        let distance = Duration::from_nanos(ns.unsigned_abs());
        let moment = if ns < 0 {
            UNIX_EPOCH.checked_sub(distance)
        } else {
            UNIX_EPOCH.checked_add(distance)
        };
        moment.ok_or_else(|| values.misfit(range(ns, "a time of this machine")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Schema, Value, unpacked};

    /// Checks that a value comes back, also by way of its schema: what other languages read of it.
    fn there_and_back<T>(value: &T, shown: &Value)
    where
        T: Encode + Typed + for<'a> Decode<'a> + PartialEq + std::fmt::Debug,
    {
        let bytes = packed(value).unwrap();
        assert!(bytes.len() <= value.size_max(), "{value:?}");
        assert_eq!(unpacked::<T>(&bytes).unwrap(), *value);
        let mut types = Types::new("Test");
        let ty = T::wire_type(&mut types).unwrap();
        let schema: Schema = types.schema(1, Vec::new()).unwrap();
        assert_eq!(Value::from_bytes(&bytes, &ty, &schema).unwrap(), *shown);
        assert_eq!(shown.to_bytes(&ty, &schema).unwrap(), bytes);
    }

    #[test]
    fn standard_types_come_back_and_are_known_types_in_the_schema() {
        let int = |number: i128| Value::Int(number);
        there_and_back(&[7u16, 8], &Value::List(vec![int(7), int(8)]));
        there_and_back(b"ab", &Value::Bytes(b"ab".to_vec()));
        there_and_back(&usize::MAX, &int(usize::MAX as i128));
        there_and_back(&isize::MIN, &int(isize::MIN as i128));
        there_and_back(&u128::MAX, &Value::Decimal(u128::MAX.to_string()));
        there_and_back(&i128::MIN, &Value::Decimal(i128::MIN.to_string()));
        there_and_back(&Duration::from_millis(3), &int(3_000_000));
        for ns in [i64::MIN + 1, -1, 0, 1, i64::MAX] {
            let distance = Duration::from_nanos(ns.unsigned_abs());
            let moment = if ns < 0 {
                UNIX_EPOCH - distance
            } else {
                UNIX_EPOCH + distance
            };
            there_and_back(&moment, &Value::Timestamp(ns));
        }
    }

    #[test]
    fn a_hash_map_has_the_same_bytes_whatever_its_order() {
        let words = || (0..100).map(|n| (format!("word {n}"), n));
        let (map, reversed): (HashMap<_, _>, HashMap<_, _>) =
            (words().collect(), words().rev().collect());
        let bytes = packed(&map).unwrap();
        assert_eq!(bytes, packed(&reversed).unwrap());
        assert_eq!(unpacked::<HashMap<String, i32>>(&bytes).unwrap(), map);
    }

    #[test]
    fn what_does_not_fit_says_so() {
        let error = |result: Result<Vec<u8>>| result.unwrap_err().to_string();
        let long = error(packed(&Duration::MAX));
        assert!(
            long.contains("is out of range for a number of nanoseconds"),
            "{long}"
        );
        let bytes = packed(&[1u8, 2, 3]).unwrap();
        let short = unpacked::<[u8; 2]>(&bytes).unwrap_err().to_string();
        assert!(short.contains("3 values where the schema has 2"), "{short}");
        let bytes = packed("1.5").unwrap();
        let point = unpacked::<u128>(&bytes).unwrap_err().to_string();
        assert!(point.contains("1.5 is out of range for u128"), "{point}");
    }
}
