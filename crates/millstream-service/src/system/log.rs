//! The log of a process of services: warnings and errors, a line each, on standard error. `millstream service up` puts
//! the time and the name of the process before them.

use std::fmt;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// Shows events on standard error from now on, unless the program has a subscriber of its own.
pub(super) fn begin() {
    let _ = tracing::subscriber::set_global_default(to(std::io::stderr));
}

fn to<W>(writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::WARN)
        .with_ansi(false)
        .event_format(Words)
        .with_writer(writer)
        .finish()
}

/// An event as its message and its fields, without time, level and target.
struct Words;

impl<S, N> FormatEvent<S, N> for Words
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        cx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        cx.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
