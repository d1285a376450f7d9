//! Which followers a leader lets count by itself.
//!
//! A leader without a connection may be superseded without knowing it: one of its followers was promoted. A follower
//! that it meets from then on must not count, or both leaders acknowledge records. So a copy is admitted by itself only
//! while every copy that was admitted before is connected, and has sent a message since the new one came. The first
//! copy is admitted at once. All others wait for `journal followers --admit`.
//!
//! A copy is admitted after the first message that follows WELCOME. Before, it may not be on the follower's disk, and
//! another attempt to make it has another number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_journal::CursorInfo;
use millstream_journal::clock::monotonic_ns;

/// A connected follower of one journal.
#[derive(Clone, Debug)]
pub(super) struct Presence {
    /// Its copy's own number.
    pub copy: u64,
    came_ns: u64,
    /// When it sent its last message, in any of its journals.
    answered_ns: Arc<AtomicU64>,
}

impl Presence {
    /// A follower that comes now.
    pub fn new(copy: u64, answered_ns: &Arc<AtomicU64>) -> Self {
        Presence {
            copy,
            came_ns: monotonic_ns(),
            answered_ns: Arc::clone(answered_ns),
        }
    }

    fn has_answered_since(&self, other: &Presence) -> bool {
        self.answered_ns.load(Ordering::Relaxed) > other.came_ns
    }
}

/// The admitted followers that have not answered since the follower `name` came; it may be admitted when there are
/// none. `present` returns those that are connected.
pub(super) fn unanswered<'a>(
    cursors: &[CursorInfo],
    name: &str,
    present: impl Fn(&str) -> Option<&'a Presence>,
) -> Vec<String> {
    let mut missing = Vec::new();
    for cursor in cursors {
        let (Some(member), Some(copy)) = (cursor.follower(), cursor.admission.known()) else {
            continue;
        };
        let answers = match (present(member), present(name)) {
            // Another copy under its name does not answer for it.
            (Some(found), Some(new)) if found.copy == copy => {
                member == name || found.has_answered_since(new)
            }
            _ => false,
        };
        if !answers {
            missing.push(member.to_owned());
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use millstream_journal::Admission;

    use super::*;

    fn cursor(name: &str, admission: Admission) -> CursorInfo {
        CursorInfo {
            name: name.to_owned(),
            position: 0,
            copy: admission.known().unwrap_or(0),
            admission,
        }
    }

    fn present(copy: u64, came_ns: u64, answered_ns: u64) -> Presence {
        Presence {
            copy,
            came_ns,
            answered_ns: Arc::new(AtomicU64::new(answered_ns)),
        }
    }

    fn missing(cursors: &[CursorInfo], live: &[(&str, Presence)], name: &str) -> Vec<String> {
        let live: HashMap<&str, &Presence> = live.iter().map(|(name, is)| (*name, is)).collect();
        unanswered(cursors, name, |name| live.get(name).copied())
    }

    #[test]
    fn the_first_follower_waits_for_none() {
        let others = [
            cursor("billing", Admission::None),
            cursor("follower.tried", Admission::None),
        ];
        let live = [("new", present(9, 5, 5))];
        assert!(missing(&others, &live, "new").is_empty());
    }

    #[test]
    fn each_admitted_copy_must_answer_after_the_new_one_arrived() {
        let admitted = [
            cursor("follower.a", Admission::Done(1)),
            cursor("follower.b", Admission::Begun(2)),
            cursor("follower.new", Admission::None),
        ];
        let new = || ("new", present(9, 50, 60));
        let a = |copy, answered_ns| ("a", present(copy, 10, answered_ns));
        let b = |answered_ns| ("b", present(2, 10, answered_ns));
        assert_eq!(missing(&admitted, &[new()], "new"), ["a", "b"]);
        assert_eq!(missing(&admitted, &[new(), a(1, 51), b(50)], "new"), ["b"]);
        assert_eq!(missing(&admitted, &[new(), a(7, 51), b(51)], "new"), ["a"]);
        assert!(missing(&admitted, &[new(), a(1, 51), b(51)], "new").is_empty());
    }

    #[test]
    fn a_name_does_not_vouch_for_another_copy() {
        let admitted = [cursor("follower.a", Admission::Done(1))];
        assert_eq!(missing(&admitted, &[("a", present(2, 1, 9))], "a"), ["a"]);
        // Its own admission, which a crash has left incomplete, is completed.
        let begun = [cursor("follower.a", Admission::Begun(1))];
        assert!(missing(&begun, &[("a", present(1, 5, 5))], "a").is_empty());
    }
}
