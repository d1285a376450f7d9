//! `millstream top`: a running process in a terminal, from the server of its page; or what is on the disk.

mod remote;
mod sections;
mod snapshot;
mod view;
mod words;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

use self::remote::Remote;
use self::snapshot::Snapshot;
use crate::failure::Failure;
use crate::report;

/// The time between two snapshots, as the server makes them.
const INTERVAL: Duration = Duration::from_secs(1);

/// The options of `millstream top`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  millstream run FLOW.py --http 127.0.0.1:8080\n  millstream top 127.0.0.1:8080\n\nq or Ctrl-C ends it."
)]
pub(super) struct Args {
    /// The address of a page, like 127.0.0.1:8080 or `http://HOST:8080`; or a directory: a journal, the state of a flow, queues, or
    /// one that has such below it.
    #[arg(value_name = "URL|DIR")]
    of: String,
    /// A file with the token of the page.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the figures once and end, also where the output is no terminal.
    #[arg(long)]
    once: bool,
}

/// Shows a flow until the user ends it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let remote = Remote::new(&args.of, args.token_file.as_deref())?;
    // Before the terminal changes, so that an address without a flow is an ordinary error.
    let first = remote.snapshot().map_err(Failure::failed)?;
    if args.once {
        return report::print(&(), &text(&first), false);
    }
    if !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "the output is no terminal: --once prints the figures once",
        ));
    }
    let mut terminal = ratatui::try_init().map_err(Failure::failed)?;
    let outcome = follow(&mut terminal, &remote, first);
    ratatui::restore();
    outcome.map_err(Failure::failed)
}

/// The figures as text.
fn text(snapshot: &Snapshot) -> String {
    let sheets = snapshot.sheets();
    let mut parts: Vec<String> = sheets.iter().map(sections::Sheet::text).collect();
    if !snapshot.flow.is_empty() || parts.is_empty() {
        parts.insert(0, view::text(snapshot));
    }
    parts.join("\n\n")
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    remote: &Remote,
    first: Snapshot,
) -> std::io::Result<()> {
    let (mut shown, mut lost) = (first, None);
    loop {
        terminal.draw(|frame| match &shown.sheets()[..] {
            sheets if !sheets.is_empty() && shown.flow.is_empty() => {
                sections::draw(frame, sheets, lost.as_deref());
            }
            _ => view::draw(frame, &shown, lost.as_deref()),
        })?;
        if event::poll(INTERVAL)? {
            if let Event::Key(key) = event::read()?
                && ends(key)
            {
                return Ok(());
            }
            continue;
        }
        match remote.snapshot() {
            Ok(snapshot) => (shown, lost) = (snapshot, None),
            Err(error) => lost = Some(error),
        }
    }
}

fn ends(key: KeyEvent) -> bool {
    let interrupts =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}
