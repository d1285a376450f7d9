//! The number of a connection.

/// A connection, as long as it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u32);

impl ConnectionId {
    /// Who has items that are lent: see [`Queues::lend`](crate::broker::Broker::lend).
    pub(crate) const LENT: ConnectionId = ConnectionId(u32::MAX);

    /// Small numbers that are used again: an index into a table of connections.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
