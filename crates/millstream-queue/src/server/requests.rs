//! What a page or the program asks of the server: it is done on the thread of the connections.

use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

use super::error::ServerError;

/// The requests that wait for the server; further ones are refused.
pub(super) const REQUESTS_MAX: usize = 16;

/// Takes the answer to a request. Dropped without a call if the server ends before.
pub(super) type Reply<T> = Box<dyn FnOnce(Result<T, ServerError>) + Send>;

/// A request of a page, or of the program.
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

/// Sends a request to the server.
pub(super) fn send(requests: &Sender<Request>, request: Request) -> Result<(), ServerError> {
    requests.try_send(request).map_err(|refused| match refused {
        TrySendError::Full(_) => ServerError::Busy,
        TrySendError::Closed(_) => ServerError::NotRunning,
    })
}
