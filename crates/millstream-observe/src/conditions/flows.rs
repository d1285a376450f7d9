//! The conditions of flows and their processes.

use super::condition::{Condition, EVENT_SECONDS, Finder};
use crate::snapshot::{
    Limit, PartitionSnapshot, Severity, Snapshot, SourceSnapshot, State, StepSnapshot,
};

/// The share of a step's items from which skipped or late ones are critical.
const SHARE_CRITICAL: f64 = 0.1;
/// The share of a step's items from which late ones are reported.
const SHARE_LATE: f64 = 0.01;
/// The seconds in one turn of a step from which a worker is stuck.
const STUCK_SECONDS: f64 = 30.0;
/// The number of epochs without an end, and the least seconds, after which a commit is late; and when that is critical.
const EPOCHS_LATE: f64 = 3.0;
const LATE_SECONDS: (f64, f64) = (3.0, 60.0);
/// The seconds of lag of a source, and of a record in an outbox, from which they are reported.
const LAG_SECONDS: f64 = 60.0;
/// The largest difference between the watermarks of the partitions of a source that is not reported, in seconds.
const WATERMARKS_SECONDS: f64 = 300.0;
/// By how many seconds a watermark has grown older in the last 30 to 60 s if it stands still.
const STANDS_STILL: f64 = 25.0;
/// By how many seconds a watermark has grown in that time if it advances.
const ADVANCES: f64 = 0.01;
/// The number of skipped items of a minute from which they are critical.
const SKIPPED_CRITICAL: u64 = 10;
/// The time in which restarts are counted, and their number from which they are critical.
const RESTARTS: (u64, usize) = (15 * 60_000, 3);
/// The seconds after which a flow that waits for another process or a server is reported, and one that still starts.
const WAIT_SECONDS: f64 = 3.0;
const START_SECONDS: f64 = 60.0;

/// The conditions, in the order of the guide.
pub(super) static FLOWS: &[Condition] = &[
    Condition {
        name: "MillstreamFlowDown",
        severity: "critical",
        after: "2m",
        summary: "The flow does not run: it has failed, or waits for another process or a connector.",
        action: "If it has failed, correct the cause that the sentence names, and start it again. If it waits, start the process or the server that the sentence names, or repair its address, certificate or version: the log of process 0 has why a process is refused.",
        ends: "when the flow reads its sources",
        is_obstacle: true,
        lasts: 0,
        look: flow_down,
    },
    Condition {
        name: "MillstreamFlowRestarts",
        severity: "warning; critical from three",
        after: "0m",
        summary: "The supervisor has started the flow again in the last 15 minutes.",
        action: "Read the last error in the log of the process: a step that fails on the same item fails again after each restart. Skip the item with `on_error`, or correct the step.",
        ends: "15 minutes after the restart",
        is_obstacle: false,
        lasts: 0,
        look: restarts,
    },
    Condition {
        name: "MillstreamProcessLost",
        severity: "critical",
        after: "15s",
        summary: "A process of the flow has sent no news for seconds.",
        action: "Look at that process and its machine: it is stopped, overloaded, or disconnected.",
        ends: "with its next news",
        is_obstacle: false,
        lasts: 0,
        look: processes,
    },
    Condition {
        name: "MillstreamStepSaturated",
        severity: "warning",
        after: "10m",
        summary: "One step takes all the time of a worker: it limits the flow.",
        action: "Open the page and look at the coloured step. Add workers if it is keyed and the load is even; otherwise make the step cheaper, or call external systems with `map_async`.",
        ends: "when the worker has had time for 10 s",
        is_obstacle: false,
        lasts: 10,
        look: saturated,
    },
    Condition {
        name: "MillstreamItemsSkipped",
        severity: "warning; critical from one item in ten",
        after: "0m",
        summary: "A step or sink has skipped items, or written them as dead letters.",
        action: "The page and the log have the last errors. Correct the step or the data, and send the items again.",
        ends: "5 minutes after the last one",
        is_obstacle: false,
        lasts: EVENT_SECONDS,
        look: skipped,
    },
    Condition {
        name: "MillstreamItemsLate",
        severity: "warning; critical from one item in ten",
        after: "0m",
        summary: "More than one item in 100 of the last minute came too late, and was dropped.",
        action: "Give the stream `late` of the result a sink, raise `lateness` of `event_time`, or find out which partition sends old items.",
        ends: "5 minutes after the last such minute",
        is_obstacle: false,
        lasts: EVENT_SECONDS,
        look: late,
    },
    Condition {
        name: "MillstreamInputFaults",
        severity: "warning",
        after: "0m",
        summary: "A source has closed connections or inputs because of invalid data, or has failed and begun again.",
        action: "The log names the peer or the file, and what is wrong with its data.",
        ends: "5 minutes after the last one",
        is_obstacle: false,
        lasts: EVENT_SECONDS,
        look: faults,
    },
    Condition {
        name: "MillstreamWorkerStuck",
        severity: "critical",
        after: "30s",
        summary: "A worker has been inside one call of a step, or a batch of slow ones, for half a minute.",
        action: "The page has the stack of a Python function, and `py-spy dump` and `gdb` that of each thread. A call that waits needs a time limit; slow calls of external systems run beside each other in `map_async`.",
        ends: "when the call or the batch ends",
        is_obstacle: false,
        lasts: 0,
        look: stuck,
    },
    Condition {
        name: "MillstreamSourceLagGrows",
        severity: "warning",
        after: "10m",
        summary: "A source is more than a minute after its input, by times or by its present rate, and the lag has grown in the last minute.",
        action: "Open the page: if a step is coloured, it limits the flow. If none is, the source itself is slow or waits for its server.",
        ends: "when the lag falls",
        is_obstacle: false,
        lasts: 0,
        look: lag,
    },
    Condition {
        name: "MillstreamWatermarkHeldBack",
        severity: "warning",
        after: "10m",
        summary: "One partition holds the watermark of its source, or of a merge or join, back by more than five minutes, or has had no item: windows do not close.",
        action: "The sentence names the partition. If it has no input, set `idle` of `event_time`; if it has, its producer is slow.",
        ends: "when the partition has caught up or is idle",
        is_obstacle: false,
        lasts: 0,
        look: watermark,
    },
    Condition {
        name: "MillstreamOutboxWaits",
        severity: "critical",
        after: "1m",
        summary: "A destination does not accept output: deliveries fail, hang for more than a minute, or the outbox is full.",
        action: "Check the destination; the log has its error. The flow keeps its output and delivers it later; when the outbox reaches its limit, the sources pause.",
        ends: "with the next delivery that succeeds",
        is_obstacle: false,
        lasts: 0,
        look: outbox,
    },
    Condition {
        name: "MillstreamDiskSlow",
        severity: "warning",
        after: "5m",
        summary: "A commit waits for the disk for more than a second.",
        action: "Check the disk of the state directory: other load, a failing device, a network file system.",
        ends: "with the next commit that is faster",
        is_obstacle: false,
        lasts: 0,
        look: disk,
    },
    Condition {
        name: "MillstreamNoCommit",
        severity: "warning; critical from a minute",
        after: "1m",
        summary: "The flow has not committed its state for three epochs: a restart would repeat that time.",
        action: "Open the page: an epoch waits for the slowest operator. A step inside a long call, a full disk and a full destination are the usual causes.",
        ends: "with the next commit",
        is_obstacle: true,
        lasts: 0,
        look: commit,
    },
];

