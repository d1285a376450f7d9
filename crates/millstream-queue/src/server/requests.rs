//! What a page asks of the server: it is done on the thread of the connections.

use tokio::sync::oneshot;

use super::error::ServerError;

/// The requests that wait for the server; further ones are refused.
pub(super) const REQUESTS_MAX: usize = 16;

/// Where the answer to a request goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, ServerError>>;

/// A request of a page.
#[derive(Debug)]
pub(super) enum Request {
    /// Moves items from one queue to another.
    Redrive {
        from: String,
        to: String,
        items_max: u64,
        reply: Reply<u64>,
    },
    /// Reads the files again.
    Reload(Reply<Vec<String>>),
}
