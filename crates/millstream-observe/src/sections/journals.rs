//! Journals, state directories and queues on the disk, of any process: what is watched needs not be instrumented.
//!
//! A thread of its own looks at them once a second. It only reads: it takes no lock, and stores nothing, so that a
//! running writer does not notice it.

mod discover;
mod look;
#[cfg(feature = "queues")]
mod queue_depth;
mod records;
mod writers;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millstream_http::pages::{Page, PageRequest};

use self::discover::discover;
use self::look::Look;
pub use self::records::Decode;
use super::journal_figures::{JOURNALS_MAX, JournalSnapshot, JournalsSnapshot};
use super::tracks::Tracks;
use super::{Section, json};
use crate::error::ObserveError;
use crate::lock;
use crate::snapshot::Snapshot;

/// The time between two looks.
const EVERY: Duration = Duration::from_secs(1);
/// How many times as long as a look the pause after it is, at least: many journals are looked at less often.
const PAUSE_SHARE: u32 = 4;
/// The number of looks after which directories are searched for new journals.
const LOOKS_A_SEARCH: u64 = 5;

/// The section of journals on the disk. Its thread ends when it is dropped.
///
/// ```
/// use millstream_observe::sections::journals::Journals;
///
/// let observer = millstream_observe::http("127.0.0.1:0").bind()?;
/// observer.show(Journals::watch(vec![("orders".to_owned(), "/data/orders".into())], true, None)?);
/// # Ok::<(), millstream_observe::ObserveError>(())
/// ```
pub struct Journals {
    shared: Arc<Shared>,
    shows_records: bool,
    decode: Option<Decode>,
    history: Mutex<Tracks<5>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the readers share.
#[derive(Default)]
struct Shared {
    newest: Mutex<Arc<Newest>>,
    progress: Mutex<Progress>,
    stops: Mutex<bool>,
    stopped: Condvar,
}

/// What the thread has seen last.
#[derive(Default)]
struct Newest {
    journals: Vec<JournalSnapshot>,
    /// The number of complete looks.
    number: u64,
}

/// What the thread does.
#[derive(Clone, Copy)]
struct Progress {
    /// The journals of this look that were read, and their number.
    read: usize,
    found: usize,
    /// When a journal was read last, or the next look is due.
    at: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Progress {
            read: 0,
            found: 0,
            at: crate::now(),
        }
    }
}

