//! The list of conditions that need attention: what is wrong, how bad it is, what to do about it, and how it ends.
//!
//! Each condition is evaluated here, once a second, and nowhere else. What the page, `top`, `/readyz`, the JSON and the metric
//! `millstream_condition` show is the outcome; the alert rules for Prometheus and the table of the guide are generated from
//! the list. A page is green only while none holds.

mod evaluator;
mod flows;
mod journals;
mod queues;
mod services;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use self::evaluator::Evaluator;
use self::evaluator::Finder;
use crate::snapshot::Snapshot;

/// How bad a condition is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Someone should look at it in the day.
    #[default]
    Warning,
    /// Someone should look at it now.
    Critical,
}

impl Severity {
    /// Returns its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// A condition of the list.
pub struct Condition {
    /// Its name, which is also that of its alert.
    pub name: &'static str,
    /// How bad it is, in words: `warning; critical from one item in ten`.
    pub severity: &'static str,
    /// How long it must hold before the alert fires, as Prometheus writes it.
    pub after: &'static str,
    /// What has happened, in one sentence.
    pub summary: &'static str,
    /// What to do.
    pub action: &'static str,
    /// How it ends.
    pub ends: &'static str,
    /// Whether the process is not ready while it holds.
    pub is_obstacle: bool,
    /// The seconds for which it holds after it was found last.
    lasts: u64,
    look: fn(&Snapshot, &mut Finder<'_>),
}

/// The seconds for which an event, for instance a skipped item, needs attention.
const EVENT_SECONDS: u64 = 300;

/// A condition that holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConditionSnapshot {
    /// Its name in the list.
    pub name: Cow<'static, str>,
    /// How bad it is.
    pub severity: Severity,
    /// The part of the page that has it: `flow`, `queues`, `journals` or `services`.
    pub part: Cow<'static, str>,
    /// What it is of: `flow`, `step`, `source`, `sink`, `worker`, `process`, `epochs`, `queue`, `queues`, `journal`, `journals`,
    /// `service`, `services` or `part`, which is a process of a system of services.
    pub kind: Cow<'static, str>,
    /// The name of that.
    pub subject: String,
    /// What is wrong, in one sentence.
    pub words: String,
    /// What to do.
    pub action: Cow<'static, str>,
    /// Since when it holds, milliseconds since the epoch.
    pub since_ms: u64,
    /// The number of the process, if it is another than the one that shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<usize>,
}

/// All conditions, in the order of the guide.
pub fn all() -> impl Iterator<Item = &'static Condition> {
    PARTS.into_iter().flat_map(|(_, conditions)| conditions)
}

/// The conditions of each part of a page.
const PARTS: [(&str, &[Condition]); 4] = [
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

/// The worst first, then the oldest.
pub(crate) fn sort(held: &mut [ConditionSnapshot]) {
    held.sort_by(|one, other| {
        let by_severity = other.severity.cmp(&one.severity);
        by_severity.then(one.since_ms.cmp(&other.since_ms))
    });
}
