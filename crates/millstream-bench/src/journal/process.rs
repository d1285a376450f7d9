//! Several processes on one journal: one writes and one reads, or several write.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options, Reader, Wait};

use super::super::peers::Program;
use super::{BODY, Fault, Figures, Scratch, latency};

const RECORDS: u64 = 4_000_000;
/// How long a reader waits for a writer that does not come.
const LIMIT: Duration = Duration::from_secs(10);

/// What another process of a benchmark does.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Role {
    /// Append so many records, as fast as it goes.
    Write {
        /// The journal.
        dir: PathBuf,
        /// How many.
        count: u64,
    },
    /// Append records at moments that were fixed before, each with the moment at which it was due.
    Pace {
        /// The journal.
        dir: PathBuf,
        /// How many in a second.
        rate: u64,
        /// How many.
        count: u64,
    },
}

/// Be the other process: say that it is ready, wait for a line, work, tell from when to when.
///
/// # Errors
/// A journal that fails.
pub fn play(role: &Role) -> Result<(), Fault> {
    let (Role::Write { dir, .. } | Role::Pace { dir, .. }) = role;
    let writer = Journal::open(dir, Options::default())?.writer()?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let start = monotonic_ns();
    match role {
        Role::Write { count, .. } => {
            for _ in 0..*count {
                writer.append(&BODY)?;
            }
        }
        Role::Pace { rate, count, .. } => latency::pace(&writer, *rate, *count)?,
    }
    println!("{start} {}", monotonic_ns());
    Ok(())
}

/// A process that plays a role.
pub(super) struct Player {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Player {
    /// Start it and wait until it is ready.
    pub(super) fn start(role: &[&str], dir: &Path, numbers: &[u64]) -> Result<Self, Fault> {
        let mut args: Vec<String> = ["bench", "journal-peer"].map(String::from).into();
        args.extend(role.iter().map(|&word| word.to_owned()));
        args.push(dir.to_string_lossy().into_owned());
        args.extend(numbers.iter().map(u64::to_string));
        let mut child = Program::this()?
            .command(&args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a process without its pipes".into());
        };
        let mut player = Player {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        };
        match player.line()?.trim() {
            "ready" => Ok(player),
            other => Err(format!("the other process said {other:?}").into()),
        }
    }

    fn line(&mut self) -> Result<String, Fault> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        Ok(line)
    }

    /// Let it begin.
    pub(super) fn go(&mut self) -> Result<(), Fault> {
        Ok(self.stdin.write_all(b"go\n")?)
    }

    /// Wait for its end: from when to when it has worked.
    pub(super) fn end(mut self) -> Result<(u64, u64), Fault> {
        let line = self.line()?;
        let status = self.child.wait()?;
        let times = line.trim().split_once(' ');
        match times.and_then(|(start, end)| Some((start.parse().ok()?, end.parse().ok()?))) {
            Some(times) if status.success() => Ok(times),
            _ => Err(format!("the other process ended with {status} and {line:?}").into()),
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // A benchmark that fails half-way must not leave a process behind.
        if let Ok(None) = self.child.try_wait() {
            let _killed = self.child.kill();
            let _ended = self.child.wait();
        }
    }
}

pub(super) fn run(folder: &Path, figures: &mut Figures) -> Result<(), Fault> {
    let rate = append_and_tail(folder)?;
    figures.add(
        "append + tail in two processes, 64 B",
        rate / 1e6,
        "M/s",
        Some("8"),
    );
    let one = writers(folder, 1)?;
    let four = writers(folder, 4)?;
    figures.add(
        "append 64 B, one thread, in a process of its own",
        one / 1e6,
        "M/s",
        Some("15"),
    );
    figures.add(
        "four writer processes into one journal, 64 B",
        four / 1e6,
        "M/s",
        None,
    );
    figures.add(
        "four writer processes against one",
        four / one,
        "times",
        Some("0.5"),
    );
    Ok(())
}

/// Records a second, from the first to the last that the reader has seen.
fn append_and_tail(folder: &Path) -> Result<f64, Fault> {
    let scratch = Scratch::new(folder)?;
    let journal = Journal::open(scratch.path(), Options::default())?;
    let mut reader = journal.reader()?;
    let mut writer = Player::start(&["write"], scratch.path(), &[RECORDS])?;
    writer.go()?;
    wait(&mut reader)?;
    let start = monotonic_ns();
    let mut seen = 0;
    while seen < RECORDS {
        match reader.next()? {
            Some(record) => {
                if record.body != BODY {
                    return Err(
                        format!("record {} is not what was appended", record.sequence).into(),
                    );
                }
                seen += 1;
            }
            None => wait(&mut reader)?,
        }
    }
    let seconds = (monotonic_ns() - start) as f64 / 1e9;
    writer.end()?;
    Ok(RECORDS as f64 / seconds)
}

/// Wait for a record without ever sleeping.
pub(super) fn wait(reader: &mut Reader) -> Result<(), Fault> {
    match reader.wait(Wait::Spin, Some(LIMIT))? {
        true => Ok(()),
        false => Err("the other process has stopped appending".into()),
    }
}

/// Records a second of so many processes that append at the same time.
fn writers(folder: &Path, count: u64) -> Result<f64, Fault> {
    let scratch = Scratch::new(folder)?;
    let each = RECORDS / count;
    let mut players = Vec::new();
    for _ in 0..count {
        players.push(Player::start(&["write"], scratch.path(), &[each])?);
    }
    for player in &mut players {
        player.go()?;
    }
    let (mut first, mut last) = (u64::MAX, 0);
    for player in players {
        let (start, end) = player.end()?;
        first = first.min(start);
        last = last.max(end);
    }
    Ok((each * count) as f64 * 1e9 / (last - first) as f64)
}
