//! What this process has open, by path: a second open of a path yields the value that is open already.
//!
//! The invariant: a path has an entry from before its value is opened until after the value is dropped. A thread that
//! opens a path while another thread closes it waits until that is done.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// The open values of one type.
#[derive(Debug)]
pub(super) struct Registry<T: 'static> {
    entries: Mutex<Vec<(PathBuf, Weak<Registered<T>>)>>,
    /// Notified when an entry is removed.
    removed: Condvar,
}

/// An open value. It leaves the registry when it is dropped.
#[derive(Debug)]
pub(super) struct Registered<T: 'static> {
    value: T,
    /// Dropped after the value.
    _registration: Registration<T>,
}

impl<T> Deref for Registered<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Registry<T> {
    pub(super) const fn new() -> Self {
        Registry {
            entries: Mutex::new(Vec::new()),
            removed: Condvar::new(),
        }
    }

    /// The value of this path, which must be canonical: the one that is open, if `check` accepts it, or else what
    /// `open` makes.
    pub(super) fn open<E>(
        &'static self,
        path: PathBuf,
        check: impl FnOnce(&T) -> Result<(), E>,
        open: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<Registered<T>>, E> {
        let mut entries = self.lock();
        while let Some((_, entry)) = entries.iter().find(|(known, _)| *known == path) {
            if let Some(value) = entry.upgrade() {
                // If the value is refused, this may be its last handle, and dropping that takes the lock.
                drop(entries);
                check(&value)?;
                return Ok(value);
            }
            entries = self
                .removed
                .wait(entries)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let value = Arc::new(Registered {
            value: open()?,
            _registration: Registration {
                registry: self,
                path: path.clone(),
            },
        });
        entries.push((path, Arc::downgrade(&value)));
        Ok(value)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(PathBuf, Weak<Registered<T>>)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Registration<T: 'static> {
    registry: &'static Registry<T>,
    path: PathBuf,
}

impl<T> Drop for Registration<T> {
    fn drop(&mut self) {
        self.registry
            .lock()
            .retain(|(known, _)| *known != self.path);
        self.registry.removed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static OPEN: AtomicUsize = AtomicUsize::new(0);

    /// A value of which there must be one at a time.
    struct Single(u32);

    impl Single {
        fn open(number: u32) -> Result<Self, String> {
            assert_eq!(OPEN.fetch_add(1, Ordering::SeqCst), 0, "two are open");
            Ok(Single(number))
        }
    }

    impl Drop for Single {
        fn drop(&mut self) {
            std::thread::yield_now();
            OPEN.fetch_sub(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_path_has_one_value_at_a_time_and_is_free_after_an_error() {
        static REGISTRY: Registry<Single> = Registry::new();
        let open = |number| REGISTRY.open("a".into(), |_| Ok(()), || Single::open(number));
        let failed = REGISTRY.open("a".into(), |_| Ok(()), || Err::<Single, _>("no".to_owned()));
        assert_eq!(failed.err().as_deref(), Some("no"));
        let one = open(1).unwrap();
        let same = open(2).unwrap();
        assert_eq!((one.0, same.0), (1, 1));
        let refused = REGISTRY.open("a".into(), |_| Err("differs"), || Err("opened"));
        assert_eq!(refused.err(), Some("differs"));
        drop((one, same));
        assert_eq!(open(3).unwrap().0, 3);

        let begin = Barrier::new(4);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    for _ in 0..500 {
                        let value = REGISTRY.open("a".into(), |_| Ok(()), || Single::open(number));
                        assert!(value.unwrap().0 < 4);
                    }
                });
            }
        });
        assert!(REGISTRY.lock().is_empty());
    }
}
