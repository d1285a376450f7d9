//! The log of verbs that serve: lines on standard error.

use tracing::level_filters::LevelFilter;

/// Log to standard error from now on, each connection that ends early too with `verbose`.
pub(super) fn to_stderr(verbose: bool) {
    let level = if verbose {
        LevelFilter::DEBUG
    } else {
        LevelFilter::INFO
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_writer(std::io::stderr);
    // In a test that has one already, the log goes there.
    let _ = log.try_init();
}