/// The severity of a value with a limit from which it is critical.
fn from(limit: f64, value: f64) -> Severity {
    if value >= limit {
        Severity::Critical
    } else {
        Severity::Warning
    }
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn flow_down(all: &Snapshot, find: &mut Finder<'_>) {
    if let Some(down) = &all.down {
        let again = match down.is_restarted {
            Some(true) => " and is started again",
            Some(false) => " and is not started again",
            None => "",
        };
        let words = format!("The flow has failed{again}: {}", down.error);
        return find.found(("flow", &all.flow), Severity::Critical, words);
    }
    let seconds = all.seconds;
    if all.flow.is_empty() || all.state != State::Starting || seconds < WAIT_SECONDS {
        return;
    }
    let starts =
        || format!("The flow has been starting for {seconds:.0} s: not every connector is open");
    let is_long = seconds > START_SECONDS;
    if let Some(words) = all.waiting.clone().or_else(|| is_long.then(starts)) {
        find.found(("flow", &all.flow), Severity::Critical, format!("{words}."));
    }
}

fn restarts(all: &Snapshot, find: &mut Finder<'_>) {
    let (within_ms, critical) = RESTARTS;
    let is_new = |time_ms: u64| all.time_ms.saturating_sub(time_ms) < within_ms;
    let count = all
        .restarts
        .iter()
        .filter(|one| is_new(one.time_ms))
        .count();
    if let (Some(last), 1..) = (all.restarts.first(), count) {
        let times = match count {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let words = format!(
            "The flow was started again {times} in 15 minutes, at last because of: {}",
            last.cause
        );
        find.found(
            ("flow", &all.flow),
            from(critical as f64, count as f64),
            words,
        );
    }
}

fn processes(all: &Snapshot, find: &mut Finder<'_>) {
    for one in all.processes.iter().filter(|one| one.state == "lost") {
        let words = format!(
            "Process {} has sent no news for {:.0} s: its figures are the last ones.",
            one.process, one.silent_seconds
        );
        find.found(
            ("process", &one.process.to_string()),
            Severity::Critical,
            words,
        );
    }
}

/// What takes so long that a worker is stuck is reported as that.
fn saturated(all: &Snapshot, find: &mut Finder<'_>) {
    let is_stuck = |step: &String| {
        let inside = all
            .workers
            .iter()
            .filter(|worker| worker.step.as_ref() == Some(step));
        inside
            .filter_map(|worker| worker.inside_seconds)
            .any(|seconds| seconds >= STUCK_SECONDS)
    };
    let found = all.bottleneck.as_ref();
    if let Some(found) = found.filter(|found| found.limit == Limit::Step && !is_stuck(&found.step))
    {
        find.found(
            ("step", &found.step),
            Severity::Warning,
            found.words.clone(),
        );
    }
}

fn skipped(all: &Snapshot, find: &mut Finder<'_>) {
    for step in &all.steps {
        let items = find.grown(0, &step.name, step.items_in).minute;
        let skipped = find.grown(1, &step.name, step.skipped);
        if skipped.now > 0 {
            let many = skipped.minute >= SKIPPED_CRITICAL;
            let part = if many {
                share(skipped.minute, items)
            } else {
                0.0
            };
            let severity = from(SHARE_CRITICAL, part);
            find.found(("step", &step.name), severity, skipped_words(all, step));
        }
    }
    for sink in &all.sinks {
        let items = find.grown(2, &sink.name, sink.delivered_records).minute;
        let refused = find.grown(3, &sink.name, sink.refused_records);
        if refused.now > 0 {
            let severity = from(
                SHARE_CRITICAL,
                share(refused.minute, items + refused.minute),
            );
            let words = format!(
                "{} has refused {} records of {}, which it does not have.",
                sink.address, sink.refused_records, sink.name
            );
            find.found(("sink", &sink.name), severity, words);
        }
    }
}

fn skipped_words(all: &Snapshot, step: &StepSnapshot) -> String {
    let dead = match step.dead_letters {
        0 => String::new(),
        dead => format!(", {dead} of them as dead letters"),
    };
    let last = all.failures.iter().find(|one| one.step == step.name);
    let last = last.map_or_else(String::new, |one| format!(" The last error: {}", one.error));
    format!(
        "{} has skipped {} of {} items{dead}.{last}",
        step.name, step.skipped, step.items_in
    )
}

fn late(all: &Snapshot, find: &mut Finder<'_>) {
    for step in &all.steps {
        let items = find.grown(0, &step.name, step.items_in).minute;
        let late = find.grown(1, &step.name, step.late_dropped).minute;
        let part = share(late, items);
        if late > 0 && part > SHARE_LATE {
            let words = format!(
                "{} has dropped {} of {} items, which came too late.",
                step.name, step.late_dropped, step.items_in
            );
            find.found(("step", &step.name), from(SHARE_CRITICAL, part), words);
        }
    }
}

fn faults(all: &Snapshot, find: &mut Finder<'_>) {
    for step in &all.steps {
        if find.grown(0, &step.name, step.faults).now > 0 {
            let words = format!(
                "{} has closed {} connections or inputs, because of invalid data or failures.",
                step.name, step.faults
            );
            find.found(("step", &step.name), Severity::Warning, words);
        }
    }
}

fn stuck(all: &Snapshot, find: &mut Finder<'_>) {
    for worker in &all.workers {
        let inside = worker.step.as_ref().zip(worker.inside_seconds);
        if let Some((step, seconds)) = inside.filter(|(_, seconds)| *seconds >= STUCK_SECONDS) {
            let words = format!(
                "A worker has been inside {step} for {seconds:.0} s: in one call, or in a batch of slow ones."
            );
            find.found(("step", step), Severity::Critical, words);
        }
    }
}

fn lag(all: &Snapshot, find: &mut Finder<'_>) {
    for source in &all.sources {
        let name = &source.name;
        let (lag, amount, words) = match (source.lag_seconds, source.lag_records) {
            (Some(lag), _) => {
                let words = format!("{name} is {lag:.0} s after its input, and the lag grows.");
                (lag, lag, words)
            }
            // Without times the lag is the time that reading it takes at the present rate.
            (None, Some(records)) => {
                let step = all.steps.iter().find(|step| step.name == *name);
                let rate = step.and_then(|step| step.out_rate).unwrap_or(0.0);
                let words = format!(
                    "{name} has not read {records} records of its input, and the lag grows."
                );
                (records as f64 / rate.max(0.1), records as f64, words)
            }
            (None, None) => continue,
        };
        let grows = find.moved(0, name, amount).is_some_and(|by| by > 0.0);
        if lag > LAG_SECONDS && grows {
            find.found(("source", name), Severity::Warning, words);
        }
    }
}

/// A watermark that stands still grows old as time passes; one of a backfill moves on.
fn watermark(all: &Snapshot, find: &mut Finder<'_>) {
    let sources = all.sources_of_all.as_ref().unwrap_or(&all.sources);
    let now = all.time_ms as f64 / 1000.0;
    let mut advances = |one: &&SourceSnapshot| {
        let lag = one.watermark_lag_seconds;
        lag.is_some_and(|lag| find.moved(2, &one.name, now - lag) > Some(ADVANCES))
    };
    // A flow whose sources are all silent is idle.
    let ahead: Vec<_> = sources.iter().filter(&mut advances).collect();
    for source in sources {
        let name = &source.name;
        let joined = |other: &&SourceSnapshot| source.joined_with.contains(&other.name);
        let joined = ahead.iter().any(joined);
        let most = source.watermark_lag_seconds.unwrap_or_default();
        let stands_still = find
            .moved(0, name, most)
            .is_some_and(|by| by >= STANDS_STILL);
        let words = match (&source.without_items, &source.held_by) {
            (Some(partition), held)
                if joined || held.is_some() && find.moved(1, name, 0.0).is_some() =>
            {
                format!(
                    "Partition {partition} of {name} has had no item, and event time waits for it: no window closes."
                )
            }
            (None, Some(partition)) if stands_still => {
                let Some((whose, least)) = furthest(source, &ahead) else {
                    continue;
                };
                if most - least <= WATERMARKS_SECONDS {
                    continue;
                }
                format!(
                    "Partition {partition} of {name} holds the watermark back: it is {most:.0} s old, that of {whose} {least:.0} s."
                )
            }
            _ => continue,
        };
        find.found(("source", name), Severity::Warning, words);
    }
}

/// The least lag of those whose watermarks are joined with that of a source: of its other partitions, or of a source
/// `ahead`.
fn furthest<'a>(source: &SourceSnapshot, ahead: &[&'a SourceSnapshot]) -> Option<(&'a str, f64)> {
    let lag = |one: &PartitionSnapshot| Some(("another one", one.watermark_lag_seconds?));
    let partitions = source.partitions.iter().filter_map(lag);
    let joined = |one: &&&SourceSnapshot| source.joined_with.contains(&one.name);
    let lag = |one: &&'a SourceSnapshot| Some((&*one.name, one.watermark_lag_seconds?));
    let sources = ahead.iter().filter(joined).filter_map(lag);
    partitions
        .chain(sources)
        .min_by(|one, other| one.1.total_cmp(&other.1))
}

