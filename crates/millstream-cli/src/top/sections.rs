//! Queues, journals and services.

use millstream_observe::Snapshot;
use millstream_observe::sections::journal_figures::{JournalSnapshot, JournalsSnapshot};
use millstream_observe::sections::queue_figures::{QueueSnapshot, QueuesSnapshot};
use millstream_observe::sections::service_figures::{
    PartSnapshot, ServiceSnapshot, ServicesSnapshot,
};

use super::section::{Section, Tone, tone_of, verdict};
use super::words::{plain, time};
use crate::report::human;

/// The sentence of a part that needs no attention.
const GOOD: &str = "Nothing needs attention.";

/// The queues of a server.
pub(super) fn queues(queues: &QueuesSnapshot, snapshot: &Snapshot) -> Section {
    let title = format!(
        "queues: server {}, {} queues, {} items, {}in/s, {}out/s, {} clients",
        plain(&queues.status),
        queues.count,
        queues.total.items,
        human(queues.total.in_rate),
        human(queues.total.out_rate),
        queues.connections
    );
    let row = |queue: &QueueSnapshot| {
        let cells = vec![
            plain(&queue.name),
            queue.state.name().to_owned(),
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
        (
            tone_of(&snapshot.conditions, &["queue"], &queue.name, Tone::Plain),
            cells,
        )
    };
    Section {
        title,
        verdict: verdict(&snapshot.conditions, "queues", GOOD),
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
        rows: queues.queues.iter().map(row).collect(),
        foot: Vec::new(),
    }
}

/// Journals on the disk.
pub(super) fn journals(journals: &JournalsSnapshot, snapshot: &Snapshot) -> Section {
    let title = format!(
        "journals: {} journals, {}records/s, {}B on disk",
        journals.count,
        human(journals.record_rate),
        human(journals.disk_bytes as f64)
    );
    let first_look = |read| {
        format!(
            "The journals are read for the first time: {read} of {}.",
            journals.found
        )
    };
    let reading = journals.read.map(first_look);
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let row = |journal: &JournalSnapshot| {
        let cells = vec![
            plain(&journal.name),
            journal.kind.name().to_owned(),
            journal.state.name().to_owned(),
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
        (
            tone_of(
                &snapshot.conditions,
                &["journal"],
                &journal.name,
                Tone::Plain,
            ),
            cells,
        )
    };
    Section {
        title,
        verdict: verdict(
            &snapshot.conditions,
            "journals",
            reading.as_deref().unwrap_or(GOOD),
        ),
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
        rows: journals.journals.iter().map(row).collect(),
        foot: Vec::new(),
    }
}

/// The services of a process, or of a system.
pub(super) fn services(services: &ServicesSnapshot, snapshot: &Snapshot) -> Section {
    let calls: f64 = services
        .services
        .iter()
        .filter_map(|one| one.call_rate)
        .sum();
    let row = |service: &ServiceSnapshot| {
        let inputs = || service.inputs.iter();
        let oldest = inputs().map(|input| input.lag_seconds).fold(0.0, f64::max);
        let cells = vec![
            plain(&service.name),
            service.state.name().to_owned(),
            service.call_rate.map_or_else(|| "–".to_owned(), human),
            service.calls.to_string(),
            service.skipped.to_string(),
            service.dead_letters.to_string(),
            inputs()
                .map(|input| input.lag_records)
                .sum::<u64>()
                .to_string(),
            time(oldest),
        ];
        let tone = tone_of(
            &snapshot.conditions,
            &["service"],
            &service.name,
            Tone::Plain,
        );
        (tone, cells)
    };
    let process =
        |one: &PartSnapshot| format!("process {}: {}", plain(&one.name), plain(&one.state));
    Section {
        title: format!(
            "services: {} services, {}calls/s",
            services.services.len(),
            human(calls)
        ),
        verdict: verdict(&snapshot.conditions, "services", GOOD),
        texts: 2,
        head: vec![
            "service",
            "state",
            "calls/s",
            "calls",
            "skipped",
            "dead letters",
            "lag",
            "oldest",
        ],
        rows: services.services.iter().map(row).collect(),
        foot: services.processes.iter().map(process).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_tone_of_its_condition_and_no_control_characters() {
        let text = r#"{"conditions": [{"name": "MillstreamQueueConsumerStuck", "severity": "critical", "part": "queues",
                "kind": "queue", "subject": "a\u001b[2J", "words": "look\u001b[2J"}],
            "queues": {"status": "up", "count": 1, "connections": 2, "total": {}, "queues": [
                {"name": "a\u001b[2J", "state": "stuck", "items": 3, "oldest_seconds": 61, "open_items": 1, "held_seconds": 70,
                 "held_by": "1.2.3.4:5", "in_rate": 2}]},
            "services": {"services": [{"name": "Desk"}], "processes": [{"name": "desk", "state": "failed", "restarts": 3}]}}"#;
        let snapshot: Snapshot = serde_json::from_str(text).unwrap();
        let section = queues(snapshot.queues.as_ref().unwrap(), &snapshot);
        assert_eq!(section.rows[0].0, Tone::Marked);
        let text = section.text();
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[..5], ["a", "[2J", "stuck", "1.2.3.4:5", "3"]);
        assert_eq!(text.lines().nth(1), Some("look [2J"));
        let section = services(snapshot.services.as_ref().unwrap(), &snapshot);
        assert_eq!(section.rows[0].0, Tone::Plain);
        assert!(
            section.text().ends_with("process desk: failed"),
            "{}",
            section.text()
        );
    }
}
