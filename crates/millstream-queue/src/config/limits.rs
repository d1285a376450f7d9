//! The limits of a server: the table `[limits]` of the configuration.

use std::time::Duration;

use serde::Deserialize;

/// Limits of a server, each with a safe default.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct ServerLimits {
    /// The number of connections; more are rejected. 1,024.
    pub connections: usize,
    /// The number of connections from one address, of a network of 64 bits with IPv6, or of one user on a Unix socket;
    /// more are rejected. 0, the default, is no limit.
    pub connections_per_address: usize,
    /// The largest item, in bytes: at most 128 MiB. 1 MiB.
    pub item_bytes: usize,
    /// The longest command line, in bytes. 16 KiB.
    pub line_bytes: usize,
    /// The size of pending replies of one connection, in bytes; beyond it no request of the connection begins. 1 MiB.
    pub output_bytes: usize,
    /// The memory in bytes: three quarters for items of all queues, and one quarter for the buffers of all
    /// connections. 2 GiB.
    pub memory_bytes: u64,
    /// The number of queues. 10,000.
    pub queues: usize,
    /// The number of items that one connection may have open in all queues. 10,000.
    pub opens_per_connection: usize,
    /// The time after which an idle connection that does not wait and has no item open is closed. One hour; 0 never.
    #[serde(deserialize_with = "super::time::duration")]
    pub idle_timeout: Duration,
    /// The time without an answer from the client's machine after which a TCP connection is closed. 30 seconds; 0 as
    /// the system does.
    #[serde(deserialize_with = "super::time::duration")]
    pub keepalive: Duration,
    /// The time within which a client must authenticate, where that is required. 10 seconds; 0 without limit.
    #[serde(deserialize_with = "super::time::duration")]
    pub auth_timeout: Duration,
    /// The time within which a request must be complete, and a reply be read. 30 seconds; 0 without limit.
    #[serde(deserialize_with = "super::time::duration")]
    pub request_timeout: Duration,
    /// The time for which the server spins for more requests before it sleeps, as long as they come that quickly. 50
    /// microseconds; 0, the default on a machine with one core, disables spinning.
    #[serde(deserialize_with = "super::time::duration")]
    pub spin: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections: 1_024,
            connections_per_address: 0,
            item_bytes: 1 << 20,
            line_bytes: 16 << 10,
            output_bytes: 1 << 20,
            memory_bytes: 2 << 30,
            queues: 10_000,
            opens_per_connection: 10_000,
            idle_timeout: Duration::from_secs(3_600),
            keepalive: Duration::from_secs(30),
            auth_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            spin: default_spin(),
        }
    }
}

/// The smallest `line_bytes`: a command that changes this.
const LINE_BYTES_MIN: usize = 64;
/// The largest `item_bytes`.
const ITEM_BYTES_MAX: usize = 128 << 20;

impl ServerLimits {
    pub(super) fn check(&self) -> Result<(), String> {
        for (name, value, least, most) in [
            ("connections", self.connections, 1, usize::MAX),
            ("item_bytes", self.item_bytes, 1, ITEM_BYTES_MAX),
            ("line_bytes", self.line_bytes, LINE_BYTES_MIN, usize::MAX),
            ("output_bytes", self.output_bytes, 1, usize::MAX),
            ("queues", self.queues, 1, usize::MAX),
        ] {
            if value < least {
                return Err(format!("limits.{name} is {value}, less than {least}"));
            }
            if value > most {
                return Err(format!("limits.{name} is {value}, more than {most}"));
            }
        }
        Ok(())
    }

    /// The memory for items.
    pub(crate) fn memory_items(&self) -> u64 {
        self.memory_bytes - self.memory_buffers()
    }

    /// The memory for the buffers of connections.
    pub(crate) fn memory_buffers(&self) -> u64 {
        self.memory_bytes / 4
    }
}

/// On a single core no client can send while the server spins.
fn default_spin() -> Duration {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => Duration::from_micros(50),
        _ => Duration::ZERO,
    }
}
