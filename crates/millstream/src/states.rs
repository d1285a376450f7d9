//! States of flows as values of records: one derive for both.

use millstream_flow::checkpoint::Codec;
use millstream_wire::{Decode, Encode, Unpacker, packed};

/// Returns the codec of a state that derives [`Wire`](derive@crate::Wire), for
/// [`Flow::saves_by`](crate::flow::Flow::saves_by): a type that is an argument of calls and a state of flows needs that
/// derive alone, and none of serde. A state that was saved with other fields is not read, which is an error at the
/// start that names the state: where fields may be added later, derive serde's traits with `#[serde(default)]` for
/// these, and use [`Flow::saves`](crate::flow::Flow::saves).
///
/// ```
/// use millstream::flow::{Flow, Options, Recovery, testing};
///
/// #[derive(Default, millstream::Wire)]
/// struct Total {
///     amount: i64,
/// }
///
/// let (flow, out) = (Flow::new("totals"), testing::Collected::new());
/// flow.saves_by(millstream::wire_state::<Total>());
/// flow.source("in", testing::items([2, 3]))
///     .key_by(|_| "all")
///     .stateful("total", |_| Total::default(), |total, _, n: i64| {
///         total.amount += n;
///         Some(total.amount)
///     })
///     .values()
///     .sink("out", out.sink());
/// let state = tempfile::tempdir()?;
/// flow.run(Options { recovery: Some(Recovery::new(state.path())), ..Options::default() })?;
/// assert_eq!(out.take(), [2, 5]);
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[must_use]
pub fn wire_state<T>() -> Codec<T>
where
    T: Encode + for<'a> Decode<'a>,
{
    Codec {
        save: |value, out| {
            out.extend_from_slice(&packed(value)?);
            Ok(())
        },
        load: |from| {
            let mut values = Unpacker::new(from);
            let value = T::decode(&mut values)?;
            *from = values.rest();
            Ok(value)
        },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, PartialEq, millstream_wire::Wire)]
    struct Before {
        name: String,
        counts: BTreeMap<String, u128>,
    }

    #[test]
    fn states_are_read_one_after_the_other() {
        let codec = wire_state::<Before>();
        let state = |name: &str| Before {
            name: name.to_owned(),
            counts: BTreeMap::from([(name.to_owned(), 7)]),
        };
        let mut saved = Vec::new();
        for name in ["a", "b"] {
            (codec.save)(&state(name), &mut saved).unwrap();
        }
        let mut rest = saved.as_slice();
        assert_eq!((codec.load)(&mut rest).unwrap(), state("a"));
        assert_eq!((codec.load)(&mut rest).unwrap(), state("b"));
        assert!(rest.is_empty());
    }

    #[test]
    fn a_state_that_is_none_is_an_error() {
        assert!((wire_state::<Before>().load)(&mut &b"\x01"[..]).is_err());
    }
}
