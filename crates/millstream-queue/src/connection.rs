//! The number of a connection.

/// A connection, while it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// The owner of lent items: see [`Broker::lend`](crate::broker::Broker::lend).
    pub(crate) const LENT: ConnectionId = ConnectionId(u32::MAX);

    /// The index of the connection in a table. Small numbers are reused.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
