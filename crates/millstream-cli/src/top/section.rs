//! What is shown: sections of lines with a tone each, the same as text and on the screen.

use millstream_observe::ConditionSnapshot;
use millstream_observe::conditions::Severity;

/// How a line looks on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Title,
    Head,
    Good,
    Bad,
    /// A row that needs attention.
    Marked,
    /// A row that waits for others.
    Waits,
}

/// A line of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) tone: Tone,
    pub(super) text: String,
}

/// A title, what needs attention, a table, and lines after it.
pub(super) struct Section {
    pub(super) title: String,
    /// What needs attention, or that nothing does.
    pub(super) verdict: Vec<(Tone, String)>,
    pub(super) head: Vec<&'static str>,
    /// The columns of text, which are at the left; those after them are numbers, at the right.
    pub(super) texts: usize,
    pub(super) rows: Vec<(Tone, Vec<String>)>,
    pub(super) foot: Vec<String>,
}

impl Section {
    /// The section as text.
    pub(super) fn text(&self) -> String {
        let mut lines = vec![self.title.clone()];
        lines.extend(self.verdict.iter().map(|line| line.1.clone()));
        lines.extend(self.table().into_iter().map(|line| line.text));
        lines.extend(self.foot.iter().cloned());
        lines.join("\n")
    }

    /// The section on a screen: of a table that is too long the first rows. `lost` says why there is nothing newer.
    pub(super) fn lines(&self, lost: Option<&str>, (width, height): (usize, usize)) -> Vec<Line> {
        let verdict = match lost {
            Some(lost) => vec![(Tone::Bad, format!("no connection: {lost}"))],
            None => self.verdict.clone(),
        };
        let mut lines = wrapped(Tone::Title, &self.title, width);
        for (tone, text) in &verdict {
            lines.extend(wrapped(*tone, text, width));
        }
        let foot = self.foot.iter().map(|text| Line {
            tone: Tone::Plain,
            text: text.clone(),
        });
        let room = height.saturating_sub(lines.len() + self.foot.len());
        // Some steps are seen however many lines follow.
        lines.extend(self.table().into_iter().take(room.max(3)));
        lines.extend(foot);
        lines.truncate(height);
        lines
    }

    /// The head and the rows of the table, with columns of one width.
    fn table(&self) -> Vec<Line> {
        let mut widths: Vec<usize> = self.head.iter().map(|head| head.len()).collect();
        for (_, row) in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let line = |tone, cells: &[String]| {
            let mut text = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                text += &if column < self.texts {
                    format!("{cell:<width$}  ")
                } else {
                    format!("{cell:>width$}  ")
                };
            }
            let text = text.trim_end().to_owned();
            Line { tone, text }
        };
        let head: Vec<String> = self.head.iter().map(|head| (*head).to_owned()).collect();
        let rows = self.rows.iter().map(|(tone, row)| line(*tone, row));
        std::iter::once(line(Tone::Head, &head))
            .chain(rows)
            .collect()
    }
}

/// The number of conditions that are shown of one part.
const CONDITIONS_MAX: usize = 5;

/// What needs attention of a part of the process; `good` if nothing does.
pub(super) fn verdict(
    conditions: &[ConditionSnapshot],
    part: &str,
    good: &str,
) -> Vec<(Tone, String)> {
    let of_part = conditions.iter().filter(|one| one.part == part);
    let mut lines: Vec<(Tone, String)> = of_part
        .map(|one| {
            let tone = match one.severity {
                Severity::Critical => Tone::Bad,
                Severity::Warning => Tone::Waits,
            };
            let process = one.process.map(|number| format!("process {number}: "));
            let words = one.words.replace(char::is_control, " ");
            (tone, process.unwrap_or_default() + &words)
        })
        .collect();
    let more = lines.len().saturating_sub(CONDITIONS_MAX);
    lines.truncate(CONDITIONS_MAX);
    if more > 0 {
        lines.push((Tone::Waits, format!("and {more} more")));
    }
    if lines.is_empty() {
        lines.push((Tone::Good, good.to_owned()));
    }
    lines
}

/// How a row is shown, by the worst condition of what it is of; `otherwise` if there is none.
pub(super) fn tone_of(
    conditions: &[ConditionSnapshot],
    kinds: &[&str],
    name: &str,
    otherwise: Tone,
) -> Tone {
    let is_of_this = |one: &&ConditionSnapshot| kinds.contains(&&*one.kind) && one.subject == name;
    match conditions.iter().find(is_of_this).map(|one| one.severity) {
        Some(Severity::Critical) => Tone::Marked,
        Some(Severity::Warning) => Tone::Waits,
        None => otherwise,
    }
}

/// A text as lines of at most `width` characters, broken between words.
fn wrapped(tone: Tone, text: &str, width: usize) -> Vec<Line> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().filter(|line| {
            line.is_empty() || line.chars().count() + 1 + word.chars().count() <= width
        });
        match last {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    let line = |text| Line { tone, text };
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(rows: usize) -> Section {
        let row = |row: usize| (Tone::Plain, vec![format!("step {row}"), row.to_string()]);
        Section {
            title: "flow f: running".to_owned(),
            verdict: vec![(Tone::Good, "No step limits this flow.".to_owned())],
            head: vec!["step", "in/s"],
            texts: 1,
            rows: (0..rows).map(row).collect(),
            foot: vec!["epoch 9".to_owned()],
        }
    }

    #[test]
    fn a_long_table_leaves_room_for_what_follows() {
        let lines = section(100).lines(None, (80, 10));
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts.len(), 10);
        assert_eq!(texts[2], "step     in/s");
        assert_eq!(texts[8..], ["step 5      5", "epoch 9"]);
    }

    #[test]
    fn long_sentences_are_broken_between_words() {
        let lines = section(1).lines(Some("refused"), (16, 10));
        let shown: Vec<(Tone, &str)> = lines
            .iter()
            .map(|line| (line.tone, line.text.as_str()))
            .collect();
        assert_eq!(
            shown[..3],
            [
                (Tone::Title, "flow f: running"),
                (Tone::Bad, "no connection:"),
                (Tone::Bad, "refused")
            ]
        );
    }
}
