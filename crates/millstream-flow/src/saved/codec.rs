//! Codecs convert values to bytes: the states of steps, and the items that are sent to another process.
//!
//! A value is one value of MessagePack. Its codec is found by its type: numbers, text, bytes and the states of
//! the built-in aggregates have one; other types are announced with [`Flow::saves`](crate::Flow::saves), which
//! requires the traits of serde. A flow that has no state directory and runs in one process needs no
//! announcements. The structure that steps store around such values, panes and timers, is encoded by the
//! functions of `pack`.
//!
//! Types that the engine composes of others, such as a key with a value, have a [rule](Codecs::derive): their
//! codec is composed of the codecs of their parts when the flow starts.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Cause;

/// The tag of a state that is MessagePack, its fields by name.
#[doc(hidden)] // For the other crates of Millstream.
pub const MESSAGE_PACK: u8 = b'm';

/// Encodes and decodes the states of a step's keys.
#[doc(hidden)] // For the other crates of Millstream.
pub trait StateCodec<S> {
    /// Appends a state.
    ///
    /// # Errors
    /// The state cannot be encoded.
    fn save(&self, state: &S, out: &mut Vec<u8>) -> Result<(), Cause>;
    /// Decodes a state from the start of `from`.
    ///
    /// # Errors
    /// The bytes were not written by `save`.
    fn load(&self, from: &mut &[u8]) -> Result<S, Cause>;
    /// Appends what was added to a state since it was last saved or loaded. Returns false if that does not make the
    /// state: what is appended is dropped, and the state is saved whole. The default is false. For states that grow
    /// item by item, of which an epoch writes the new items only.
    ///
    /// # Errors
    /// As for `save`.
    fn save_added(&self, state: &S, out: &mut Vec<u8>) -> Result<bool, Cause> {
        let _ = (state, out);
        Ok(false)
    }
    /// Appends what surrounds the values in a state, from the outside: words by which `operators::shown` shows it
    /// without the flow. The default is nothing, for one value.
    fn layout(&self, out: &mut Vec<&'static str>) {
        let _ = out;
    }
    /// Adds to a state what [`save_added`](Self::save_added) has appended, from the start of `from`.
    ///
    /// # Errors
    /// The bytes were not written by `save_added`.
    fn load_added(&self, state: &mut S, from: &mut &[u8]) -> Result<(), Cause> {
        let _ = (state, from);
        Err("it has bytes after its end".into())
    }
}

/// The codec of a step's states, as a trait object.
#[doc(hidden)] // For the other crates of Millstream.
pub type BoxedCodec<S> = Box<dyn StateCodec<S>>;

/// Encodes and decodes values of a type, as one value of MessagePack each.
pub struct Codec<T> {
    /// Appends a value.
    pub save: fn(&T, &mut Vec<u8>) -> Result<(), Cause>,
    /// Decodes a value from the start of the bytes.
    pub load: fn(&mut &[u8]) -> Result<T, Cause>,
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Codec<T> {}

impl<T> StateCodec<T> for Codec<T> {
    fn save(&self, value: &T, out: &mut Vec<u8>) -> Result<(), Cause> {
        (self.save)(value, out)
    }
    fn load(&self, from: &mut &[u8]) -> Result<T, Cause> {
        (self.load)(from)
    }
}

impl<T: Serialize + DeserializeOwned> Codec<T> {
    fn message_pack() -> Self {
        Codec {
            save: |value, out| Ok(rmp_serde::encode::write_named(out, value)?),
            load: |from| Ok(rmp_serde::decode::from_read(from)?),
        }
    }
}

/// Composes the codec of a type from the codecs of its parts.
#[doc(hidden)] // For the other crates of Millstream.
pub type Rule<T> = fn(&Codecs) -> Result<BoxedCodec<T>, Cause>;

/// A value for each of some types.
type ByType = HashMap<TypeId, Arc<dyn Any + Send + Sync>>;

/// The types whose values can be encoded.
#[derive(Clone)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Codecs {
    announced: ByType,
    rules: ByType,
}

