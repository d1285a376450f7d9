//! A sync for every append: one appender, 64 of them, the machine's own rate in between, and what waking 64 threads
//! costs it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Error, Journal, Options, Sync};

use super::figures::{BODY, Fault, Figures};
use super::speed::per_second;
use crate::scratch::Scratch;

const TIME_NS: u64 = 700_000_000;
const THREADS: usize = 64;
const PLAIN_BYTES: u64 = 4 << 20;

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let machine = write_and_sync(folder)?;
    let one = append(folder, 1)?;
    let many = append(folder, THREADS)?;
    let woken = wake_and_sync(folder)?;
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
    figures.add(
        "64 threads woken after each fdatasync, against the plain file",
        woken / machine,
        "times",
        None,
    );
    Ok(())
}

/// What this machine can do: 64 bytes after each other into a preallocated file, each synced.
pub(super) fn write_and_sync(folder: &Path) -> Result<f64, Fault> {
    let scratch = Scratch::new(folder)?;
    let file = plain_file(&scratch)?;
    let start = monotonic_ns();
    let mut count = 0;
    while monotonic_ns() - start < TIME_NS {
        file.write_all_at(&BODY, count * 64 % PLAIN_BYTES)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(per_second(count, start))
}

/// A file whose blocks have been written before.
fn plain_file(scratch: &Scratch) -> Result<File, Fault> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(scratch.path().join("plain"))?;
    file.write_all_at(&vec![0; PLAIN_BYTES as usize], 0)?;
    file.sync_all()?;
    Ok(file)
}

/// What waking 64 sleeping threads takes: all bodies of a round are written and synced at once, then each thread is
/// woken, says that it is, and sleeps again. Counted as if each had appended. A group commit whose threads spin does
/// without that.
fn wake_and_sync(folder: &Path) -> Result<f64, Fault> {
    let scratch = Scratch::new(folder)?;
    let file = plain_file(&scratch)?;
    let bodies = BODY.repeat(THREADS);
    let round = AtomicU64::new(0);
    let woken = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let sleeper = || {
        let mut seen = 0;
        while !over.load(Ordering::SeqCst) {
            if round.load(Ordering::SeqCst) == seen {
                std::thread::park();
            } else {
                seen += 1;
                woken.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = (1..THREADS).map(|_| scope.spawn(sleeper)).collect();
        let wake_all = || {
            sleepers
                .iter()
                .for_each(|sleeper| sleeper.thread().unpark())
        };
        let start = monotonic_ns();
        let mut rounds = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() && monotonic_ns() - start < TIME_NS {
            let at = rounds * bodies.len() as u64 % PLAIN_BYTES;
            outcome = file
                .write_all_at(&bodies, at)
                .and_then(|()| file.sync_data());
            rounds += 1;
            round.store(rounds, Ordering::SeqCst);
            wake_all();
            while woken.load(Ordering::SeqCst) < rounds * sleepers.len() as u64 {
                std::thread::yield_now();
            }
        }
        let rate = per_second(rounds * THREADS as u64, start);
        over.store(true, Ordering::SeqCst);
        wake_all();
        outcome?;
        Ok(rate)
    })
}

fn append(folder: &Path, threads: usize) -> Result<f64, Fault> {
    let scratch = Scratch::new(folder)?;
    let options = Options::default().with_sync(Sync::Always);
    let journal = Journal::open(scratch.path(), options)?;
    let writer = journal.writer()?;
    writer.append(&BODY)?;
    let count = AtomicU64::new(0);
    let start = monotonic_ns();
    let work = || -> Result<(), Error> {
        while monotonic_ns() - start < TIME_NS {
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
