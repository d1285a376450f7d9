//! Names and times as words of a line.

/// The width of the longest name that is shown.
const NAME_WIDTH: usize = 28;

/// Returns a text without the characters that move a terminal's cursor: names come from others.
pub(super) fn plain(text: &str) -> String {
    let shown = text.chars().map(|character| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    });
    shown.take(NAME_WIDTH).collect()
}

/// A time as a person reads it.
pub(super) fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 3600.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 60.0 => format!("{:.1} min", s / 60.0),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.0} us", s * 1e6),
    }
}
