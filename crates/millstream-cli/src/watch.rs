//! `millstream watch`: a page of journals, state directories and queues that are on the disk.

use std::path::PathBuf;
use std::time::Duration;

use millstream_observe::sections::journals::Journals;
use tracing::level_filters::LevelFilter;

use crate::failure::Failure;
use crate::journal::decode;
use crate::stop::Stop;
use crate::{log, page};

/// The address of the page without `--http`.
const ADDRESS: &str = "127.0.0.1:8080";
/// The time between two looks at the signals.
const PAUSE: Duration = Duration::from_millis(50);

/// The options of `millstream watch`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Nothing is changed, and no lock is taken: the processes that write do not notice it. The records are on the page too.

Example:
  millstream watch state/ queues/ orders")]
pub(super) struct Args {
    /// Directories: journals, state directories of flows, queues, or others that have such below them.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    page: page::PageOptions,
    #[command(flatten)]
    log: log::Logging,
}

/// Shows the directories until a signal comes.
pub(super) fn run(args: Args) -> Result<(), Failure> {
    args.log.begin(LevelFilter::INFO);
    let stop = Stop::on_signals()?;
    let journals = Journals::watch(roots(&args.dirs)?, true, Some(decode()));
    let observer = args.page.or_at(ADDRESS).bound()?;
    observer.show(journals.map_err(Failure::failed)?);
    while !stop.requested() {
        #[expect(clippy::disallowed_methods, reason = "the page has threads of its own")]
        std::thread::sleep(PAUSE);
    }
    observer.stop();
    Ok(())
}

/// The directories by the last parts of their paths.
///
/// # Errors
/// One that is not there.
pub(super) fn roots(dirs: &[PathBuf]) -> Result<Vec<(String, PathBuf)>, Failure> {
    let named = dirs.iter().map(|dir| {
        let named =
            |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", dir.display()));
        let path = dir.canonicalize().map_err(|error| named(&error))?;
        if !path.is_dir() {
            return Err(named(&"not a directory"));
        }
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        Ok((name.unwrap_or_else(|| "/".to_owned()), path))
    });
    let mut roots = named.collect::<Result<Vec<_>, Failure>>()?;
    // Two directories of one name have their whole paths as names.
    let names: Vec<String> = roots.iter().map(|(name, _)| name.clone()).collect();
    for (name, path) in &mut roots {
        if names.iter().filter(|other| *other == name).count() > 1 {
            *name = path.display().to_string();
        }
    }
    Ok(roots)
}
