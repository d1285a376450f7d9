//! The values of `stats`, of one queue or all.

use super::connection::QueueId;
use super::{Broker, Status};
use crate::config::Sync;
use crate::moment::Moment;
use crate::protocol::reply;
use crate::storage::Storage;

impl<S: Storage> Broker<S> {
    /// Appends the values of the server as `STAT` lines.
    pub(crate) fn server_stats(&self, out: &mut Vec<u8>, now: Moment) {
        let queues = || self.slots.iter().filter_map(|slot| slot.queue.as_ref());
        let counters = &self.counters;
        let connections = self.connections.iter().flatten().count();
        let status = match self.status {
            Status::Up => "UP",
            Status::ReadOnly => "READONLY",
            Status::Quiescent => "QUIESCENT",
        };
        reply::stat(
            out,
            "uptime",
            &(now.steady_us.saturating_sub(self.started.steady_us) / 1_000_000),
        );
        reply::stat(out, "time", &(now.wall_ms / 1_000));
        reply::stat(out, "version", &reply::PROTOCOL_VERSION);
        reply::stat(out, "millstream_version", &env!("CARGO_PKG_VERSION"));
        reply::stat(out, "status", &status);
        reply::stat(
            out,
            "curr_items",
            &queues().map(|queue| queue.items()).sum::<u64>(),
        );
        reply::stat(
            out,
            "bytes",
            &queues().map(|queue| queue.bytes()).sum::<u64>(),
        );
        reply::stat(out, "curr_connections", &connections);
        reply::stat(out, "memory_items", &self.memory.used());
        reply::stat(out, "memory_buffers", &counters.memory_buffers);
        reply::stat(out, "limit_memory_items", &self.limits.memory_bytes);
        for (name, count) in [
            ("total_items", counters.total_items),
            ("total_connections", counters.total_connections),
            ("cmd_get", counters.cmd_get),
            ("cmd_set", counters.cmd_set),
            ("cmd_peek", counters.cmd_peek),
            ("get_hits", counters.get_hits),
            ("get_misses", counters.get_misses),
            ("bytes_read", counters.bytes_read),
            ("bytes_written", counters.bytes_written),
            ("queue_creates", counters.queue_creates),
            ("queue_deletes", counters.queue_deletes),
            ("queue_expires", counters.queue_expires),
            ("auth_failures", counters.auth_failures),
            ("denials", counters.denials),
        ] {
            reply::stat(out, name, &count);
        }
        self.latencies.emit(|name, us| reply::stat(out, name, &us));
    }

    /// Appends a line for each closed queue that is visible.
    pub(crate) fn closed_stats(&self, is_visible: impl Fn(&str) -> bool, out: &mut Vec<u8>) {
        for (name, _) in self.closed().filter(|(name, _)| is_visible(name)) {
            reply::stat(out, &format!("queue_{name}_closed"), &1);
        }
    }

    /// Appends the values of one queue as `STAT` lines. Returns whether the queue exists.
    pub fn stats_of(&mut self, name: &str, out: &mut Vec<u8>, now: Moment) -> bool {
        self.queue_stats(name, now, |key, value| reply::stat(out, key, &value))
    }

    /// Appends the values of one queue in the format of `dump_stats`, if it exists.
    pub(crate) fn dump_stats_of(&mut self, name: &str, out: &mut Vec<u8>, now: Moment) {
        if !self.names.contains_key(name) {
            return;
        }
        out.extend_from_slice(format!("queue '{name}' {{\r\n").as_bytes());
        self.queue_stats(name, now, |key, value| {
            out.extend_from_slice(format!("  {key}={value}\r\n").as_bytes())
        });
        out.extend_from_slice(b"}\r\n");
    }

    /// The values of one queue by the names of `stats`; `None` if there is no such queue.
    pub fn numbers_of(&mut self, name: &str, now: Moment) -> Option<[(&'static str, u64); 29]> {
        let id = *self.names.get(name)?;
        let queue = self.queue_mut(id)?;
        let (oldest_age_ms, oldest_open_age_ms) =
            (queue.oldest_age_ms(now), queue.oldest_open_age_ms(now));
        let failing = queue.failing(now);
        let disk_bytes = queue.disk_bytes();
        let counters = &queue.counters;
        let refused = counters.refused;
        let (mem_items, mem_bytes) = queue.in_memory();
        let age_ms = if queue.items() == 0 {
            0
        } else {
            counters.age_ms
        };
        Some([
            ("items", queue.items()),
            ("bytes", queue.bytes()),
            ("total_items", counters.total_items),
            ("logsize", disk_bytes),
            ("expired_items", counters.expired_items),
            ("mem_items", mem_items),
            ("mem_bytes", mem_bytes),
            ("age", age_ms),
            ("oldest_age", oldest_age_ms),
            ("oldest_open_age", oldest_open_age_ms),
            ("failing_items", failing.items),
            ("deliveries_max", failing.deliveries_max),
            ("first_failure_age", failing.first_failure_age_ms),
            ("discarded", counters.discarded),
            ("failed_items", counters.failed_items),
            ("refused_items", refused.total()),
            ("refused_full", refused.full),
            ("refused_too_large", refused.too_large),
            ("refused_too_many_ids", refused.too_many_ids),
            ("refused_no_fanout", refused.no_fanout),
            ("refused_disk", refused.disk),
            ("skipped_items", counters.skipped),
            ("waiters", queue.waiters.len() as u64),
            ("open_transactions", queue.open_items() as u64),
            ("transactions", counters.transactions),
            ("canceled_transactions", counters.canceled_transactions),
            ("total_flushes", counters.total_flushes),
            ("journal_rotations", queue.log_rotations()),
            ("dedupe_ids", queue.ids() as u64),
        ])
    }

    /// Emits the values of one queue. Returns whether the queue exists.
    pub(crate) fn queue_stats(
        &mut self,
        name: &str,
        now: Moment,
        mut emit: impl FnMut(&str, String),
    ) -> bool {
        let Some(numbers) = self.numbers_of(name, now) else {
            return false;
        };
        for (key, value) in numbers {
            emit(key, value.to_string());
        }
        let Some((&id, queue)) = self
            .names
            .get(name)
            .and_then(|id| Some((id, self.queue(*id)?)))
        else {
            return false;
        };
        let children = self.children_names(id);
        if !children.is_empty() {
            emit("children", children.join(","));
        }
        let sync = queue.settings.sync;
        emit("sync", sync.to_string().replace(' ', ""));
        emit("promise", promise(sync).to_owned());
        true
    }

    fn children_names(&self, id: QueueId) -> Vec<String> {
        let children = &self.slots[id.slot as usize].children;
        children
            .iter()
            .filter_map(|child| Some(self.queue(*child)?.name.to_string()))
            .collect()
    }
}

/// What the sync policy promises, in one word, since some clients refuse a line of `stats` with more than three
/// words.
fn promise(sync: Sync) -> &'static str {
    match sync {
        Sync::Never => "survives-process-death",
        Sync::Every(_) => "survives-process-death,power-loss-costs-at-most-this-time",
        Sync::Always => "survives-power-loss",
    }
}
