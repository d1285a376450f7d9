//! The list of conditions that need attention: what is wrong, how bad it is, what to do about it, and how it ends.
//!
//! Each condition is evaluated here, once a second, and nowhere else. What the page, `top`, `/readyz`, the JSON and the
//! metric `millstream_condition` show is the outcome; the alert rules for Prometheus and the table of the guide are
//! generated from the list. A page is green only while none holds.

mod condition;
mod evaluator;
mod flows;
mod journals;
mod list;
mod queues;
mod services;
#[cfg(test)]
mod tests;

pub use self::condition::Condition;
pub use self::evaluator::Evaluator;
pub use self::list::all;
pub(crate) use self::list::obstacle;
pub use crate::snapshot::{ConditionSnapshot, Severity};
