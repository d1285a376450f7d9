//! The lists of metrics and of conditions, the dashboard and the alert rules are those of the program.
//! `MILLSTREAM_WRITE=1` writes them.

use std::fmt::Write;
use std::path::Path;

use millstream_observe::conditions;
use millstream_observe::list::{self, Kind, Metric};
use serde_json::{Value, json};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn compare(path: &str, expected: &str) {
    let file = Path::new(ROOT).join(path);
    if std::env::var_os("MILLSTREAM_WRITE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, expected).unwrap();
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == expected,
        "{path} is not that of its list: run this test with MILLSTREAM_WRITE=1"
    );
}

fn kind(metric: &Metric) -> &'static str {
    match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    }
}

#[test]
fn names_have_units_and_suffixes() {
    for metric in list::all() {
        let name = metric.name;
        assert_eq!(
            name.ends_with("_total"),
            metric.kind == Kind::Counter,
            "{name}"
        );
        assert!(name.starts_with("millstream_") || name.starts_with("process_"));
        assert!(
            !metric.help.is_empty() && !metric.help.ends_with('.'),
            "{name}"
        );
        assert_eq!(list::all().filter(|other| other.name == name).count(), 1);
    }
    assert!(list::buckets().len() < 12);
    for one in conditions::all() {
        let same = conditions::all().filter(|other| other.name == one.name);
        assert_eq!(same.count(), 1, "{}", one.name);
    }
}

#[test]
fn the_list_of_metrics_is_that_of_the_program() {
    let mut text = String::new();
    for metric in list::all() {
        let name = metric.name;
        let kind = kind(metric);
        let labels = metric.labels.join(", ");
        writeln!(text, "{name}{{{labels}}} {kind}\n    {}", metric.help).unwrap();
    }
    compare("contrib/prometheus/metrics.txt", &text);
}

#[test]
fn the_list_of_conditions_is_that_of_the_program() {
    let mut text = String::new();
    for one in conditions::all() {
        let name = one.name;
        let severity = one.severity;
        let after = one.after;
        writeln!(
            text,
            "{name}: {severity}, alert after {after}\n    {}\n    What to do: {}\n    It ends {}.",
            one.summary, one.action, one.ends
        )
        .unwrap();
    }
    compare("contrib/prometheus/conditions.txt", &text);
}

#[test]
fn the_guide_names_the_conditions_of_readyz() {
    let obstacles = conditions::all().filter(|one| one.is_obstacle);
    let obstacles: Vec<String> = obstacles.map(|one| format!("`{}`", one.name)).collect();
    let obstacles = obstacles.join(", ");
    let guide = "docs/guide/monitoring.md";
    let begin = "<!-- obstacles -->";
    let end = "<!-- end of obstacles -->";
    let text = std::fs::read_to_string(Path::new(ROOT).join(guide)).unwrap();
    let (before, rest) = text.split_once(begin).expect("the mark of the names");
    let (_, after) = rest.split_once(end).expect("the mark of their end");
    compare(guide, &format!("{before}{begin}{obstacles}{end}{after}"));
}

#[test]
fn the_alert_rules_are_those_of_the_list() {
    let mut text = String::from(
        "# Alert rules of Millstream for Prometheus. Generated from crates/millstream-observe/src/conditions.rs; a test compares them.\ngroups:\n- name: millstream\n  rules:\n",
    );
    let quoted = |text: &str| Value::from(text).to_string();
    for one in conditions::all() {
        let name = one.name;
        let after = one.after;
        let holds = format!("millstream_condition{{condition=\"{name}\"");
        let summary = quoted(&format!("{{{{ $labels.subject }}}}: {}", one.summary));
        let action = quoted(one.action);
        let repository = env!("CARGO_PKG_REPOSITORY");
        // A condition that becomes critical goes on: only a rule for both severities counts its time from its begin.
        let all = format!("max without (severity) ({holds}}}) == 1");
        let critical = format!("max without (severity) ({holds},severity=\"critical\"}}) == 1");
        let rules: &[(&str, &String)] = match one.severity {
            "critical" => &[("critical", &all)],
            "warning" => &[("warning", &all)],
            _ => &[("warning", &all), ("critical", &critical)],
        };
        for (severity, expr) in rules {
            writeln!(
                text,
                "  - alert: {name}\n    expr: {}\n    for: {after}\n    labels:\n      severity: {severity}\n    annotations:\n      summary: {summary}\n      description: {action}\n      runbook_url: {repository}/blob/main/docs/guide/monitoring.md#conditions",
                quoted(expr)
            )
            .unwrap();
        }
    }
    compare("contrib/prometheus/millstream.rules.yml", &text);
}

