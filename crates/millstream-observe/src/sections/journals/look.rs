//! One look at one journal, and what is remembered until the next.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use millstream_journal::{Journal, Options, Reader, chain};

use super::discover::Place;
use super::writers::Locks;
use crate::sections::journal_figures::{
    CURSORS_MAX, CursorSnapshot, JournalKind, JournalSnapshot, JournalState,
};

/// The time after which a follower that has not acknowledged a record is reported.
const FOLLOWER_SECONDS: f64 = 5.0;

/// What is remembered of a journal.
#[derive(Default)]
pub(super) struct Look {
    before: Option<Before>,
    #[cfg(feature = "queues")]
    depth: super::queue_depth::QueueDepth,
}

/// The end of a journal at the last look.
struct Before {
    at: Instant,
    next: u64,
    segment: String,
    offset: u64,
}

/// The segments of a journal and their sizes, and what they take on the disk.
#[derive(Default)]
struct Files {
    segments: BTreeMap<String, u64>,
    disk_bytes: u64,
}

impl Look {
    /// Looks at a journal. One that cannot be read says why.
    pub(super) fn at(&mut self, place: &Place, locks: &Locks) -> JournalSnapshot {
        let mut snapshot = JournalSnapshot {
            name: place.name.clone(),
            path: place.path.display().to_string(),
            kind: place.kind,
            writers: locks.writers(&place.path),
            ..JournalSnapshot::default()
        };
        if let Err(error) = self.read(place, &mut snapshot) {
            snapshot.state = JournalState::Unreadable;
            snapshot.error = Some(chain(&error).to_string());
        }
        snapshot
    }

    fn read(
        &mut self,
        place: &Place,
        snapshot: &mut JournalSnapshot,
    ) -> Result<(), millstream_journal::Error> {
        let now = crate::now();
        let files = files(&place.path);
        let journal = Journal::open(&place.path, Options::read_only())?;
        snapshot.segments = files.segments.len() as u64;
        snapshot.disk_bytes = files.disk_bytes;
        snapshot.first = journal.first()?;
        snapshot.next = journal.next()?;
        snapshot.durable = journal.durable();
        let leadership = journal.leadership()?;
        snapshot.term = leadership.term;
        snapshot.superseded_by = leadership.superseded_by;
        let time_ns = millstream_journal::clock::wall_ns();
        let mut reader = journal.reader()?;
        let mut end = Before {
            at: now,
            next: snapshot.next,
            segment: String::new(),
            offset: 0,
        };
        if snapshot.next > snapshot.first {
            reader.seek(snapshot.next - 1)?;
            if let Some(last) = reader.next_pinned()? {
                snapshot.age_seconds = Some(seconds(time_ns, last.time_ns()));
                (end.segment, end.offset) = (last.file(), last.offset());
            }
        }
        if let Some(before) = &self.before {
            let elapsed = (now - before.at).as_secs_f64().max(1e-3);
            snapshot.record_rate = end.next.saturating_sub(before.next) as f64 / elapsed;
            snapshot.byte_rate = appended(before, &end, &files) as f64 / elapsed;
        }
        self.before = Some(end);
        self.cursors(&journal, &mut reader, time_ns, snapshot)?;
        snapshot.state = state(snapshot);
        #[cfg(feature = "queues")]
        if place.kind == JournalKind::Queue {
            let (items, oldest_ms) = self.depth.follow(&mut reader, snapshot.first)?;
            snapshot.items = items;
            snapshot.oldest_seconds =
                oldest_ms.map(|ms| seconds(time_ns, ms.saturating_mul(1_000_000)));
        }
        Ok(())
    }

    fn cursors(
        &self,
        journal: &Journal,
        reader: &mut Reader,
        time_ns: u64,
        snapshot: &mut JournalSnapshot,
    ) -> Result<(), millstream_journal::Error> {
        let mut cursors = journal.cursors()?;
        cursors.sort_by_key(|cursor| cursor.position);
        for cursor in cursors {
            let follower = cursor.follower();
            let lag_records = snapshot.next.saturating_sub(cursor.position);
            let most = match follower {
                Some(_) => &mut snapshot.follower_lag,
                None => &mut snapshot.cursor_lag,
            };
            *most = (*most).max(Some(lag_records));
            if snapshot.cursors.len() >= CURSORS_MAX {
                continue;
            }
            // A record that is pruned meanwhile has no age.
            let first = cursor.position.max(snapshot.first);
            let mut lag_seconds = 0.0;
            if lag_records > 0
                && reader.seek(first).is_ok()
                && let Ok(Some(at_ns)) = reader.peek_time()
            {
                lag_seconds = seconds(time_ns, at_ns);
            }
            snapshot.cursors.push(CursorSnapshot {
                name: follower.unwrap_or(&cursor.name).to_owned(),
                is_follower: follower.is_some(),
                counts: cursor.counts(),
                position: cursor.position,
                lag_records,
                lag_seconds,
            });
        }
        Ok(())
    }
}

fn state(journal: &JournalSnapshot) -> JournalState {
    let mut followers = journal.cursors.iter().filter(|cursor| cursor.is_follower);
    if followers.any(|follower| follower.lag_seconds >= FOLLOWER_SECONDS) {
        return JournalState::Lagging;
    }
    match journal.superseded_by {
        Some(_) => JournalState::Superseded,
        None => JournalState::Good,
    }
}

fn seconds(now_ns: u64, then_ns: u64) -> f64 {
    now_ns.saturating_sub(then_ns) as f64 / 1e9
}

/// The bytes between two ends. A segment that was pruned meanwhile counts as large as the last one.
fn appended(before: &Before, end: &Before, files: &Files) -> u64 {
    if end.next <= before.next {
        return 0;
    }
    if before.segment == end.segment {
        return end.offset.saturating_sub(before.offset);
    }
    let size = |name: &str| files.segments.get(name).copied();
    let last = size(&end.segment).unwrap_or(0);
    let rest = size(&before.segment).unwrap_or(last);
    let rest = rest.saturating_sub(before.offset);
    let range = before.segment.clone()..end.segment.clone();
    let between = files.segments.range(range);
    let between = between.filter(|(name, _)| **name != before.segment);
    end.offset + rest + between.map(|(_, bytes)| *bytes).sum::<u64>()
}

fn files(path: &Path) -> Files {
    let mut files = Files::default();
    let Ok(entries) = fs::read_dir(path) else {
        return files;
    };
    for entry in entries.flatten() {
        let Ok(found) = entry.metadata() else {
            continue;
        };
        files.disk_bytes += found.blocks() * 512;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("segment-") {
            files.segments.insert(name, found.len());
        }
    }
    files
}