fn outbox(all: &Snapshot, find: &mut Finder<'_>) {
    let epoch = all.epochs.map_or(0.0, |epochs| epochs.length_seconds);
    let full = all
        .bottleneck
        .as_ref()
        .filter(|found| found.limit == Limit::Outbox);
    for sink in &all.sinks {
        let due = LAG_SECONDS + sink.batch_age_seconds + EPOCHS_LATE * epoch;
        let name = &sink.name;
        let address = &sink.address;
        let records = sink.waiting_records;
        let words = match (full, sink.failures_in_a_row) {
            (Some(full), _) if full.step == *name => full.words.clone(),
            (_, 0) if records > 0 && sink.waiting_seconds > due => {
                format!(
                    "{records} records wait in the outbox of {name}, the oldest for {:.0} s: {address} takes them too slowly, or a delivery hangs.",
                    sink.waiting_seconds
                )
            }
            (_, 0) => continue,
            (_, failures) => format!(
                "{address} does not accept the output of {name}: {failures} attempts in a row have failed, and {records} records wait."
            ),
        };
        find.found(("sink", name), Severity::Critical, words);
    }
}

fn disk(all: &Snapshot, find: &mut Finder<'_>) {
    let syncing = all.epochs.map_or(0.0, |epochs| epochs.last_seconds[2]);
    if syncing > 1.0 {
        let words = format!("The last commit has waited for the disk for {syncing:.1} s.");
        find.found(("epochs", "epochs"), Severity::Warning, words);
    }
}

fn commit(all: &Snapshot, find: &mut Finder<'_>) {
    let runs = matches!(all.state, State::Running | State::Ending);
    let Some(epochs) = all.epochs.filter(|_| runs) else {
        return;
    };
    let age = epochs.age_seconds;
    let length = epochs.length_seconds;
    let (least, critical) = LATE_SECONDS;
    if age > (EPOCHS_LATE * length).max(least) {
        let words = format!(
            "The last commit is older than three epochs: an epoch has {length:.1} s, and the state was not committed for {age:.0} s."
        );
        find.found(("epochs", "epochs"), from(critical, age), words);
    }
}
