//! `millstream queue stats`: the numbers of a server, or of one queue.

use std::collections::BTreeMap;

use super::client::{Client, ServerArgs, queue_name};
use crate::failure::Failure;
use crate::report;

/// The options of `millstream queue stats`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  millstream queue stats jobs --json")]
pub(super) struct Args {
    /// Only this queue.
    #[arg(value_parser = queue_name)]
    queue: Option<String>,
    /// Report as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
}

/// Tell.
pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let request = match &args.queue {
        Some(queue) => format!("stats {queue}\r\n"),
        None => "stats\r\n".to_owned(),
    };
    let stats = Client::connect(&args.server)?.stats(&request)?;
    if let (Some(queue), true) = (&args.queue, stats.is_empty()) {
        return Err(Failure::failed(format!("there is no queue \"{queue}\"")));
    }
    let text: Vec<String> = stats
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let values: BTreeMap<&str, serde_json::Value> = stats
        .iter()
        .map(|(name, value)| (name.as_str(), number_or_text(value)))
        .collect();
    report::print(&values, &text.join("\n"), args.json)
}

fn number_or_text(value: &str) -> serde_json::Value {
    value
        .parse::<u64>()
        .map_or_else(|_| value.into(), Into::into)
}
