//! Functions on items of windows: copying, the times without the value, the choice of windows.

use crate::time::Timed;

/// Returns the windows `[start, end)` that contain a moment.
#[doc(hidden)] // For the other crates of Millstream.
pub type Choose<E> = Box<dyn FnMut(i64) -> Result<Vec<(i64, i64)>, E>>;

/// Copies a value that is added to several windows.
pub(super) type Copier<T> = fn(&T) -> T;

impl<T> Timed<T> {
    /// Returns the times of an item, for use after its value was consumed.
    pub(super) fn times(&self) -> Timed<()> {
        Timed {
            time: self.time,
            watermark: self.watermark,
            value: (),
        }
    }

    /// Returns a copy of it.
    pub(super) fn copied(&self, copy: Copier<T>) -> Timed<T> {
        Timed {
            time: self.time,
            watermark: self.watermark,
            value: copy(&self.value),
        }
    }
}
