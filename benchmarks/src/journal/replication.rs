//! A journal and its copy: leader and follower are processes of their own, on this machine, and speak over loopback.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hdrhistogram::Histogram;
use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Error, Journal, Options, Reader, Wait, Writer};

use super::figures::{BODY, Fault, Figures};
use crate::program::{Program, Receiver};
use crate::programs;
use crate::scratch::Scratch;
use millstream_replication::Followers;

const RECORDS: u64 = 2_000_000;
/// Of the records whose way is measured.
const RATE: u64 = 10_000;
const PACED: u64 = 20_000;
/// Of the records that are waited for one by one.
const WAITED: u64 = 2_000;
/// How long another process may take to do anything.
const LIMIT: Duration = Duration::from_secs(30);

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let scratch = Scratch::new(folder)?;
    let pair = Pair::new(&scratch)?;
    figures.add(
        "copy of 2 M records of 64 B, sync=never",
        pair.catch_up("never")? / 1e6,
        "M/s",
        None,
    );
    figures.add(
        "the same, sync=always",
        pair.catch_up("always")? / 1e6,
        "M/s",
        None,
    );
    let lag = pair.lag()?;
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let name = format!("from append to a tail of the copy, 10 k/s, {name}");
        figures.add(
            &name,
            lag.value_at_quantile(quantile) as f64 / 1e3,
            "us",
            None,
        );
    }
    for sync in ["never", "always"] {
        let name = format!("append + wait for a follower, sync={sync}, p50");
        let us = pair.waiting(sync)?.value_at_quantile(0.5) as f64 / 1e3;
        figures.add(&name, us, "us", None);
    }
    pair.leader.stop()?;
    Ok(())
}

/// A journal, its leader, and where a copy may be.
struct Pair {
    program: Program,
    journal: Journal,
    writer: Writer,
    leader: Receiver,
    copy: PathBuf,
}

/// A follower that runs until this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It is ours alone, and nothing of the copy is needed any more.
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

impl Pair {
    fn new(scratch: &Scratch) -> Result<Self, Fault> {
        let orders = scratch.path().join("orders");
        let journal = Journal::open(&orders, Options::default())?;
        let writer = journal.writer()?;
        for _ in 0..RECORDS / 1_000 {
            writer.append_many([BODY; 1_000])?;
        }
        let program = programs::millstream()?;
        let args = ["journal", "serve", "--listen", "127.0.0.1:0"].map(String::from);
        let dir = orders.to_string_lossy().into_owned();
        let leader = program.listening(&[&args[..], &[dir]].concat())?;
        Ok(Pair {
            copy: scratch.path().join("copy"),
            program,
            journal,
            writer,
            leader,
        })
    }

    fn follower(&self, sync: &str, more: &[&str]) -> Command {
        let copy = self.copy.to_string_lossy();
        let args = [
            "journal",
            "follow",
            &self.leader.address,
            &copy,
            "--sync",
            sync,
        ];
        let args: Vec<String> = args.iter().chain(more).map(|&arg| arg.to_owned()).collect();
        let mut command = self.program.command(&args);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Records a second, from the start of a follower's process to its end.
    fn catch_up(&self, sync: &str) -> Result<f64, Fault> {
        let count = self.journal.next()? - self.journal.first()?;
        let start = monotonic_ns();
        let status = self.follower(sync, &["--once"]).status()?;
        let seconds = (monotonic_ns() - start) as f64 / 1e9;
        if !status.success() {
            return Err(format!("the follower ended with {status}").into());
        }
        self.forget_copy()?;
        Ok(count as f64 / seconds)
    }

    /// The next copy is that of a follower that is new, and counts.
    fn forget_copy(&self) -> Result<(), Fault> {
        std::fs::remove_dir_all(&self.copy)?;
        let start = monotonic_ns();
        let followers = Followers::of(&self.journal);
        for follower in followers.list()? {
            while let Err(error) = followers.forget(&follower.name) {
                // The leader has not noticed the end of the connection yet.
                if monotonic_ns() - start > LIMIT.as_nanos() as u64 {
                    return Err(error.into());
                }
                sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// A follower that has all, and a reader at the end of its copy.
    fn live(&self, sync: &str) -> Result<(Running, Reader), Fault> {
        let running = Running(self.follower(sync, &[]).spawn()?);
        let start = monotonic_ns();
        let next = self.journal.next()?;
        let copied = || Journal::open(&self.copy, Options::read_only())?.next();
        while !copied().is_ok_and(|copied| copied == next) {
            if monotonic_ns() - start > LIMIT.as_nanos() as u64 {
                return Err("the follower does not follow".into());
            }
            sleep(Duration::from_millis(1));
        }
        // Opened to be woken by appends.
        let options = Options {
            create: false,
            ..Options::default()
        };
        let mut reader = Journal::open(&self.copy, options)?.reader()?;
        reader.seek(next)?;
        Ok((running, reader))
    }

    /// How long a record takes from its append to a reader of the copy, in ns. Neither end spins.
    fn lag(&self) -> Result<Histogram<u64>, Fault> {
        let (running, mut reader) = self.live("never")?;
        let mut histogram = Histogram::<u64>::new(3)?;
        std::thread::scope(|scope| {
            let pacing = scope.spawn(|| self.pace());
            let mut due = [0; 8];
            while histogram.len() < PACED {
                if !reader.wait(Wait::Block, Some(LIMIT))? {
                    return Err("the copy does not grow".into());
                }
                while let Some(record) = reader.next()? {
                    due.copy_from_slice(&record.body[..8]);
                    histogram.record(monotonic_ns().saturating_sub(u64::from_le_bytes(due)))?;
                }
            }
            pacing.join().map_err(|_| "the writer has failed")??;
            Ok::<(), Fault>(())
        })?;
        drop(running);
        self.forget_copy()?;
        Ok(histogram)
    }

    /// Append on schedule, each record with the moment of its append.
    fn pace(&self) -> Result<(), Error> {
        let start = monotonic_ns();
        let mut body = BODY;
        for index in 0..PACED {
            let due = start + index * 1_000_000_000 / RATE;
            let now = monotonic_ns();
            if now < due {
                sleep(Duration::from_nanos(due - now));
            }
            body[..8].copy_from_slice(&monotonic_ns().to_le_bytes());
            self.writer.append(&body)?;
        }
        Ok(())
    }

    /// How long it takes to append a record and to wait until a follower has acknowledged it, in ns.
    fn waiting(&self, sync: &str) -> Result<Histogram<u64>, Fault> {
        let (running, _reader) = self.live(sync)?;
        let mut followers = Followers::of(&self.journal);
        let mut histogram = Histogram::<u64>::new(3)?;
        for _ in 0..WAITED {
            let start = monotonic_ns();
            let sequence = self.writer.append(&BODY)?;
            followers.wait(sequence, 1, Some(LIMIT))?;
            histogram.record(monotonic_ns() - start)?;
        }
        drop(running);
        self.forget_copy()?;
        Ok(histogram)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the schedule is the load, and other processes do the work"
)]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}
