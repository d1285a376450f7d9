//! What connections may cost. The table `[limits]` of the configuration.

use std::time::Duration;

use serde::Deserialize;

/// Limits of a server, each with a safe default.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerLimits {
    /// Connections at a time; more are turned away. 1,024.
    pub connections: usize,
    /// The largest item, in bytes. 1 MiB.
    pub item_bytes: usize,
    /// The longest command line, in bytes. 16 KiB.
    pub line_bytes: usize,
    /// Replies that wait to be sent to one connection, in bytes; then no more requests of it are begun. 1 MiB.
    pub output_bytes: usize,
    /// Memory for items of all queues, three quarters of this, and for the buffers of all connections, one quarter, in bytes. 2 GiB.
    pub memory_bytes: u64,
    /// Queues. 10,000.
    pub queues: usize,
    /// Items that one connection may have open in all queues. 10,000.
    pub opens_per_connection: usize,
    /// A connection that sends nothing for so long and waits for nothing is closed. One hour; 0 never.
    #[serde(deserialize_with = "crate::config::time")]
    pub idle_timeout: Duration,
    /// A request must be whole, and a reply be taken, within this time. 30 seconds; 0 without limit.
    #[serde(deserialize_with = "crate::config::time")]
    pub request_timeout: Duration,
    /// How long the server looks for more requests before it sleeps, as long as they come that quickly. 50 microseconds; 0, the
    /// default on a machine with one core, never.
    #[serde(deserialize_with = "crate::config::time")]
    pub spin: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections: 1_024,
            item_bytes: 1 << 20,
            line_bytes: 16 << 10,
            output_bytes: 1 << 20,
            memory_bytes: 2 << 30,
            queues: 10_000,
            opens_per_connection: 10_000,
            idle_timeout: Duration::from_secs(3_600),
            request_timeout: Duration::from_secs(30),
            spin: default_spin(),
        }
    }
}

impl ServerLimits {
    /// What items may take of the memory.
    pub(crate) fn memory_items(&self) -> u64 {
        self.memory_bytes - self.memory_buffers()
    }

    /// What the buffers of connections may take of the memory.
    pub(crate) fn memory_buffers(&self) -> u64 {
        self.memory_bytes / 4
    }
}

/// On one core nobody can ask again while the server looks.
fn default_spin() -> Duration {
    match std::thread::available_parallelism() {
        Ok(cores) if cores.get() > 1 => Duration::from_micros(50),
        _ => Duration::ZERO,
    }
}
