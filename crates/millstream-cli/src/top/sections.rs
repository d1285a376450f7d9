//! Queues and journals.

use serde::Deserialize;

use super::section::{Section, Tone};
use super::words::{plain, time};
use crate::report::human;

/// The queues of a server.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Queues {
    status: String,
    count: usize,
    connections: u64,
    attention: Option<String>,
    total: Queue,
    queues: Vec<Queue>,
}

#[derive(Clone, Debug, Deserialize)]
struct Queue {
    name: String,
    state: String,
    items: u64,
    oldest_seconds: f64,
    open_items: u64,
    held_seconds: f64,
    held_by: Option<String>,
    waiters: u64,
    in_rate: f64,
    out_rate: f64,
    expired_rate: f64,
}

/// Journals on the disk.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Journals {
    count: usize,
    record_rate: f64,
    disk_bytes: u64,
    attention: Option<String>,
    journals: Vec<Journal>,
}

#[derive(Clone, Debug, Deserialize)]
struct Journal {
    name: String,
    kind: String,
    state: String,
    first: u64,
    next: u64,
    durable: u64,
    record_rate: f64,
    byte_rate: f64,
    cursor_lag: Option<u64>,
    follower_lag: Option<u64>,
    items: Option<u64>,
    disk_bytes: u64,
    writers: Vec<u32>,
}

impl Queues {
    pub(super) fn section(&self) -> Section {
        let title = format!(
            "queues: server {}, {} queues, {} items, {}in/s, {}out/s, {} clients",
            plain(&self.status),
            self.count,
            self.total.items,
            human(self.total.in_rate),
            human(self.total.out_rate),
            self.connections
        );
        let row = |queue: &Queue| {
            let cells = vec![
                plain(&queue.name),
                plain(&queue.state),
                plain(queue.held_by.as_deref().unwrap_or("-")),
                queue.items.to_string(),
                time(queue.oldest_seconds),
                queue.open_items.to_string(),
                time(queue.held_seconds),
                queue.waiters.to_string(),
                human(queue.in_rate),
                human(queue.out_rate),
                human(queue.expired_rate),
            ];
            (tone(&queue.state), cells)
        };
        Section {
            title,
            verdict: verdict(self.attention.as_ref()),
            texts: 3,
            head: vec![
                "queue",
                "state",
                "held by",
                "items",
                "oldest",
                "open",
                "held",
                "waiting",
                "in/s",
                "out/s",
                "expired/s",
            ],
            rows: self.queues.iter().map(row).collect(),
            foot: Vec::new(),
        }
    }
}

impl Journals {
    pub(super) fn section(&self) -> Section {
        let title = format!(
            "journals: {} journals, {}records/s, {}B on disk",
            self.count,
            human(self.record_rate),
            human(self.disk_bytes as f64)
        );
        let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let row = |journal: &Journal| {
            let cells = vec![
                plain(&journal.name),
                plain(&journal.kind),
                plain(&journal.state),
                (journal.next.saturating_sub(journal.first)).to_string(),
                journal.next.to_string(),
                journal.next.saturating_sub(journal.durable).to_string(),
                human(journal.record_rate),
                human(journal.byte_rate),
                number(journal.cursor_lag),
                number(journal.follower_lag),
                number(journal.items),
                human(journal.disk_bytes as f64),
                journal.writers.len().to_string(),
            ];
            (tone(&journal.state), cells)
        };
        Section {
            title,
            verdict: verdict(self.attention.as_ref()),
            texts: 3,
            head: vec![
                "journal",
                "kind",
                "state",
                "records",
                "next",
                "not durable",
                "records/s",
                "bytes/s",
                "cursor lag",
                "follower lag",
                "items",
                "disk",
                "writers",
            ],
            rows: self.journals.iter().map(row).collect(),
            foot: Vec::new(),
        }
    }
}

/// What needs attention, if anything does.
fn verdict(attention: Option<&String>) -> (Tone, String) {
    match attention {
        Some(words) => (Tone::Bad, words.replace(char::is_control, " ")),
        None => (Tone::Good, "Nothing needs attention.".to_owned()),
    }
}

fn tone(state: &str) -> Tone {
    match state {
        "good" => Tone::Plain,
        _ => Tone::Marked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_queue_is_a_marked_row_without_control_characters() {
        let queue = r#"{"name": "a\u001b[2J", "state": "stuck", "items": 3, "oldest_seconds": 61, "open_items": 1,
            "held_seconds": 70, "held_by": "1.2.3.4:5", "waiters": 0, "in_rate": 2, "out_rate": 0, "expired_rate": 0}"#;
        let text = format!(
            r#"{{"status": "up", "count": 1, "connections": 2, "attention": "look", "total": {queue}, "queues": [{queue}]}}"#
        );
        let queues: Queues = serde_json::from_str(&text).unwrap();
        let section = queues.section();
        assert_eq!(section.rows[0].0, Tone::Marked);
        let text = section.text();
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[..5], ["a", "[2J", "stuck", "1.2.3.4:5", "3"]);
        assert_eq!(text.lines().nth(1), Some("look"));
    }
}
