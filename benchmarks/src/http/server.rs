//! The flow that is measured.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use millstream_flow::{Flow, FlowError, Options, Recovery, journals};
use millstream_http::{Body, listen};

/// How often a stop is noticed.
const LOOK: Duration = Duration::from_millis(20);

/// Runs the flow until it is stopped. It says on standard error where it listens.
///
/// # Errors
/// The flow fails.
pub fn serve(state: &Path, journal: &Path, sync: bool, stop: &AtomicBool) -> Result<(), FlowError> {
    let source = listen("127.0.0.1:0").body(Body::Json).on_bound(|address| {
        // Without a reader no process waits for the address.
        let _ = writeln!(std::io::stderr(), "listening on {address}");
    });
    let flow = Flow::new("bench");
    flow.source("requests", source)
        .sink("out", journals::append(journal));
    let running = flow.start(Options {
        recovery: Some(Recovery::new(state).sync(sync)),
        ..Options::default()
    })?;
    while !stop.load(Relaxed) && !running.ended_within(LOOK) {}
    running.stop();
    running.wait()?;
    Ok(())
}
