//! Recovery: the first opener brings the segments into a consistent state. It plans first and acts afterwards.
//!
//! If the machine has not been restarted since the segments were written, their file system is still mounted, and no
//! sync has failed, the page cache holds everything that was ever appended: only what a dead writer left unfinished
//! after the last tail is examined. After a loss of power, pages may show any moment since they were last synced. Then
//! everything above the durable watermark is scanned. The first frame that is not sound is the torn end: it and what
//! follows is cleared. Below the watermark nothing is ever cleared; damage there is an error. `docs/journal-format.md`
//! has the cases in a table.
//!
//! The watermark is the `durable` mark of the last segment that has one. It is stored after a sync and so becomes
//! durable itself with the next one: what it claims is always durable, and more may be. Segments before it are not
//! read.

pub(crate) mod act;
pub(crate) mod agree;
pub(crate) mod intent;
pub(crate) mod listing;
pub(crate) mod salvage;
pub(crate) mod steps;
pub(crate) mod survey;
pub(crate) mod verify;

pub(crate) use act::act;
pub(crate) use agree::{Confirmed, agree};
pub(crate) use intent::CutIntent;
pub(crate) use listing::{check_names, segments};
pub(crate) use steps::Plan;
pub(crate) use survey::plan;
