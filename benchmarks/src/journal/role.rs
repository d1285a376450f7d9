//! The roles of the other process of a journal benchmark.

use std::path::PathBuf;

use millstream_journal::clock::monotonic_ns;
use millstream_journal::{Error, Journal, Options, Writer};

use super::figures::{BODY, Fault};

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

/// Runs the role: prints `ready`, waits for a line, works, and prints the start and the end of the work.
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
        Role::Pace { rate, count, .. } => pace(&writer, *rate, *count)?,
    }
    println!("{start} {}", monotonic_ns());
    Ok(())
}

/// Append `count` records on schedule; never sleeps.
fn pace(writer: &Writer, rate: u64, count: u64) -> Result<(), Error> {
    let start = monotonic_ns() + 1_000_000;
    let mut body = BODY;
    for index in 0..count {
        let due = start + index * 1_000_000_000 / rate;
        while monotonic_ns() < due {
            std::hint::spin_loop();
        }
        body[..8].copy_from_slice(&due.to_le_bytes());
        writer.append(&body)?;
    }
    Ok(())
}
