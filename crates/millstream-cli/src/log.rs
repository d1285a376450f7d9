//! The log of verbs that serve: lines on standard error, as text or as JSON.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// What is logged, and how.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Logging {
    /// What is logged on standard error: error, warning, info, debug, trace or off [default: info]; and of single modules, as in
    /// info,queue=debug,journal=off.
    #[arg(long, value_name = "LEVEL[,MODULE=LEVEL...]")]
    log_level: Option<Levels>,
    /// Log as text, or as JSON: an object a line, with time, level, target, message and the fields of the event.
    #[arg(
        long = "log",
        alias = "log-format",
        value_name = "FORMAT",
        value_enum,
        default_value_t
    )]
    log_format: Format,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, Default)]
enum Format {
    #[default]
    Text,
    Json,
}

impl Logging {
    /// Log to standard error from now on; `usual` is the default level.
    pub(crate) fn begin(self, usual: LevelFilter) {
        let levels = self.log_level.unwrap_or_default().targets(usual);
        let log = tracing_subscriber::fmt::layer()
            .with_target(false)
            .with_writer(std::io::stderr);
        let lines = tracing_subscriber::registry().with(levels);
        // In a test that has one already, the log goes there.
        let _ = match self.log_format {
            Format::Text => lines.with(log).try_init(),
            Format::Json => lines.with(log.event_format(JsonLines)).try_init(),
        };
    }
}

/// The crates whose modules may have a level of their own, by their short names.
const CRATES: [&str; 12] = [
    "cli",
    "cluster",
    "flow",
    "http",
    "journal",
    "kafka",
    "link",
    "observe",
    "queue",
    "replication",
    "service",
    "wire",
];

/// The level of all modules, and those of single ones.
#[derive(Clone, Debug, Default)]
struct Levels {
    all: Option<LevelFilter>,
    modules: Vec<(String, LevelFilter)>,
}

impl Levels {
    fn targets(self, usual: LevelFilter) -> Targets {
        Targets::new()
            .with_default(self.all.unwrap_or(usual))
            .with_targets(self.modules)
    }
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut levels = Levels::default();
        for part in text.split(',') {
            match part.split_once('=') {
                None if levels.all.is_some() => {
                    return Err("one level without a module is enough".to_owned());
                }
                None => levels.all = Some(level(part)?),
                Some((module, text)) => levels.modules.push((target(module)?, level(text)?)),
            }
        }
        Ok(levels)
    }
}

fn level(text: &str) -> Result<LevelFilter, String> {
    let name = if text == "warning" { "warn" } else { text };
    let known = ["off", "error", "warn", "info", "debug", "trace"].contains(&name);
    let level = name.parse().ok().filter(|_| known);
    level.ok_or_else(|| format!("{text:?} is no level: error, warning, info, debug, trace or off"))
}

/// The target of a module by its short name: `queue` or `queue.server`.
fn target(module: &str) -> Result<String, String> {
    let path = module.replace('.', "::");
    let name = path.split("::").next().unwrap_or_default();
    match CRATES.contains(&name) {
        true => Ok(format!("millstream_{path}")),
        false => Err(format!(
            "{module:?} is no module with a log: {}",
            CRATES.join(", ")
        )),
    }
}

/// Events as objects of JSON, one a line.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let about = event.metadata();
        let mut line = Fields(Map::new());
        line.0.insert("time".to_owned(), json!(time));
        let level = about.level().as_str().to_ascii_lowercase();
        line.0.insert("level".to_owned(), json!(level));
        line.0.insert("target".to_owned(), json!(about.target()));
        event.record(&mut line);
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // Text in memory takes all that is written.
        let _ = write!(text, "{value:?}");
        self.0.insert(field.name().to_owned(), json!(text));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use tracing::Level;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn modules_have_levels_of_their_own() {
        let levels: Levels = "warning,queue=debug,flow.run=off".parse().unwrap();
        let targets = levels.targets(LevelFilter::INFO);
        let enabled = |target: &str, level| targets.would_enable(target, &level);
        assert!(enabled("millstream_queue::server", Level::DEBUG));
        assert!(enabled("millstream_http", Level::WARN));
        assert!(!enabled("millstream_http", Level::INFO));
        assert!(!enabled("millstream_flow::run::worker", Level::ERROR));
        let usual = Levels::default().targets(LevelFilter::WARN);
        assert!(!usual.would_enable("millstream_queue", &Level::INFO));
        for wrong in ["loud", "info,debug", "queues=info", "queue=", "", "5"] {
            assert!(wrong.parse::<Levels>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_event_is_an_object_with_its_fields() {
        let kept = Kept::default();
        let to = kept.clone();
        let log = tracing_subscriber::fmt()
            .event_format(JsonLines)
            .with_writer(move || to.clone())
            .finish();
        tracing::subscriber::with_default(log, || {
            tracing::warn!(queue = "work", items = 3, "it is \"full\"");
        });
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "warn");
        assert_eq!(line["message"], "it is \"full\"");
        assert_eq!(
            (&line["queue"], &line["items"]),
            (&json!("work"), &json!(3))
        );
        assert!(line["time"].is_string() && text.ends_with("}\n"));
    }
}
