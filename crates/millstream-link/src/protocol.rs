//! What distinguishes one protocol over these connections from another.

/// The words and labels of a protocol.
#[derive(Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Protocol {
    /// Begins the first message of each side.
    pub magic: &'static [u8; 8],
    /// The version, which the first messages name.
    pub version: u32,
    /// Begins the label of each proof, after `millstream`: `replication 1`. A proof of one protocol is none in another.
    pub label: &'static str,
    /// The side that listens, in errors: `leader`. Part of the label of its proofs.
    pub listener: &'static str,
    /// The side that connects, in errors: `follower`. Part of the label of its proofs.
    pub caller: &'static str,
    /// The option of the listener with the authorities that sign for callers.
    pub client_authorities: &'static str,
    /// A hint for a connection that ends in the middle of the TLS handshake.
    pub closed_early: &'static str,
}

/// The two sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Side {
    /// The side that listens.
    Listener,
    /// The side that connects.
    Caller,
}

impl Protocol {
    /// The word for a side.
    pub(crate) fn word(&self, side: Side) -> &'static str {
        match side {
            Side::Listener => self.listener,
            Side::Caller => self.caller,
        }
    }
}