impl Drop for Journals {
    fn drop(&mut self) {
        *lock(&self.shared.stops) = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl Journals {
    /// Watches the journals in these directories and below, by their names. `shows_records`: whether readers of the
    /// page may see the contents of records; `decode` shows them as more than bytes.
    ///
    /// # Errors
    /// [`ObserveError::Bind`]: the thread cannot be started.
    pub fn watch(
        roots: Vec<(String, PathBuf)>,
        shows_records: bool,
        decode: Option<Decode>,
    ) -> Result<Self, ObserveError> {
        let shared = Arc::new(Shared::default());
        let for_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("journals".to_owned())
            .spawn(move || for_thread.run(&roots))
            .map_err(|error| ObserveError::Bind(error.into()))?;
        Ok(Journals {
            shared,
            shows_records,
            decode,
            history: Mutex::new(Tracks::new([
                "record_rate",
                "byte_rate",
                "cursor_lag",
                "follower_lag",
                "not_durable",
            ])),
            thread: Some(thread),
        })
    }

    fn newest(&self) -> Arc<Newest> {
        Arc::clone(&lock(&self.shared.newest))
    }

    /// The journals whose names contain `search`, from the first or from a later one.
    fn found(&self, request: &PageRequest<'_>) -> Page {
        let search = request.parameter("search").unwrap_or_default();
        let from = request.parameter("from").and_then(|from| from.parse().ok());
        let newest = self.newest();
        let found = || {
            let all = newest.journals.iter();
            all.filter(|journal| journal.name.contains(&search))
        };
        let shown: Vec<_> = found().skip(from.unwrap_or(0)).take(JOURNALS_MAX).collect();
        json(&serde_json::json!({"count": found().count(), "journals": shown}))
    }
}

impl Shared {
    /// The thread: looks at all journals once a second, until it is stopped.
    fn run(&self, roots: &[(String, PathBuf)]) {
        let mut looks: HashMap<PathBuf, Look> = HashMap::new();
        let mut places = Vec::new();
        let mut number = 0;
        loop {
            if number % LOOKS_A_SEARCH == 0 {
                places = discover(roots);
                looks.retain(|path, _| places.iter().any(|place| place.path == *path));
            }
            let begin = crate::now();
            let locks = writers::locks();
            let mut journals = Vec::with_capacity(places.len());
            let mut shown = begin;
            for (read, place) in places.iter().enumerate() {
                let at = crate::now();
                let found = places.len();
                *lock(&self.progress) = Progress { read, found, at };
                // What the first look has found is shown before its end.
                if number == 0 && at - shown >= EVERY {
                    shown = at;
                    self.show(journals.clone(), 0);
                }
                let look = looks.entry(place.path.clone()).or_default();
                journals.push(look.at(place, &locks));
                if *lock(&self.stops) {
                    return;
                }
            }
            number += 1;
            self.show(journals, number);
            let pause = EVERY.max(begin.elapsed() * PAUSE_SHARE);
            *lock(&self.progress) = Progress {
                read: places.len(),
                found: places.len(),
                at: crate::now() + pause,
            };
            let stops = lock(&self.stops);
            let waited = self
                .stopped
                .wait_timeout_while(stops, pause, |stops| !*stops)
                .unwrap_or_else(PoisonError::into_inner);
            if *waited.0 {
                return;
            }
        }
    }
}

impl Shared {
    /// Shows journals, by name.
    fn show(&self, mut journals: Vec<JournalSnapshot>, number: u64) {
        journals.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        *lock(&self.newest) = Arc::new(Newest { journals, number });
    }
}

impl Section for Journals {
    fn add(&self, snapshot: &mut Snapshot) {
        let newest = self.newest();
        let shown = most_urgent(&newest.journals);
        let values = |journal: &JournalSnapshot| {
            [
                journal.record_rate as f32,
                journal.byte_rate as f32,
                journal.cursor_lag.map_or(f32::NAN, |lag| lag as f32),
                journal.follower_lag.map_or(f32::NAN, |lag| lag as f32),
                journal.next.saturating_sub(journal.durable) as f32,
            ]
        };
        let tracks = shown
            .iter()
            .map(|journal| (journal.name.as_str(), values(journal)));
        lock(&self.history).add(snapshot.time_ms, tracks);
        let all = &newest.journals;
        let progress = *lock(&self.shared.progress);
        snapshot.journals = Some(JournalsSnapshot {
            count: all.len(),
            unlabelled: all.len() - shown.len(),
            record_rate: all.iter().map(|journal| journal.record_rate).sum(),
            byte_rate: all.iter().map(|journal| journal.byte_rate).sum(),
            disk_bytes: all.iter().map(|journal| journal.disk_bytes).sum(),
            silent_seconds: progress.at.elapsed().as_secs_f64(),
            read: (newest.number == 0).then_some(progress.read),
            found: progress.found,
            journals: shown,
        });
    }

    fn answer(&self, request: &PageRequest<'_>) -> Option<Page> {
        match request.path() {
            "/api/journals.json" => Some(self.found(request)),
            "/api/records.json" if self.shows_records => {
                let name = request.parameter("journal")?;
                let newest = self.newest();
                let journal = newest.journals.iter().find(|one| one.name == name)?;
                Some(records::page(journal, request, self.decode.as_ref()))
            }
            "/api/history.json" if request.parameter("of")? == "journal" => {
                let name = request.parameter("name").unwrap_or_default();
                Some(json(&lock(&self.history).of(&name)))
            }
            _ => None,
        }
    }

    fn obstacle(&self) -> Option<String> {
        let Progress { read, found, .. } = *lock(&self.shared.progress);
        let is_first = self.newest().number == 0;
        is_first.then(|| format!("{read} of {found} journals were read"))
    }
}

/// The journals to show: those that need attention, then the busiest, at most 100, by name.
fn most_urgent(journals: &[JournalSnapshot]) -> Vec<JournalSnapshot> {
    let mut urgent: Vec<&JournalSnapshot> = journals.iter().collect();
    if urgent.len() > JOURNALS_MAX {
        urgent.sort_by(|one, other| {
            let by_state = other.state.cmp(&one.state);
            by_state.then(other.next.cmp(&one.next))
        });
        urgent.truncate(JOURNALS_MAX);
        urgent.sort_by(|one, other| one.name.cmp(&other.name));
    }
    urgent.into_iter().cloned().collect()
}
