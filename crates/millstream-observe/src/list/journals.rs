//! The metrics of journals.

use super::metric::{Kind, Metric, Put, metric};
use crate::sections::journal_figures::{
    CursorSnapshot, JournalSnapshot, JournalState, JournalsSnapshot,
};
use crate::snapshot::Snapshot;

const JOURNAL: &[&str] = &["journal"];
const CURSOR: &[&str] = &["journal", "cursor"];
const FOLLOWER: &[&str] = &["journal", "follower"];
const NONE: &[&str] = &[];

fn each(snapshot: &Snapshot, put: Put<'_>, of: fn(&JournalSnapshot) -> Option<f64>) {
    let journals = snapshot.journals.iter().flat_map(|all| &all.journals);
    for journal in journals {
        if let Some(value) = of(journal) {
            put(&[&journal.name], value);
        }
    }
}

/// The values of cursors, or of followers.
fn each_cursor(
    snapshot: &Snapshot,
    put: Put<'_>,
    is_follower: bool,
    of: fn(&CursorSnapshot) -> f64,
) {
    let journals = snapshot.journals.iter().flat_map(|all| &all.journals);
    for journal in journals {
        let cursors = journal.cursors.iter();
        for cursor in cursors.filter(|cursor| cursor.is_follower == is_follower) {
            put(&[&journal.name, &cursor.name], of(cursor));
        }
    }
}

fn whole(snapshot: &Snapshot, put: Put<'_>, of: fn(&JournalsSnapshot) -> f64) {
    if let Some(all) = &snapshot.journals {
        put(&[], of(all));
    }
}

/// The metrics of journals, in the order of the guide.
pub static JOURNALS: &[Metric] = &[
    metric(
        "millstream_journal_records_total",
        Kind::Counter,
        JOURNAL,
        "Records that were ever appended to a journal: the number that the next one gets",
        |all, put| {
            each(all, put, |journal| Some(journal.next as f64));
        },
    ),
    metric(
        "millstream_journal_kept_records",
        Kind::Gauge,
        JOURNAL,
        "Records of a journal that are not pruned",
        |all, put| {
            each(all, put, |journal| {
                Some(journal.next.saturating_sub(journal.first) as f64)
            });
        },
    ),
    metric(
        "millstream_journal_disk_bytes",
        Kind::Gauge,
        JOURNAL,
        "What a journal takes on the disk",
        |all, put| {
            each(all, put, |journal| Some(journal.disk_bytes as f64));
        },
    ),
    metric(
        "millstream_journal_segments",
        Kind::Gauge,
        JOURNAL,
        "Segments of a journal",
        |all, put| {
            each(all, put, |journal| Some(journal.segments as f64));
        },
    ),
    metric(
        "millstream_journal_not_durable_records",
        Kind::Gauge,
        JOURNAL,
        "Records of a journal that a loss of power may cost",
        |all, put| {
            each(all, put, |journal| {
                Some(journal.next.saturating_sub(journal.durable) as f64)
            });
        },
    ),
    metric(
        "millstream_journal_age_seconds",
        Kind::Gauge,
        JOURNAL,
        "Age of the newest record of a journal",
        |all, put| {
            each(all, put, |journal| journal.age_seconds);
        },
    ),
    metric(
        "millstream_journal_writers",
        Kind::Gauge,
        JOURNAL,
        "Processes that have a journal open to write",
        |all, put| {
            each(all, put, |journal| Some(journal.writers.len() as f64));
        },
    ),
    metric(
        "millstream_journal_queue_items",
        Kind::Gauge,
        JOURNAL,
        "Items of a queue that is read on the disk",
        |all, put| {
            each(all, put, |journal| journal.items.map(|items| items as f64));
        },
    ),
    metric(
        "millstream_journal_unreadable",
        Kind::Gauge,
        JOURNAL,
        "1 while a journal cannot be read, else 0",
        |all, put| {
            each(all, put, |journal| {
                Some(f64::from(u8::from(
                    journal.state == JournalState::Unreadable,
                )))
            });
        },
    ),
    metric(
        "millstream_journal_superseded",
        Kind::Gauge,
        JOURNAL,
        "1 while another copy of a journal leads, else 0",
        |all, put| {
            each(all, put, |journal| {
                Some(f64::from(u8::from(journal.superseded_by.is_some())))
            });
        },
    ),
    metric(
        "millstream_journal_cursor_lag_records",
        Kind::Gauge,
        CURSOR,
        "Records that a cursor has not passed; the cursor of a service stays where its rebuild begins",
        |all, put| {
            each_cursor(all, put, false, |cursor| cursor.lag_records as f64);
        },
    ),
    metric(
        "millstream_journal_cursor_lag_seconds",
        Kind::Gauge,
        CURSOR,
        "Age of the first record that a cursor has not passed; the cursor of a service stays where its rebuild begins",
        |all, put| {
            each_cursor(all, put, false, |cursor| cursor.lag_seconds);
        },
    ),
    metric(
        "millstream_journal_follower_lag_records",
        Kind::Gauge,
        FOLLOWER,
        "Records that a follower has not acknowledged",
        |all, put| {
            each_cursor(all, put, true, |cursor| cursor.lag_records as f64);
        },
    ),
    metric(
        "millstream_journal_follower_lag_seconds",
        Kind::Gauge,
        FOLLOWER,
        "Age of the first record that a follower has not acknowledged",
        |all, put| {
            each_cursor(all, put, true, |cursor| cursor.lag_seconds);
        },
    ),
    metric(
        "millstream_journals_watched",
        Kind::Gauge,
        NONE,
        "Journals that are watched",
        |all, put| {
            whole(all, put, |all| all.count as f64);
        },
    ),
    metric(
        "millstream_journals_unlabelled",
        Kind::Gauge,
        NONE,
        "Journals that are watched and have no metrics",
        |all, put| {
            whole(all, put, |all| all.unlabelled as f64);
        },
    ),
    metric(
        "millstream_journals_silent_seconds",
        Kind::Gauge,
        NONE,
        "Time since the journals were looked at, which happens once a second",
        |all, put| {
            whole(all, put, |all| all.silent_seconds);
        },
    ),
];
