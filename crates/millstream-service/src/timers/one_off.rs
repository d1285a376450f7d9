//! One-off timers: a component starts one under a name, for a method and a length of time, and may cancel it.

use std::collections::{BTreeMap, BTreeSet};

/// A one-off timer that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The name of the method that is called.
    pub timer: String,
    /// The name under which it was started.
    pub name: String,
    /// When it is due, by the time of the call that started it.
    pub due_ns: i64,
    /// How long after that call.
    pub length_ns: i64,
}

/// The one-off timers of a component, in the order in which they come due.
#[derive(Debug, Default)]
pub(crate) struct OneOffs {
    /// When each is due, and its length, by method and name.
    known: BTreeMap<(String, String), (i64, i64)>,
    queue: BTreeSet<(i64, String, String)>,
}

impl OneOffs {
    /// Starts a timer, in place of one of the same method and name.
    pub fn start(&mut self, pending: Pending) {
        let Pending {
            timer,
            name,
            due_ns,
            length_ns,
        } = pending;
        self.cancel(&timer, &name);
        self.queue.insert((due_ns, timer.clone(), name.clone()));
        self.known.insert((timer, name), (due_ns, length_ns));
    }

    /// Ends a timer; false if there is none.
    pub fn cancel(&mut self, timer: &str, name: &str) -> bool {
        let key = (timer.to_owned(), name.to_owned());
        let Some((due_ns, _)) = self.known.remove(&key) else {
            return false;
        };
        self.queue.remove(&(due_ns, key.0, key.1))
    }

    /// When each timer is due, its method and its name; the next one first.
    pub fn in_order(&self) -> impl Iterator<Item = (i64, &str, &str)> {
        let queue = self.queue.iter();
        queue.map(|(due_ns, timer, name)| (*due_ns, timer.as_str(), name.as_str()))
    }

    /// All timers.
    pub fn pending(&self) -> Vec<Pending> {
        let pending =
            |((timer, name), (due_ns, length_ns)): (&(String, String), &(i64, i64))| Pending {
                timer: timer.clone(),
                name: name.clone(),
                due_ns: *due_ns,
                length_ns: *length_ns,
            };
        self.known.iter().map(pending).collect()
    }

    /// Replaces all timers.
    pub fn set(&mut self, pending: Vec<Pending>) {
        *self = Self::default();
        pending.into_iter().for_each(|it| self.start(it));
    }

    /// The clock of the machine was set by `step`: no timer comes sooner or later.
    pub fn step(&mut self, step_ns: i64) {
        let mut pending = self.pending();
        for it in &mut pending {
            it.due_ns = it.due_ns.saturating_add(step_ns);
        }
        self.set(pending);
    }

    /// The service starts at `now`: no timer is further away than its length, as it would be if it was started while
    /// the clock was ahead.
    pub fn resume(&mut self, now_ns: i64) {
        let mut pending = self.pending();
        for it in &mut pending {
            it.due_ns = it.due_ns.min(now_ns.saturating_add(it.length_ns));
        }
        self.set(pending);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_due_in_order_unless_they_are_cancelled() {
        let start = |one_offs: &mut OneOffs, name: &str, due_ns| {
            one_offs.start(Pending {
                timer: "expire".to_owned(),
                name: name.to_owned(),
                due_ns,
                length_ns: 10,
            });
        };
        let mut one_offs = OneOffs::default();
        for (name, due_ns) in [("a", 30), ("b", 20), ("c", 40), ("b", 50)] {
            start(&mut one_offs, name, due_ns);
        }
        assert_eq!(one_offs.in_order().next(), Some((30, "expire", "a")));
        assert!(one_offs.cancel("expire", "a"));
        assert!(!one_offs.cancel("expire", "a"));
        assert_eq!(one_offs.in_order().next(), Some((40, "expire", "c")));
        one_offs.step(-25);
        assert_eq!(one_offs.in_order().next(), Some((15, "expire", "c")));
        one_offs.resume(3);
        assert_eq!(one_offs.in_order().next(), Some((13, "expire", "b")));
        assert!(one_offs.cancel("expire", "b"));
        assert_eq!(one_offs.in_order().next(), Some((13, "expire", "c")));
    }
}
