//! `millstream top`: a running process in a terminal, from the server of its page; or what is on the disk.

mod remote;
mod screen;
mod section;
mod sections;
mod view;
mod words;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use millstream_observe::Snapshot;

use self::remote::Remote;
use self::screen::Screen;
use self::section::Section;
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
    /// The address of a page, like 127.0.0.1:8080 or `http://HOST:8080`; or a directory: a journal, the state of a
    /// flow, queues, or one that has such below it.
    #[arg(value_name = "URL|DIR")]
    of: String,
    /// A file with the token of the page.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print the figures once and end, as where the output is no terminal.
    #[arg(long)]
    once: bool,
}

/// Shows a flow until the user ends it.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let mut remote = Remote::new(&args.of, args.token_file.as_deref())?;
    // Before the terminal changes, so that an address without a flow is an ordinary error.
    let first = remote.snapshot().map_err(Failure::failed)?;
    if args.once || !std::io::stdout().is_terminal() {
        return report::print(&(), &text(&first), false);
    }
    follow(remote, first).map_err(Failure::failed)
}

/// What the process has: a flow, and what is besides it.
fn sections(snapshot: &Snapshot) -> Vec<Section> {
    let queues = snapshot
        .queues
        .iter()
        .map(|queues| sections::queues(queues, snapshot));
    let journals = snapshot
        .journals
        .iter()
        .map(|journals| sections::journals(journals, snapshot));
    let services = snapshot
        .services
        .iter()
        .map(|services| sections::services(services, snapshot));
    let mut sections: Vec<Section> = queues.chain(journals).chain(services).collect();
    if !snapshot.flow.is_empty() || sections.is_empty() {
        sections.insert(0, view::section(snapshot));
    }
    sections
}

/// The figures as text.
fn text(snapshot: &Snapshot) -> String {
    let parts: Vec<String> = sections(snapshot).iter().map(Section::text).collect();
    parts.join("\n\n")
}

fn follow(mut remote: Remote, first: Snapshot) -> std::io::Result<()> {
    let mut screen = Screen::open()?;
    let mut shown = sections(&first);
    let mut lost = None::<String>;
    loop {
        screen.draw(|(width, height)| {
            let share = (width, height / shown.len());
            let lines = shown.iter().map(|part| part.lines(lost.as_deref(), share));
            lines.flatten().collect()
        })?;
        match screen.ends_within(INTERVAL)? {
            Some(true) => return Ok(()),
            Some(false) => continue,
            None => {}
        }
        match remote.snapshot() {
            Ok(snapshot) => (shown, lost) = (sections(&snapshot), None),
            Err(error) => lost = Some(error),
        }
    }
}
