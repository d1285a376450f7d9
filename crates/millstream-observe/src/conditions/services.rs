//! The conditions of services.

use super::condition::{Condition, EVENT_SECONDS, Finder};
use crate::sections::service_figures::{ServiceSnapshot, ServiceState};
use crate::snapshot::{Severity, Snapshot};

/// The time in which a supervisor starts.
const START_SECONDS: f64 = 3.0;
/// The seconds in one call from which a service is stuck.
const STUCK_SECONDS: u64 = 5;

/// The conditions, in the order of the guide.
pub(super) static SERVICES: &[Condition] = &[
    Condition {
        name: "MillstreamServiceDown",
        severity: "critical",
        after: "1m",
        summary: "A process of a system of services does not run.",
        action: "The sentence and `millstream service status` show why it died last. A process that has failed stays down: correct the cause, and apply the file again with `millstream service up`.",
        ends: "when it runs",
        is_obstacle: true,
        lasts: 0,
        look: down,
    },
    Condition {
        name: "MillstreamServiceRestarts",
        severity: "warning; critical from two in a minute",
        after: "0m",
        summary: "A process of a system of services has died, and was started again.",
        action: "The sentence has the last error. A component that fails on the same record fails again after each restart: correct it, or set the record aside with `on_error`.",
        ends: "5 minutes after the last restart",
        is_obstacle: false,
        lasts: EVENT_SECONDS,
        look: restarts,
    },
    Condition {
        name: "MillstreamServiceStuck",
        severity: "critical",
        after: "30s",
        summary: "A service has been inside one call for seconds: it takes no other input.",
        action: "The page has the stack of a Python component, and `py-spy dump` and `gdb` that of each thread. A call that waits needs a time limit; a service that calls slow external systems needs one for each input.",
        ends: "when the call ends",
        is_obstacle: false,
        lasts: 0,
        look: stuck,
    },
    Condition {
        name: "MillstreamServiceLags",
        severity: "critical",
        after: "5m",
        summary: "A service does not keep up with an input.",
        action: "Look at the rates of its methods on the page: it is too slow, or stuck in one call. A service that waits for followers lags too.",
        ends: "when it has caught up",
        is_obstacle: false,
        lasts: 0,
        look: lags,
    },
    Condition {
        name: "MillstreamServiceDeadLetters",
        severity: "warning",
        after: "0m",
        summary: "A service could not take records: they are dead letters, or skipped.",
        action: "The page shows the last ones with their errors. Correct the component or its caller.",
        ends: "5 minutes after the last one",
        is_obstacle: false,
        lasts: EVENT_SECONDS,
        look: skipped,
    },
    Condition {
        name: "MillstreamServicesUnknown",
        severity: "critical",
        after: "1m",
        summary: "Files of services cannot be read: those that the supervisor of a system writes, or a journal of a service.",
        action: "The sentence names the file and the reason. `millstream journal verify` finds where a journal is damaged; `millstream service up` writes the files of a system.",
        ends: "when they can be read",
        is_obstacle: true,
        lasts: 0,
        look: unknown,
    },
];

fn services(all: &Snapshot) -> impl Iterator<Item = &ServiceSnapshot> {
    all.services.iter().flat_map(|all| &all.services)
}

fn down(all: &Snapshot, find: &mut Finder<'_>) {
    let processes = all.services.iter().flat_map(|all| &all.processes);
    for one in processes.filter(|one| !one.is_running()) {
        let why = one.error.as_ref().map(|error| format!(": {error}"));
        let why = why.unwrap_or_else(|| ".".to_owned());
        let words = format!("Process \"{}\" is {}{why}", one.name, one.state);
        find.found(("part", &one.name), Severity::Critical, words);
    }
}

fn restarts(all: &Snapshot, find: &mut Finder<'_>) {
    for one in all.services.iter().flat_map(|all| &all.processes) {
        let grown = find.grown(0, &one.name, one.restarts);
        if grown.now > 0 {
            let severity = match grown.minute {
                2.. => Severity::Critical,
                _ => Severity::Warning,
            };
            let why = one.error.as_deref().unwrap_or("no error is known");
            let words = format!(
                "Process \"{}\" was started again {} times, at last because of: {why}",
                one.name, one.restarts
            );
            find.found(("part", &one.name), severity, words);
        }
    }
}

fn stuck(all: &Snapshot, find: &mut Finder<'_>) {
    for service in services(all) {
        let long = service
            .call
            .iter()
            .find(|call| call.seconds >= STUCK_SECONDS);
        if let Some(call) = long {
            let words = format!("Service \"{}\" has been inside {call}.", service.name);
            find.found(("service", &service.name), Severity::Critical, words);
        }
    }
}

fn lags(all: &Snapshot, find: &mut Finder<'_>) {
    for service in services(all).filter(|one| one.state == ServiceState::Lagging) {
        let inputs = service.inputs.iter();
        if let Some(slowest) =
            inputs.max_by(|one, other| one.lag_seconds.total_cmp(&other.lag_seconds))
        {
            let words = format!(
                "Service \"{}\" does not keep up with \"{}\": {} records wait, the first for {:.0} s.",
                service.name, slowest.name, slowest.lag_records, slowest.lag_seconds
            );
            find.found(("service", &service.name), Severity::Critical, words);
        }
    }
}

fn skipped(all: &Snapshot, find: &mut Finder<'_>) {
    for service in services(all) {
        let skipped = service.skipped;
        let dead = service.dead_letters;
        if find.grown(0, &service.name, skipped + dead).now > 0 {
            let words = format!(
                "Service \"{}\" has skipped {skipped} records and set {dead} aside as dead letters.",
                service.name
            );
            find.found(("service", &service.name), Severity::Warning, words);
        }
    }
}

fn unknown(all: &Snapshot, find: &mut Finder<'_>) {
    let error = all.services.as_ref().and_then(|all| all.error.clone());
    // The supervisor writes its files when it has started.
    if let Some(error) = error.filter(|_| all.seconds > START_SECONDS) {
        find.found(("services", "services"), Severity::Critical, error);
    }
    for service in services(all) {
        if let Some(error) = &service.error {
            let words = format!(
                "A journal of service \"{}\" cannot be read: {error}",
                service.name
            );
            find.found(("service", &service.name), Severity::Critical, words);
        }
    }
}
