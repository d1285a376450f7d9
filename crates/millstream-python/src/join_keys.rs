//! The types of the keys that the two streams of a join have. Keys of different types are never equal: a join of text
//! with numbers pairs nothing, which is reported at the end of a run.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use millstream_flow::stream::Making;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString};

/// The types of keys, by their bits. A bool is a number.
const TYPES: [&str; 4] = ["str", "bytes", "int", "tuple"];

/// What the workers of this process have seen of a join.
pub(crate) struct JoinKeys {
    step: String,
    left: AtomicU8,
    right: AtomicU8,
}

impl JoinKeys {
    /// Notes the keys of values of one stream.
    pub(crate) fn see(&self, keys: &Bound<'_, PyList>, right: bool) {
        if self.left.load(Ordering::Relaxed) & self.right.load(Ordering::Relaxed) != 0 {
            return;
        }
        let seen = keys.iter().fold(0, |seen, key| seen | bit_of(&key));
        let side = if right { &self.right } else { &self.left };
        side.fetch_or(seen, Ordering::Relaxed);
    }
}

fn bit_of(key: &Bound<'_, PyAny>) -> u8 {
    1 << if key.is_instance_of::<PyString>() {
        0
    } else if key.is_instance_of::<PyBytes>() {
        1
    } else if key.is_instance_of::<PyInt>() {
        2
    } else {
        3
    }
}

fn named(bits: u8) -> String {
    let named = TYPES.iter().enumerate();
    let named = named.filter(|(bit, _)| bits & (1 << bit) != 0);
    let named: Vec<&str> = named.map(|(_, name)| *name).collect();
    named.join(" or ")
}

impl Drop for JoinKeys {
    fn drop(&mut self) {
        let left = *self.left.get_mut();
        let right = *self.right.get_mut();
        if left == 0 || right == 0 || left & right != 0 {
            return;
        }
        let step = &self.step;
        let left = named(left);
        let right = named(right);
        tracing::warn!(
            target: "millstream_flow::join",
            step = step.as_str(),
            "join \"{step}\": no value has met one of the other stream: the keys of its left stream are {left}, those of \
             its right one {right}, and these are never equal; convert one of them in key_by"
        );
    }
}

/// The [`JoinKeys`] of the current run, which all of its workers share.
#[derive(Default)]
pub(crate) struct OfRun(Mutex<Weak<JoinKeys>>);

impl OfRun {
    pub(crate) fn get(&self, making: &Making<'_>) -> Arc<JoinKeys> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = current.upgrade() {
            return known;
        }
        let keys = Arc::new(JoinKeys {
            step: making.info.name.clone(),
            left: AtomicU8::new(0),
            right: AtomicU8::new(0),
        });
        *current = Arc::downgrade(&keys);
        keys
    }
}
