//! The conditions of journals on the disk.

use super::condition::{Condition, Finder};
use crate::sections::journal_figures::{JournalSnapshot, JournalState};
use crate::snapshot::{Severity, Snapshot};

/// The time without a look that is reported.
const SILENT_SECONDS: f64 = 30.0;
/// The age of the first unread record of a cursor that is reported.
const CURSOR_SECONDS: f64 = 300.0;

/// The conditions, in the order of the guide.
pub(super) static JOURNALS: &[Condition] = &[
    Condition {
        name: "MillstreamJournalUnreadable",
        severity: "critical",
        after: "1m",
        summary: "A journal cannot be read.",
        action: "The sentence has the reason. `millstream journal verify` finds where a journal is damaged.",
        ends: "when it can be read",
        is_obstacle: false,
        lasts: 0,
        look: unreadable,
    },
    Condition {
        name: "MillstreamFollowerLags",
        severity: "critical",
        after: "2m",
        summary: "A follower has not acknowledged records for seconds: a loss of this machine would cost them.",
        action: "Check that `millstream journal follow` runs on the other machine, and the network. If the follower is gone for good: `millstream journal followers JOURNAL --forget NAME`.",
        ends: "when the follower has caught up",
        is_obstacle: false,
        lasts: 0,
        look: follower,
    },
    Condition {
        name: "MillstreamJournalSuperseded",
        severity: "warning",
        after: "5m",
        summary: "Another copy of a journal was promoted: nothing is appended here.",
        action: "Let writers use the new leader, and let this copy follow it with `millstream journal rejoin`.",
        ends: "when this copy follows the new leader",
        is_obstacle: false,
        lasts: 0,
        look: superseded,
    },
    Condition {
        name: "MillstreamCursorLags",
        severity: "warning",
        after: "10m",
        summary: "A reader of a journal does not move: its first unread record is older than five minutes.",
        action: "Look at the process that reads with this cursor. Remove the cursor if it is no longer used: it may keep records from being pruned.",
        ends: "when the cursor moves",
        is_obstacle: false,
        lasts: 0,
        look: cursor,
    },
    Condition {
        name: "MillstreamJournalsSilent",
        severity: "critical",
        after: "1m",
        summary: "The journals were not looked at for half a minute, which happens once a second.",
        action: "Look at the disk of the journals: a call of the system hangs, for instance of a network file system.",
        ends: "with the next look",
        is_obstacle: true,
        lasts: 0,
        look: silent,
    },
];

fn journals(all: &Snapshot) -> impl Iterator<Item = &JournalSnapshot> {
    all.journals.iter().flat_map(|all| &all.journals)
}

fn in_state(all: &Snapshot, state: JournalState) -> impl Iterator<Item = &JournalSnapshot> {
    journals(all).filter(move |journal| journal.state == state)
}

fn unreadable(all: &Snapshot, find: &mut Finder<'_>) {
    for journal in in_state(all, JournalState::Unreadable) {
        let why = journal.error.as_deref().unwrap_or_default();
        let words = format!("Journal \"{}\" cannot be read: {why}", journal.name);
        find.found(("journal", &journal.name), Severity::Critical, words);
    }
}

fn follower(all: &Snapshot, find: &mut Finder<'_>) {
    for journal in in_state(all, JournalState::Lagging) {
        let followers = journal.cursors.iter().filter(|cursor| cursor.is_follower);
        if let Some(slowest) =
            followers.max_by(|one, other| one.lag_seconds.total_cmp(&other.lag_seconds))
        {
            let words = format!(
                "Follower \"{}\" of journal \"{}\" has not acknowledged {} records, the first for {:.0} s.",
                slowest.name, journal.name, slowest.lag_records, slowest.lag_seconds
            );
            find.found(("journal", &journal.name), Severity::Critical, words);
        }
    }
}

fn superseded(all: &Snapshot, find: &mut Finder<'_>) {
    for journal in in_state(all, JournalState::Superseded) {
        let words = format!(
            "Journal \"{}\" is superseded: another copy leads.",
            journal.name
        );
        find.found(("journal", &journal.name), Severity::Warning, words);
    }
}

/// Cursors of readers. That of a service stays where its rebuild begins.
fn cursor(all: &Snapshot, find: &mut Finder<'_>) {
    for journal in journals(all) {
        let cursors = journal.cursors.iter();
        let readers = cursors.filter(|one| !one.is_follower && !one.name.starts_with("service."));
        for cursor in readers.filter(|cursor| cursor.lag_seconds > CURSOR_SECONDS) {
            let subject = format!("{} {}", journal.name, cursor.name);
            if find.moved(0, &subject, cursor.position as f64) == Some(0.0) {
                let words = format!(
                    "Cursor \"{}\" of journal \"{}\" does not move: {} records are unread, the first for {:.0} s.",
                    cursor.name, journal.name, cursor.lag_records, cursor.lag_seconds
                );
                find.found(("journal", &journal.name), Severity::Warning, words);
            }
        }
    }
}

fn silent(all: &Snapshot, find: &mut Finder<'_>) {
    let silent = all.journals.as_ref().map_or(0.0, |all| all.silent_seconds);
    if silent > SILENT_SECONDS {
        let words = format!("The journals were not looked at for {silent:.0} s.");
        find.found(("journals", "journals"), Severity::Critical, words);
    }
}
