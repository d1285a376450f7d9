//! The figures of a flow.

use millstream_observe::{
    Ages, Mark, ProcessSnapshot, Snapshot, SourceSnapshot, State, StepSnapshot,
};

use super::section::{Section, Tone, tone_of, verdict};
use super::words::{plain, time};
use crate::report::human;

const HEAD: [&str; 11] = [
    "step", "kind", "", "in/s", "out/s", "busy", "skew", "p50", "p99", "skipped", "late",
];
/// The columns of text, which are at the left.
const TEXT_COLUMNS: usize = 3;
fn cells(step: &StepSnapshot) -> Vec<String> {
    let mark = match step.mark {
        Mark::Cause => "limits the flow",
        Mark::Waiting => "waits",
        Mark::None => "",
    };
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), human);
    let age = |of: fn(&Ages) -> f64| {
        step.ages
            .as_ref()
            .map_or_else(|| "-".to_owned(), |ages| time(of(ages)))
    };
    vec![
        plain(&step.name),
        plain(&step.kind),
        mark.to_owned(),
        rate(step.in_rate),
        rate(step.out_rate),
        format!("{:.0}%", step.busy * 100.0),
        format!("{:.1}", step.skew),
        age(|ages| ages.p50),
        age(|ages| ages.p99),
        step.skipped.to_string(),
        step.late.to_string(),
    ]
}

fn title(snapshot: &Snapshot) -> String {
    let sources = snapshot.steps.iter().filter(|step| step.kind == "source");
    let read = sources
        .filter_map(|step| step.out_rate)
        .reduce(|one, other| one + other);
    let busiest = snapshot
        .workers
        .iter()
        .map(|worker| worker.busy)
        .fold(0.0, f64::max);
    let flow = plain(&snapshot.flow);
    let ran = time(snapshot.ending_seconds.unwrap_or(snapshot.seconds));
    if let Some(down) = &snapshot.down {
        let failed_ms = snapshot.time_ms.saturating_sub(down.since_ms);
        let ago = time(failed_ms as f64 / 1000.0);
        return format!("flow {flow}: failed {ago} ago, after {ran}");
    }
    let is_over = matches!(snapshot.state, State::Ended | State::Failed);
    format!(
        "flow {flow}: {} {} {ran}, {} items/s read, busiest of {} workers {:.0}%",
        snapshot.state.name(),
        if is_over { "after" } else { "for" },
        read.map_or_else(|| "-".to_owned(), human).trim_end(),
        snapshot.workers.len(),
        busiest * 100.0
    )
}

fn source_line(source: &SourceSnapshot) -> Option<String> {
    let records = source.lag_records.map(|lag| format!("{lag} records"));
    let bytes = source.lag_bytes.map(|lag| format!("{lag} bytes"));
    let age = source.lag_seconds.map(time);
    let withheld = source.withheld_records.filter(|records| *records > 0);
    let withheld = withheld.map(|records| format!("{records} records in open transactions"));
    let watermark = source.watermark_lag_seconds.map(|lag| {
        let partition = source.held_by.as_deref().unwrap_or_default();
        format!("watermark {} (partition {})", time(lag), plain(partition))
    });
    let parts: Vec<String> = [records, bytes, age, withheld, watermark]
        .into_iter()
        .flatten()
        .collect();
    let line = format!("lag of {}: {}", plain(&source.name), parts.join(", "));
    (!parts.is_empty()).then_some(line)
}

fn process_line(process: &ProcessSnapshot) -> String {
    let ProcessSnapshot {
        process: number,
        state,
        silent_seconds,
        busy,
        read_rate,
        in_flight_items,
    } = process;
    let state = plain(state);
    match state.as_str() {
        "unknown" => format!("process {number}: no news, it has no page"),
        "lost" => format!(
            "process {number}: lost, no news for {}",
            time(*silent_seconds)
        ),
        _ => format!(
            "process {number}: {state}, {} items/s read, busiest worker {:.0}%, {in_flight_items} items in flight",
            human(*read_rate).trim_end(),
            busy * 100.0
        ),
    }
}

/// The lines after the table of steps.
fn others(snapshot: &Snapshot) -> Vec<String> {
    let mut lines: Vec<String> = snapshot.processes.iter().map(process_line).collect();
    lines.extend(snapshot.sources.iter().filter_map(source_line));
    for outbox in &snapshot.sinks {
        lines.push(format!(
            "outbox of {}: {} records wait, the oldest for {}; {} retries",
            plain(&outbox.name),
            outbox.waiting_records,
            time(outbox.waiting_seconds),
            outbox.retries
        ));
    }
    if let Some(epochs) = &snapshot.epochs {
        let [waiting, saving, syncing] = epochs.last_seconds.map(time);
        lines.push(format!(
            "epoch {}: last commit waited {waiting}, saved {saving}, synced {syncing}, {}B; {} ago",
            epochs.epoch,
            human(epochs.last_bytes),
            time(epochs.age_seconds)
        ));
    }
    lines
}

