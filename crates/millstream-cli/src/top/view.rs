//! The figures of a flow as lines of a terminal: the same for `--once` and for the screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, Wrap};

use super::snapshot::{Process, Snapshot, Source, Step};
use super::words::{plain, time};
use crate::report::human;

const HEAD: [&str; 11] = [
    "step", "kind", "", "in/s", "out/s", "busy", "skew", "p50", "p99", "skipped", "late",
];
/// The columns of text, which are at the left.
const TEXT_COLUMNS: usize = 3;
fn cells(step: &Step) -> [String; 11] {
    let mark = match step.mark.as_str() {
        "cause" => "limits the flow",
        "waiting" => "waits",
        _ => "",
    };
    let age = |of: fn(&super::snapshot::Ages) -> f64| {
        step.ages
            .as_ref()
            .map_or_else(|| "-".to_owned(), |ages| time(of(ages)))
    };
    [
        plain(&step.name),
        plain(&step.kind),
        mark.to_owned(),
        human(step.in_rate),
        human(step.out_rate),
        format!("{:.0}%", step.busy * 100.0),
        format!("{:.1}", step.skew),
        age(|ages| ages.p50),
        age(|ages| ages.p99),
        step.skipped.to_string(),
        step.late.to_string(),
    ]
}

/// The width of each column.
fn widths(rows: &[[String; 11]]) -> [usize; 11] {
    let mut widths = HEAD.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    widths
}

fn title(snapshot: &Snapshot) -> String {
    let read: f64 = snapshot
        .steps
        .iter()
        .filter(|step| step.kind == "source")
        .map(|step| step.out_rate)
        .sum();
    let busiest = snapshot
        .workers
        .iter()
        .map(|worker| worker.busy)
        .fold(0.0, f64::max);
    format!(
        "flow {}: {} for {}, {} items/s read, busiest of {} workers {:.0}%",
        plain(&snapshot.flow),
        snapshot.state,
        time(snapshot.seconds),
        human(read).trim_end(),
        snapshot.workers.len(),
        busiest * 100.0
    )
}

fn verdict(snapshot: &Snapshot) -> String {
    match (&snapshot.waiting, &snapshot.bottleneck) {
        (Some(waiting), _) => format!("{}.", waiting.replace(char::is_control, " ")),
        (None, Some(bottleneck)) => bottleneck.words.replace(char::is_control, " "),
        (None, None) => "No step limits this flow.".to_owned(),
    }
}

fn source_line(source: &Source) -> Option<String> {
    let records = source.lag_records.map(|lag| format!("{lag} records"));
    let bytes = source.lag_bytes.map(|lag| format!("{lag} bytes"));
    let age = source.lag_seconds.map(time);
    let watermark = source.watermark_lag_seconds.map(|lag| {
        let partition = source.held_by.as_deref().unwrap_or_default();
        format!("watermark {} (partition {})", time(lag), plain(partition))
    });
    let parts: Vec<String> = [records, bytes, age, watermark]
        .into_iter()
        .flatten()
        .collect();
    let line = format!("lag of {}: {}", plain(&source.name), parts.join(", "));
    (!parts.is_empty()).then_some(line)
}

fn process_line(process: &Process) -> String {
    let Process {
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

/// Returns the figures as text.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let rows: Vec<[String; 11]> = snapshot.steps.iter().map(cells).collect();
    let widths = widths(&rows);
    let line = |cells: &[String; 11]| {
        let mut line = String::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            line += &match column < TEXT_COLUMNS {
                true => format!("{cell:<width$}  "),
                false => format!("{cell:>width$}  "),
            };
        }
        line.trim_end().to_owned()
    };
    let mut lines = vec![
        title(snapshot),
        verdict(snapshot),
        line(&HEAD.map(String::from)),
    ];
    lines.extend(rows.iter().map(line));
    lines.extend(others(snapshot));
    lines.join("\n")
}

