//! What windows need of an item: a copy, its times without its value, the windows that hold it.

use crate::time::Timed;

/// Says which windows `[start, end)` hold a moment.
pub type Choose<E> = Box<dyn FnMut(i64) -> Result<Vec<(i64, i64)>, E>>;

/// Makes another of a value that goes to several places.
pub(super) type Copier<T> = fn(&T) -> T;

impl<T> Timed<T> {
    /// The times of an item, once its value has been consumed.
    pub(super) fn times(&self) -> Timed<()> {
        Timed {
            time: self.time,
            watermark: self.watermark,
            value: (),
        }
    }

    /// Another of it.
    pub(super) fn copied(&self, copy: Copier<T>) -> Timed<T> {
        Timed {
            time: self.time,
            watermark: self.watermark,
            value: copy(&self.value),
        }
    }
}

impl Timed<()> {
    /// The same time for what came out, if anything did.
    pub(super) fn try_map<T, E>(self, value: Result<T, E>) -> Result<Timed<T>, E> {
        value.map(|value| self.map(|()| value))
    }
}
