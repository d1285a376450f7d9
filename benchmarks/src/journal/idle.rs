//! What open journals cost while nothing is appended: descriptors, threads, and processor time, of [`COUNT`] journals
//! of one process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options, Sync, Writer};

use super::figures::{Fault, Figures};
use crate::scratch::Scratch;

const COUNT: u64 = 100;
const SEGMENT_BYTES: u64 = 64 << 10;
/// After this time nothing is left to do for the last record.
const SETTLE: Duration = Duration::from_secs(5);
/// How long processor time is counted.
const WATCHED: Duration = Duration::from_secs(5);

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let scratch = Scratch::new(folder)?;
    let options = Options::default().with_segment_bytes(SEGMENT_BYTES);
    let every = Sync::Every(Duration::from_millis(10));
    for (name, options) in [
        ("never", options.clone().with_sync(Sync::Never)),
        ("always", options.clone().with_sync(Sync::Always)),
        ("10ms", options.with_sync(every)),
        ("read only", Options::read_only()),
    ] {
        let before = Cost::now()?;
        let open = (0..COUNT).map(|number| open(scratch.path(), number, &options));
        let open = open.collect::<Result<Vec<_>, _>>()?;
        wait(SETTLE);
        let idle = Cost::now()?;
        wait(WATCHED);
        let busy_ns = Cost::now()?.busy_ns - idle.busy_ns;
        drop(open);
        // The last thread ends.
        wait(SETTLE);
        let row = |what: &str| format!("{COUNT} idle journals, {name}: {what}");
        let files = idle.files - before.files;
        let threads = idle.threads - before.threads;
        figures.add(&row("descriptors"), files, "", None);
        figures.add(&row("threads"), threads, "", None);
        let each_second = busy_ns / WATCHED.as_secs_f64() / 1e3;
        figures.add(&row("processor time"), each_second, "us/s", None);
    }
    Ok(())
}

/// Opens a journal, and appends a record if it may.
fn open(folder: &Path, number: u64, options: &Options) -> Result<(Journal, Option<Writer>), Fault> {
    let journal = Journal::open(folder.join(number.to_string()), options.clone())?;
    if options.read_only {
        return Ok((journal, None));
    }
    let writer = journal.writer()?;
    writer.append(b"the last one for a while")?;
    Ok((journal, Some(writer)))
}

/// What this process has and has used.
struct Cost {
    files: f64,
    threads: f64,
    busy_ns: f64,
}

impl Cost {
    fn now() -> Result<Self, Fault> {
        let count = |what: &str| Ok::<_, Fault>(fs::read_dir(what)?.count() as f64);
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Ok(Cost {
            files: count("/proc/self/fd")?,
            threads: count("/proc/self/task")?,
            busy_ns: time.tv_sec as f64 * 1e9 + time.tv_nsec as f64,
        })
    }
}

/// Does nothing for a time.
fn wait(time: Duration) {
    let until = monotonic_ns() + time.as_nanos() as u64;
    while monotonic_ns() < until {
        std::thread::park_timeout(time);
    }
}