/// Draws the figures; `lost` says why there are no newer ones.
pub(super) fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot, lost: Option<&str>) {
    let rows: Vec<[String; 11]> = snapshot.steps.iter().map(cells).collect();
    let widths = widths(&rows).map(|width| Constraint::Length(width as u16));
    let last = others(snapshot);
    let areas = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(2),
        Constraint::Length(last.len() as u16 + 1),
    ])
    .split(frame.area());
    let colour = match (lost, &snapshot.bottleneck) {
        (Some(_), _) | (None, Some(_)) => Color::Red,
        (None, None) => Color::Green,
    };
    let second = lost.map_or_else(
        || verdict(snapshot),
        |lost| format!("no connection: {lost}"),
    );
    let head = vec![
        Line::styled(title(snapshot), Style::new().add_modifier(Modifier::BOLD)),
        Line::styled(second, Style::new().fg(colour)),
    ];
    frame.render_widget(Paragraph::new(head).wrap(Wrap { trim: true }), areas[0]);
    let styled = rows.into_iter().zip(&snapshot.steps).map(|(cells, step)| {
        let style = match step.mark.as_str() {
            "cause" => Style::new().fg(Color::White).bg(Color::Red),
            "waiting" => Style::new().fg(Color::Yellow),
            _ => Style::new(),
        };
        Row::new(aligned(cells)).style(style)
    });
    let header = Row::new(aligned(HEAD.map(String::from)));
    let table = Table::new(styled, widths)
        .header(header.style(Style::new().add_modifier(Modifier::UNDERLINED)));
    frame.render_widget(table, areas[1]);
    let last: Vec<Line<'_>> = last.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(last), areas[2]);
}

/// Text at the left, numbers at the right of their columns.
fn aligned(cells: [String; 11]) -> Vec<Line<'static>> {
    let line = |(column, cell): (usize, String)| match column < TEXT_COLUMNS {
        true => Line::from(cell),
        false => Line::from(cell).right_aligned(),
    };
    cells.into_iter().enumerate().map(line).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn snapshot() -> Snapshot {
        let text = r#"{"flow": "f\u001b[2J", "state": "running", "seconds": 12.0,
            "bottleneck": {"step": "b", "words": "b limits the flow: it takes 93% of the time of the worker."},
            "steps": [
                {"name": "a", "kind": "source", "mark": "waiting", "in_rate": 0, "out_rate": 1200, "busy": 0, "skew": 1,
                 "ages": null, "skipped": 0, "late": 0},
                {"name": "b", "kind": "map", "mark": "cause", "in_rate": 1200, "out_rate": 1200, "busy": 0.93, "skew": 1,
                 "ages": {"p50": 0.0012, "p99": 1.5, "p999": 2}, "skipped": 3, "late": 0}],
            "workers": [{"busy": 0.95}], "sinks": [],
            "sources": [{"name": "a", "lag_records": 7, "lag_bytes": null, "lag_seconds": null,
                "watermark_lag_seconds": 61, "held_by": "p1"}],
            "epochs": {"epoch": 9, "age_seconds": 0.5, "last_seconds": [0.1, 0.002, 0.03], "last_bytes": 1000}}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn text_has_the_figures_and_no_control_characters() {
        let text = text(&snapshot());
        let expected = "\
flow f [2J: running for 12.0 s, 1200 items/s read, busiest of 1 workers 95%
b limits the flow: it takes 93% of the time of the worker.
step  kind                      in/s  out/s  busy  skew     p50    p99  skipped  late
a     source  waits                0   1200    0%   1.0       -      -        0     0
b     map     limits the flow   1200   1200   93%   1.0  1.2 ms  1.5 s        3     0
lag of a: 7 records, watermark 1.0 min (partition p1)
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
    fn processes_have_a_line_each() {
        let mut snapshot = snapshot();
        let process = |process, state: &str| Process {
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
        let text = text(&snapshot);
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
        let mut terminal = Terminal::new(TestBackend::new(110, 12)).unwrap();
        let snapshot = snapshot();
        terminal.draw(|frame| draw(frame, &snapshot, None)).unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y: u16| -> String { (0..110).map(|x| buffer[(x, y)].symbol()).collect() };
        assert!(row(5).starts_with("b"), "{}", row(5));
        assert_eq!(buffer[(0, 5)].bg, Color::Red);
        assert_eq!(buffer[(0, 4)].fg, Color::Yellow);
        terminal
            .draw(|frame| draw(frame, &snapshot, Some("refused")))
            .unwrap();
        let buffer = terminal.backend().buffer();
        let second: String = (0..40).map(|x| buffer[(x, 1)].symbol()).collect();
        assert!(second.starts_with("no connection: refused"), "{second}");
    }
}
