//! How the states of steps become bytes.
//!
//! A state is found by its type: numbers, text, bytes and the state of the built-in aggregates can be
//! saved as they are; a type of one's own is announced with [`Flow::saves`](crate::Flow::saves), which
//! asks for serde's traits. Who does not need recovery announces nothing.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Cause;

/// The tag of a state that is MessagePack, its fields by name.
pub const MESSAGE_PACK: u8 = b'm';

/// Writes and reads values of a type.
pub struct Codec<T> {
    /// Appends a value.
    pub save: fn(&T, &mut Vec<u8>) -> Result<(), Cause>,
    /// Reads a value.
    pub load: fn(&[u8]) -> Result<T, Cause>,
}

impl<T> Clone for Codec<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Codec<T> {}

impl<T: Serialize + DeserializeOwned> Codec<T> {
    fn message_pack() -> Self {
        Codec {
            save: |value, out| Ok(rmp_serde::encode::write_named(out, value)?),
            load: |bytes| Ok(rmp_serde::from_slice(bytes)?),
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
            ($($t:ty),*) => {$(codecs.add::<$t>(); codecs.add::<Vec<$t>>();)*};
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
            String
        );
        codecs
    }
}

impl Codecs {
    /// Announces a type, and what may or may not be one.
    pub(crate) fn add<T: Serialize + DeserializeOwned + 'static>(&mut self) {
        let one: Arc<dyn Any + Send + Sync> = Arc::new(Codec::<T>::message_pack());
        self.0.insert(TypeId::of::<T>(), one);
        let option: Arc<dyn Any + Send + Sync> = Arc::new(Codec::<Option<T>>::message_pack());
        self.0.insert(TypeId::of::<Option<T>>(), option);
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
