//! The log of verbs that serve: lines on standard error, as text or as JSON.

use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;

use clap::ArgMatches;
use millstream_journal::clock::wall_ns;
use millstream_observe::log_levels::Levels;
use millstream_observe::log_line::{Format as Written, Line, level_name, plain};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// What is logged, and how.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Logging {
    /// What is logged on standard error: error, warning, info, debug, trace or off [default: info]; and of single
    /// modules, as in info,queue=debug,journal=off.
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

impl From<Format> for Written {
    fn from(format: Format) -> Self {
        match format {
            Format::Text => Written::Text,
            Format::Json => Written::Json,
        }
    }
}

/// How this program logs.
static FORMAT: OnceLock<Written> = OnceLock::new();

/// Notes the format of the log of the verb that was chosen.
pub(crate) fn note_format(chosen: &ArgMatches) {
    let mut verb = chosen;
    while let Some((_, below)) = verb.subcommand() {
        verb = below;
    }
    if let Ok(Some(format)) = verb.try_get_one::<Format>("log_format") {
        FORMAT.get_or_init(|| Written::from(*format));
    }
}

/// Prints a line for the person or the program that has started this one: text as it is, or an object under
/// `--log json`.
pub(crate) fn announce(level: Level, text: &str, message: &str, fields: &[(&str, Value)]) {
    let fields = fields.iter();
    let fields: Vec<_> = fields
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let line = Line {
        time_ns: wall_ns(),
        level: level_name(level),
        target: "millstream",
        message,
        fields: &fields,
    };
    match FORMAT.get() {
        Some(Written::Json) => eprintln!("{}", line.written(Written::Json)),
        _ => eprintln!("{}", plain(text)),
    }
}

/// Announces where a server listens.
pub(crate) fn listening(address: &dyn fmt::Display) {
    let text = format!("listening on {address}");
    announce(Level::INFO, &text, &text, &[]);
}

impl Logging {
    /// Log to standard error from now on; `usual` is the default level.
    pub(crate) fn begin(self, usual: LevelFilter) {
        let levels = targets(self.log_level.unwrap_or_default(), usual);
        let lines = Lines(self.log_format.into());
        // In a test that has one already, the log goes there.
        let _ = tracing_subscriber::registry()
            .with(levels)
            .with(lines)
            .try_init();
    }
}

/// The levels, as the subscriber has them.
fn targets(levels: Levels, usual: LevelFilter) -> Targets {
    let modules = levels.modules.into_iter();
    let modules =
        modules.map(|(module, level)| (format!("millstream_{}", module.replace('.', "::")), level));
    Targets::new()
        .with_default(levels.all.unwrap_or(usual))
        .with_targets(modules)
}

/// Writes events on standard error, a line each, with the fields of the spans that they are in.
struct Lines(Written);

impl Lines {
    fn line<S>(&self, event: &Event<'_>, context: &Context<'_, S>) -> String
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let mut fields = Fields::default();
        event.record(&mut fields);
        for span in context.event_scope(event).into_iter().flatten() {
            let extensions = span.extensions();
            let of_span = extensions.get::<Fields>().into_iter();
            for (name, value) in of_span.flat_map(|fields| &fields.named) {
                if fields.named.iter().all(|(known, _)| known != name) {
                    fields.named.push((name.clone(), value.clone()));
                }
            }
        }
        let about = event.metadata();
        let line = Line {
            time_ns: wall_ns(),
            level: level_name(*about.level()),
            target: about.target(),
            message: &fields.message,
            fields: &fields.named,
        };
        line.written(self.0)
    }
}

impl<S> Layer<S> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, about: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        about.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let line = self.line(event, &context);
        // There is nowhere to report that standard error is closed.
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// The message of an event, and its other fields.
#[derive(Default)]
struct Fields {
    message: String,
    named: Vec<(String, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.named.push((name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, json!(value));
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, json!(value));
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, json!(value));
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, json!(value));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, json!(value));
    }
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, json!(format!("{value:?}")));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Level;

    use super::*;

    /// Keeps the lines that would be written.
    struct Kept(Lines, Arc<Mutex<Vec<String>>>);

    impl<S> Layer<S> for Kept
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        fn on_new_span(&self, about: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
            self.0.on_new_span(about, id, context);
        }
        fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
            let line = self.0.line(event, &context);
            self.1.lock().unwrap().push(line);
        }
    }

    #[test]
    fn modules_have_levels_of_their_own() {
        let levels: Levels = "warning,queue=debug,flow.run=off".parse().unwrap();
        let targets = targets(levels, LevelFilter::INFO);
        let enabled = |target: &str, level| targets.would_enable(target, &level);
        assert!(enabled("millstream_queue::server", Level::DEBUG));
        assert!(enabled("millstream_http", Level::WARN));
        assert!(!enabled("millstream_http", Level::INFO));
        assert!(!enabled("millstream_flow::run::worker", Level::ERROR));
        let usual = super::targets(Levels::default(), LevelFilter::WARN);
        assert!(!usual.would_enable("millstream_queue", &Level::INFO));
    }

    fn logged(format: Written, log: impl FnOnce()) -> String {
        let kept = Arc::default();
        let lines = Kept(Lines(format), Arc::clone(&kept));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), log);
        let lines = kept.lock().unwrap();
        assert_eq!(lines.len(), 1);
        lines[0].clone()
    }

    #[test]
    fn an_event_is_an_object_with_its_fields_and_those_of_its_spans() {
        let text = logged(Written::Json, || {
            let _entered = tracing::info_span!("worker", flow = "words", queue = "other").entered();
            tracing::warn!(queue = "work", items = 3, "it is \"full\"");
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(line["level"], "warning");
        assert_eq!(line["target"], "cli.log.tests");
        assert_eq!(line["message"], "it is \"full\"");
        assert_eq!(
            (&line["queue"], &line["items"], &line["flow"]),
            (&json!("work"), &json!(3), &json!("words"))
        );
        assert!(line["time"].is_string());
    }

    #[test]
    fn a_name_with_control_characters_stays_on_one_line() {
        let name = "work\n\u{1b}[2J";
        let text = logged(Written::Text, || {
            tracing::info!(queue = name, step = ?name, "queue {name} is there");
        });
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(
            text.ends_with(
                "INFO    cli.log.tests: queue work\\n\\u001b[2J is there queue=\"work\\n\\u001b[2J\" \
                 step=\"\\\"work\\\\n\\\\u{1b}[2J\\\"\""
            ),
            "{text}"
        );
    }
}
