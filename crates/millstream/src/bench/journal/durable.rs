//! A sync for every append: one appender, 64 of them, and the machine's own rate in between.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_flow::clock::now_ns;
use millstream_journal::{Error, Journal, Options, Sync};

use super::speed::per_second;
use super::{BODY, Fault, Figures, Scratch};

const TIME_NS: u64 = 700_000_000;
const THREADS: usize = 64;

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let machine = write_and_sync(folder)?;
    let one = append(folder, 1)?;
    let many = append(folder, THREADS)?;
    figures.add("pwrite 64 B + fdatasync, plain file", machine, "/s", None);
    figures.add("append, sync=always, one appender", one, "/s", None);
    figures.add(
        "append, sync=always, one appender, against the plain file",
        one / machine,
        "times",
        Some("0.8"),
    );
    figures.add("append, sync=always, 64 appenders", many, "/s", None);
    figures.add(
        "append, sync=always, 64 appenders, against the plain file",
        many / machine,
        "times",
        Some("20"),
    );
    Ok(())
}

/// What this machine can do: 64 bytes behind each other into a file that has its room already, each synced.
pub(super) fn write_and_sync(folder: &Path) -> Result<f64, Fault> {
    let scratch = Scratch::new(folder)?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(scratch.path().join("plain"))?;
    file.write_all_at(&vec![0; 4 << 20], 0)?;
    file.sync_all()?;
    let start = now_ns();
    let mut count = 0;
    while now_ns() - start < TIME_NS {
        file.write_all_at(&BODY, count * 64 % (4 << 20))?;
        file.sync_data()?;
        count += 1;
    }
    Ok(per_second(count, start))
}

fn append(folder: &Path, threads: usize) -> Result<f64, Fault> {
    let scratch = Scratch::new(folder)?;
    let options = Options::default().with_sync(Sync::Always);
    let journal = Journal::open(scratch.path(), options)?;
    let writer = journal.writer()?;
    writer.append(&BODY)?;
    let count = AtomicU64::new(0);
    let start = now_ns();
    let work = || -> Result<(), Error> {
        while now_ns() - start < TIME_NS {
            writer.append(&BODY)?;
            count.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let theirs = others.into_iter().map(|thread| thread.join());
        theirs
            .map(|ended| ended.unwrap_or(Ok(())))
            .fold(mine, Result::and)
    })?;
    Ok(per_second(count.into_inner(), start))
}
