//! A flow that starts: it is shown from the beginning, with the processes that are missing and the server for which a
//! source waits.

use std::sync::Arc;
use std::time::Instant;

use millstream_flow::Options;
use millstream_flow::clock::{Clock, WallClock};
use millstream_flow::cluster::{Cluster, Missing};
use millstream_flow::starting::Starting;

use crate::processes::Shown;
use crate::snapshot::{Snapshot, State};

/// The number of missing processes that the sentence names.
const NAMED_MAX: usize = 5;

/// A flow that starts.
pub(crate) struct Expected {
    flow: String,
    run: String,
    cluster: Option<Arc<dyn Cluster>>,
    starting: Starting,
    started: Instant,
    clock: WallClock,
}

impl Expected {
    pub(crate) fn new(flow: String, options: &Options) -> Self {
        let clock = WallClock::default();
        Expected {
            flow,
            run: format!("start-{:x}-{:x}", clock.time_ns(), std::process::id()),
            cluster: options.cluster.clone(),
            starting: options.starting.clone(),
            started: crate::now(),
            clock,
        }
    }

    /// The flow as it starts; `None` if it has one process and waits for nothing.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let cluster = self.cluster.as_ref();
        let missing = cluster.map_or_else(Vec::new, |cluster| cluster.missing());
        let server = self.starting.waits_for();
        if cluster.is_none() && server.is_none() {
            return None;
        }
        Some(Snapshot {
            flow: self.flow.clone(),
            run: self.run.clone(),
            time_ms: (self.clock.time_ns() / 1_000_000).max(0) as u64,
            seconds: self.started.elapsed().as_secs_f64(),
            state: State::Starting,
            waiting: server
                .map(|server| format!("The start of the flow waits: {server}"))
                .or_else(|| sentence(&missing)),
            missing: missing.iter().map(|one| one.process).collect(),
            ..Snapshot::default()
        })
    }

    /// What is shown of the start: the metrics of this process, as in the run.
    pub(crate) fn shown(&self, snapshot: Snapshot) -> Shown {
        Shown {
            process: self.cluster.as_ref().map(|it| it.membership().process),
            ..Shown::alone(snapshot)
        }
    }
}

/// The processes that the flow waits for, in words.
fn sentence(missing: &[Missing]) -> Option<String> {
    let seconds = missing.first()?.waited.as_secs();
    let named = missing.iter().take(NAMED_MAX);
    let named: Vec<_> = named
        .map(|one| format!("process {} ({})", one.process, one.address))
        .collect();
    let more = match missing.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let reasons = missing.iter().filter_map(|one| {
        let reason = one.reason.as_ref()?;
        Some(format!("; process {}: {reason}", one.process))
    });
    let reason = reasons.take(1).collect::<String>();
    let named = named.join(", ");
    Some(format!(
        "The flow waits for {named}{more} for {seconds} s{reason}"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_sentence_names_the_missing_processes_and_why() {
        let one = |process, reason: Option<&str>| Missing {
            process,
            address: format!("n{process}:7700"),
            waited: Duration::from_millis(40_900),
            reason: reason.map(str::to_owned),
        };
        assert_eq!(sentence(&[]), None);
        let words = sentence(&[one(2, None)]);
        assert_eq!(
            words.unwrap(),
            "The flow waits for process 2 (n2:7700) for 40 s"
        );
        let words = sentence(&[one(1, None), one(2, Some("it is refused: another version"))]);
        assert_eq!(
            words.unwrap(),
            "The flow waits for process 1 (n1:7700), process 2 (n2:7700) for 40 s; process 2: it is refused: another version"
        );
        let many: Vec<_> = (1..9).map(|process| one(process, None)).collect();
        assert!(
            sentence(&many)
                .unwrap()
                .contains("process 5 (n5:7700) and 3 more for")
        );
    }
}