/// The figures of a flow.
pub(super) fn section(snapshot: &Snapshot) -> Section {
    let row = |step: &StepSnapshot| {
        let kinds = &["step", "source", "sink"];
        let of_condition = |mark| tone_of(&snapshot.conditions, kinds, &step.name, mark);
        let tone = match step.mark {
            Mark::Cause => Tone::Marked,
            Mark::Waiting => of_condition(Tone::Waits),
            Mark::None => of_condition(Tone::Plain),
        };
        (tone, cells(step))
    };
    let mut shown = verdict(&snapshot.conditions, "flow", "No step limits this flow.");
    if snapshot.state != State::Running && shown[0].0 == Tone::Good {
        let starts = match snapshot.state {
            State::Ending => "The flow ends.",
            State::Ended => "The flow has ended.",
            State::Failed => "The flow has failed.",
            _ => "The flow starts: not every connector is open.",
        };
        let words = snapshot.waiting.as_ref().map(|words| format!("{words}."));
        let words = words.unwrap_or_else(|| starts.to_owned());
        shown = vec![(Tone::Plain, words.replace(char::is_control, " "))];
    }
    Section {
        title: title(snapshot),
        verdict: shown,
        head: HEAD.to_vec(),
        texts: TEXT_COLUMNS,
        rows: snapshot.steps.iter().map(row).collect(),
        foot: others(snapshot),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> Snapshot {
        let text = r#"{"flow": "f\u001b[2J", "state": "running", "seconds": 12.0,
            "bottleneck": {"step": "b", "words": "b limits the flow: it takes 93% of the time of the worker."},
            "conditions": [{"name": "MillstreamStepSaturated", "severity": "warning", "part": "flow", "kind": "step", "subject": "b",
                "words": "b limits the flow: it takes 93% of the time of the worker."}],
            "steps": [
                {"name": "a", "kind": "source", "mark": "waiting", "in_rate": 0, "out_rate": 1200, "busy": 0, "skew": 1,
                 "ages": null, "skipped": 0, "late": 0},
                {"name": "b", "kind": "map", "mark": "cause", "in_rate": 1200, "out_rate": 1200, "busy": 0.93, "skew": 1,
                 "ages": {"p50": 0.0012, "p99": 1.5, "p999": 2}, "skipped": 3, "late": 0}],
            "workers": [{"busy": 0.95}], "sinks": [],
            "sources": [{"name": "a", "lag_records": 7, "lag_bytes": null, "withheld_records": 3, "lag_seconds": null,
                "watermark_lag_seconds": 61, "held_by": "p1"}],
            "epochs": {"epoch": 9, "age_seconds": 0.5, "last_seconds": [0.1, 0.002, 0.03], "last_bytes": 1000}}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn text_has_the_figures_and_no_control_characters() {
        let text = section(&snapshot()).text();
        let expected = "\
flow f [2J: running for 12.0 s, 1200 items/s read, busiest of 1 workers 95%
b limits the flow: it takes 93% of the time of the worker.
step  kind                      in/s  out/s  busy  skew     p50    p99  skipped  late
a     source  waits                0   1200    0%   1.0       -      -        0     0
b     map     limits the flow   1200   1200   93%   1.0  1.2 ms  1.5 s        3     0
lag of a: 7 records, 3 records in open transactions, watermark 1.0 min (partition p1)
epoch 9: last commit waited 100.0 ms, saved 2.0 ms, synced 30.0 ms, 1000 B; 500.0 ms ago";
        let squeezed = |text: &str| {
            let words: Vec<Vec<&str>> = text
                .lines()
                .map(|line| line.split_whitespace().collect())
                .collect();
            words.iter().map(|line| line.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(squeezed(&text), squeezed(expected));
    }

    #[test]
    fn a_flow_that_has_failed_says_since_when() {
        let mut snapshot = snapshot();
        snapshot.time_ms = 1_000_000;
        snapshot.down = Some(millstream_observe::Down {
            since_ms: 910_000,
            ..millstream_observe::Down::default()
        });
        let title = section(&snapshot).title;
        assert_eq!(title, "flow f [2J: failed 1.5 min ago, after 12.0 s");
    }

    #[test]
    fn processes_have_a_line_each() {
        let mut snapshot = snapshot();
        let process = |process, state: &str| ProcessSnapshot {
            process,
            state: state.to_owned(),
            silent_seconds: 7.0,
            busy: 0.5,
            read_rate: 1200.0,
            in_flight_items: 3,
        };
        snapshot.processes = vec![
            process(0, "running"),
            process(1, "lost"),
            process(2, "unknown"),
        ];
        let text = section(&snapshot).text();
        for line in [
            "process 0: running, 1200 items/s read, busiest worker 50%, 3 items in flight",
            "process 1: lost, no news for 7.0 s",
            "process 2: no news, it has no page",
        ] {
            assert!(text.lines().any(|shown| shown == line), "{text}");
        }
    }

    #[test]
    fn the_step_that_limits_the_flow_is_coloured() {
        let section = section(&snapshot());
        let lines = section.lines(None, (110, 12));
        let tones: Vec<Tone> = lines.iter().map(|line| line.tone).collect();
        let expected = [
            Tone::Title,
            Tone::Waits,
            Tone::Head,
            Tone::Waits,
            Tone::Marked,
        ];
        assert_eq!(tones[..5], expected);
        assert!(lines[4].text.starts_with('b'), "{lines:?}");
        let lines = section.lines(Some("refused"), (110, 12));
        assert_eq!(lines[1].text, "no connection: refused");
    }
}