impl Default for Codecs {
    fn default() -> Self {
        let mut codecs = Codecs {
            announced: HashMap::new(),
            rules: HashMap::new(),
        };
        macro_rules! known {
            ($($t:ty),*) => {$(codecs.add::<$t>();)*};
        }
        known!(
            (),
            bool,
            char,
            u8,
            u16,
            u32,
            u64,
            usize,
            i8,
            i16,
            i32,
            i64,
            isize,
            f32,
            f64,
            String,
            // The state of a mean.
            (f64, u64),
            // The period of a limit.
            (i64, u64)
        );
        codecs
    }
}

impl Codecs {
    /// Announces a type, with options and lists of it.
    pub(crate) fn add<T: Serialize + DeserializeOwned + 'static>(&mut self) {
        self.put(Codec::<T>::message_pack());
        self.put(Codec::<Option<T>>::message_pack());
        self.put(Codec::<Vec<T>>::message_pack());
    }

    /// Announces a type with a codec of its own.
    pub(crate) fn put<T: 'static>(&mut self, codec: Codec<T>) {
        self.announced.insert(TypeId::of::<T>(), Arc::new(codec));
    }

    /// Adds a rule for items of a type that is composed of other types. An announced codec takes precedence.
    pub fn derive<T: 'static>(&mut self, rule: Rule<T>) {
        self.rules.insert(TypeId::of::<T>(), Arc::new(rule));
    }

    /// Returns the codec of a type of state.
    ///
    /// # Errors
    /// The type was not announced; the message says how to announce it.
    pub fn get<T: 'static>(&self) -> Result<Codec<T>, Cause> {
        self.announced().ok_or_else(|| {
            let name = std::any::type_name::<T>();
            format!("its state, {name}, cannot be saved; derive serde's traits and announce it with flow.saves::<{name}>()").into()
        })
    }

    /// Returns the codec of a type of items: an announced codec, or one composed by a rule.
    ///
    /// # Errors
    /// The type, or one of its parts, was not announced; the message says how to announce it.
    pub fn item<T: 'static>(&self) -> Result<BoxedCodec<T>, Cause> {
        if let Some(codec) = self.announced::<T>() {
            return Ok(Box::new(codec));
        }
        let rule = self.rules.get(&TypeId::of::<T>());
        if let Some(rule) = rule.and_then(|rule| rule.downcast_ref::<Rule<T>>()) {
            return rule(self);
        }
        let name = std::any::type_name::<T>();
        Err(format!("{name} has no codec; derive serde's traits and announce it with flow.saves::<{name}>() (a type that borrows or shares memory, such as &str or Arc, cannot leave its process)").into())
    }

    fn announced<T: 'static>(&self) -> Option<Codec<T>> {
        let found = self.announced.get(&TypeId::of::<T>())?;
        found.downcast_ref::<Codec<T>>().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type without serde's traits.
    #[derive(Debug, PartialEq)]
    struct Both(u8, String);

    struct BothCodec(BoxedCodec<u8>, BoxedCodec<String>);

    impl StateCodec<Both> for BothCodec {
        fn save(&self, both: &Both, out: &mut Vec<u8>) -> Result<(), Cause> {
            self.0.save(&both.0, out)?;
            self.1.save(&both.1, out)
        }
        fn load(&self, from: &mut &[u8]) -> Result<Both, Cause> {
            Ok(Both(self.0.load(from)?, self.1.load(from)?))
        }
    }

    #[test]
    fn a_rule_composes_the_codecs_of_the_parts() {
        let mut codecs = Codecs::default();
        let unknown = codecs.item::<Both>().err().map(|error| error.to_string());
        assert!(unknown.is_some_and(|text| text.contains("flow.saves::<")));
        codecs.derive::<Both>(|codecs| Ok(Box::new(BothCodec(codecs.item()?, codecs.item()?))));
        let codec = codecs.item::<Both>().unwrap();
        let mut saved = Vec::new();
        codec
            .save(&Both(7, "seven".to_owned()), &mut saved)
            .unwrap();
        let mut rest = &saved[..];
        assert_eq!(codec.load(&mut rest).unwrap(), Both(7, "seven".to_owned()));
        assert!(rest.is_empty());
        assert!(
            codecs.get::<Both>().is_err(),
            "a rule is for items, not for states"
        );
    }
}
