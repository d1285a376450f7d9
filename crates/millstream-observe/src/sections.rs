//! The parts of a page besides a flow: the queues of a server, journals, services.
//!
//! A section adds its figures to each [`Snapshot`], once a second, and answers requests for its details from what it
//! has in memory. A process may have several, with or without a flow.

#[doc(hidden)] // For the other crates of Millstream.
pub mod journal_figures;
pub mod journals;
#[doc(hidden)] // For the other crates of Millstream.
pub mod queue_figures;
#[cfg(feature = "queues")]
pub mod queues;
#[doc(hidden)] // For the other crates of Millstream.
pub mod service_figures;
pub mod services;
mod tracks;

use std::fmt::Write;

use millstream_http::pages::{Page, PageRequest, PendingPage};

use self::service_figures::CallTrace;
use crate::snapshot::Snapshot;

/// A part of a page.
pub trait Section: Send + Sync + 'static {
    /// Adds the newest figures to a snapshot.
    #[doc(hidden)] // For the other crates of Millstream.
    fn add(&self, snapshot: &mut Snapshot);

    /// Answers a request of a path that is not one of the whole page; `None` for one of another section.
    #[doc(hidden)] // For the other crates of Millstream.
    fn answer(&self, request: &PageRequest<'_>) -> Option<Page>;

    /// Why the process is not ready, in one line.
    #[doc(hidden)] // For the other crates of Millstream.
    fn obstacle(&self) -> Option<String>;

    /// The sampled calls since the last call of this, for traces: there are none before the first.
    #[doc(hidden)] // For the other crates of Millstream.
    fn take_calls(&self) -> Vec<CallTrace> {
        Vec::new()
    }

    /// The names of the actions that a reader with the token has.
    #[doc(hidden)] // For the other crates of Millstream.
    fn actions(&self) -> &'static [&'static str] {
        &[]
    }

    /// Does what a reader with the token asks for; `None` for an action of another section.
    #[doc(hidden)] // For the other crates of Millstream.
    fn act(&self, _action: &str, _request: &PageRequest<'_>) -> Option<PendingPage> {
        None
    }
}

/// An answer in JSON.
fn json(value: &impl serde::Serialize) -> Page {
    let text = serde_json::to_string(value).unwrap_or_default();
    Page::new("application/json", text)
}

/// The beginning of a record as text, where it is text, and in hexadecimal. `whole`: nothing follows.
fn text_and_hex(head: &[u8], whole: bool) -> (Option<&str>, String) {
    let text = match std::str::from_utf8(head) {
        Ok(text) => Some(text),
        // A character that the limit has truncated.
        Err(error) if !whole && error.error_len().is_none() => {
            std::str::from_utf8(&head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    let hex = head.iter().fold(String::new(), |mut hex, byte| {
        // Text in memory takes all that is written.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    (text, hex)
}
