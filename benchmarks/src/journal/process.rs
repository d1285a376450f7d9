//! Several processes on one journal: one writes and one reads, or several write.

use std::path::Path;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Journal, Options};

use super::figures::{BODY, Fault, Figures};
use super::player::{Player, wait};
use crate::scratch::Scratch;

const RECORDS: u64 = 4_000_000;

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
    let mut first = u64::MAX;
    let mut last = 0;
    for player in players {
        let (start, end) = player.end()?;
        first = first.min(start);
        last = last.max(end);
    }
    Ok((each * count) as f64 * 1e9 / (last - first) as f64)
}
