//! All conditions.

use super::condition::Condition;
use super::{flows, journals, queues, services};
use crate::snapshot::ConditionSnapshot;

/// All conditions, in the order of the guide.
pub fn all() -> impl Iterator<Item = &'static Condition> {
    PARTS.into_iter().flat_map(|(_, conditions)| conditions)
}

/// The conditions of each part of a page.
pub(super) const PARTS: [(&str, &[Condition]); 4] = [
    ("flow", flows::FLOWS),
    ("queues", queues::QUEUES),
    ("journals", journals::JOURNALS),
    ("services", services::SERVICES),
];

/// The first condition of those that hold which makes the process not ready.
pub(crate) fn obstacle(held: &[ConditionSnapshot]) -> Option<&ConditionSnapshot> {
    let is_obstacle = |name: &str| all().any(|one| one.is_obstacle && one.name == name);
    held.iter().find(|one| is_obstacle(&one.name))
}
