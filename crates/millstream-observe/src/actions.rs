//! What a reader with the token may ask for: of a flow its end, and a commit now; of a section what that offers.
//!
//! Each is a request to the run or the server that the page shows, which does it as for a signal, the end of an epoch,
//! or a client.

use millstream_flow::watch::Watch;
use millstream_http::pages::Page;
use serde_json::json;

use crate::snapshot::Snapshot;

/// The path before the name of an action.
pub(crate) const PATH: &str = "/api/actions/";
/// Ends the flow: its sources read no more, and the items in its steps are processed.
pub(crate) const STOP: &str = "stop";
/// Commits now instead of at the end of the epoch.
pub(crate) const COMMIT: &str = "commit";

/// Whether an action is one of a flow.
pub(crate) fn is_of_flow(name: &str) -> bool {
    [STOP, COMMIT].contains(&name)
}

/// Returns the actions that make sense for the flow of a snapshot.
pub(crate) fn possible(snapshot: &Snapshot) -> &'static [&'static str] {
    match snapshot.epochs {
        Some(_) => &[STOP, COMMIT],
        None => &[STOP],
    }
}

/// Asks the run for an action.
pub(crate) fn ask(name: &str, watch: Option<&Watch>) -> Page {
    let Some(watch) = watch else {
        return Page::conflict("no flow runs here");
    };
    let flow = watch.flow();
    match name {
        STOP => watch.stop(),
        _ if watch.commit_now() => {}
        _ => {
            return Page::conflict(
                "nothing is committed from here: the flow has no state directory, it ends, or process 0 commits",
            );
        }
    }
    tracing::info!(
        flow,
        action = name,
        "flow \"{flow}\": {name} was asked for on its page"
    );
    Page::new("application/json", json!({"asked": name}).to_string())
}
