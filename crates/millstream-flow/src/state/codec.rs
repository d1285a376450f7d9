//! How the states of steps become bytes.
//!
//! A state is one value of MessagePack. It is found by its type: numbers, text, bytes and the states of the
//! built-in aggregates can be saved as they are; a type of one's own is announced with
//! [`Flow::saves`](crate::Flow::saves), which asks for serde's traits. Who does not need recovery announces
//! nothing. What steps keep around such values, panes and timers, is written with the verbs of `pack`.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Cause;

/// The tag of a state that is MessagePack, its fields by name.
pub const MESSAGE_PACK: u8 = b'm';

/// Writes and reads the states of a step's keys.
pub trait StateCodec<S> {
    /// Appends a state.
    ///
    /// # Errors
    /// What the state says.
    fn save(&self, state: &S, out: &mut Vec<u8>) -> Result<(), Cause>;
    /// Takes a state off the front of `from`.
    ///
    /// # Errors
    /// It is not what `save` has written.
    fn load(&self, from: &mut &[u8]) -> Result<S, Cause>;
}

/// The codec of a step's states, whatever it is.
pub type BoxedCodec<S> = Box<dyn StateCodec<S>>;

/// Writes and reads values of a type, as one value of MessagePack each.
pub struct Codec<T> {
    /// Appends a value.
    pub save: fn(&T, &mut Vec<u8>) -> Result<(), Cause>,
    /// Takes a value off the front.
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

/// The types whose values can be saved.
#[derive(Clone)]
pub struct Codecs(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Default for Codecs {
    fn default() -> Self {
        let mut codecs = Codecs(HashMap::new());
        macro_rules! known {
            ($($t:ty),*) => {$(codecs.add::<$t>();)*};
        }
        known!(
            (),
            bool,
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
            // What a mean is made of.
            (f64, u64)
        );
        codecs
    }
}

impl Codecs {
    /// Announces a type; what may or may not be one, and lists of them.
    pub(crate) fn add<T: Serialize + DeserializeOwned + 'static>(&mut self) {
        self.put(Codec::<T>::message_pack());
        self.put(Codec::<Option<T>>::message_pack());
        self.put(Codec::<Vec<T>>::message_pack());
    }

    /// Announces a type with a codec of its own.
    pub(crate) fn put<T: 'static>(&mut self, codec: Codec<T>) {
        self.0.insert(TypeId::of::<T>(), Arc::new(codec));
    }

    /// The codec of a type.
    ///
    /// # Errors
    /// The type was not announced; the message says how to.
    pub fn get<T: 'static>(&self) -> Result<Codec<T>, Cause> {
        let found = self.0.get(&TypeId::of::<T>());
        let codec = found.and_then(|codec| codec.downcast_ref::<Codec<T>>());
        codec.copied().ok_or_else(|| {
            let name = std::any::type_name::<T>();
            format!("its state, {name}, cannot be saved; derive serde's traits and announce it with flow.saves::<{name}>()").into()
        })
    }
}