/// The expression of a panel, and its legend.
fn query(metric: &Metric) -> (String, String) {
    let labels = metric.labels.iter().filter(|label| **label != "flow");
    let legend: Vec<String> = labels.map(|label| format!("{{{{{label}}}}}")).collect();
    let name = metric.name;
    // A condition may be of a process without a flow.
    let is_of_flow = metric.labels.contains(&"flow") && !metric.labels.contains(&"condition");
    let filter = if is_of_flow {
        "{flow=~\"$flow\"}"
    } else {
        "{job=~\"$job\"}"
    };
    let expr = match metric.kind {
        Kind::Counter => format!("rate({name}{filter}[$__rate_interval])"),
        Kind::Gauge => format!("{name}{filter}"),
        Kind::Histogram => format!(
            "histogram_quantile(0.99, sum by (le, step) (rate({name}_bucket{filter}[$__rate_interval])))"
        ),
    };
    let legend = if legend.is_empty() {
        "{{flow}}{{job}}".to_owned()
    } else {
        legend.join(" ")
    };
    (expr, legend)
}

fn unit(metric: &Metric) -> &'static str {
    let name = metric.name.trim_end_matches("_total");
    match (metric.kind, name) {
        // Seconds per second.
        (Kind::Counter, name) if name.ends_with("_seconds") => "percentunit",
        (Kind::Counter, name) if name.ends_with("_bytes") => "Bps",
        (Kind::Counter, _) => "ops",
        (_, name) if name.ends_with("_seconds") => "s",
        (_, name) if name.ends_with("_bytes") => "bytes",
        (_, name) if name.ends_with("_ratio") => "percentunit",
        _ => "short",
    }
}

/// The first row of the dashboard: what is looked at first.
const OVERVIEW: [&str; 6] = [
    "millstream_condition",
    "millstream_step_items_in_total",
    "millstream_step_busy_ratio",
    "millstream_source_lag_seconds",
    "millstream_queue_items",
    "millstream_service_input_lag_seconds",
];

/// The other rows: what is closed at first, and the begin of the names of its metrics.
const ROWS: [(&str, &[&str]); 5] = [
    (
        "Flows",
        &[
            "millstream_condition",
            "millstream_flow",
            "millstream_step",
            "millstream_worker",
            "millstream_edge",
            "millstream_source",
            "millstream_outbox",
            "millstream_epoch",
        ],
    ),
    ("Queues", &["millstream_queue"]),
    ("Journals", &["millstream_journal"]),
    ("Services", &["millstream_service"]),
    ("Process", &["process_"]),
];

/// The row of a metric.
fn row_of(metric: &Metric) -> &'static str {
    let has = |names: &[&str]| names.iter().any(|name| metric.name.starts_with(name));
    let row = ROWS.iter().find(|(_, names)| has(names));
    row.unwrap_or_else(|| panic!("{} is in no row", metric.name))
        .0
}

fn panel(metric: &Metric, id: usize, (x, y): (usize, usize)) -> Value {
    let (expr, legend) = query(metric);
    json!({
        "id": id,
        "type": "timeseries",
        "title": metric.help,
        "description": metric.name,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"h": 8, "w": 8, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit(metric), "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "expr": expr, "legendFormat": legend}],
    })
}

/// The panels: the overview, then a closed row for each part with its metrics.
fn panels() -> Vec<Value> {
    let mut panels = Vec::new();
    let row = |id: usize, title: &str, y: usize, closed: Vec<Value>| {
        json!({
            "id": id, "type": "row", "title": title, "collapsed": !closed.is_empty(), "panels": closed,
            "gridPos": {"h": 1, "w": 24, "x": 0, "y": y},
        })
    };
    let mut id = 1;
    panels.push(row(id, "Overview", 0, Vec::new()));
    for (index, name) in OVERVIEW.iter().enumerate() {
        id += 1;
        let metric = list::all().find(|metric| metric.name == *name);
        let metric = metric.unwrap_or_else(|| panic!("{name} is no metric"));
        panels.push(panel(metric, id, (index % 3 * 8, 1 + index / 3 * 8)));
    }
    let first = 1 + OVERVIEW.len().div_ceil(3) * 8;
    for (y, (title, _)) in (first..).zip(ROWS) {
        id += 1;
        let of_row = id;
        let mut closed = Vec::new();
        for (index, metric) in list::all().filter(|one| row_of(one) == title).enumerate() {
            id += 1;
            closed.push(panel(metric, id, (index % 3 * 8, y + 1 + index / 3 * 8)));
        }
        assert!(!closed.is_empty(), "{title}");
        panels.push(row(of_row, title, y, closed));
    }
    panels
}

#[test]
fn the_dashboard_is_that_of_the_list() {
    let variable = |name: &str, query: &str| {
        json!({
            "name": name, "type": "query", "query": query, "refresh": 2, "includeAll": true, "multi": true,
            "datasource": {"type": "prometheus", "uid": "${datasource}"}, "current": {"text": "All", "value": "$__all"},
        })
    };
    let dashboard = json!({
        "title": "Millstream",
        "uid": "millstream",
        "tags": ["millstream"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus"},
            variable("flow", "label_values(millstream_flow_running, flow)"),
            variable("job", "label_values({__name__=~\"millstream_.*\"}, job)"),
        ]},
        "panels": panels(),
    });
    let text = serde_json::to_string_pretty(&dashboard).unwrap() + "\n";
    compare("contrib/grafana/millstream.json", &text);
}
