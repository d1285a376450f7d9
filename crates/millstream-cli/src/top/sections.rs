//! Queues and journals as lines of a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table, Wrap};
use serde::Deserialize;

use super::words::{plain, time};
use crate::report::human;

/// The queues of a server.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Queues {
    status: String,
    count: usize,
    connections: u64,
    attention: Option<String>,
    total: Queue,
    queues: Vec<Queue>,
}

#[derive(Clone, Debug, Deserialize)]
struct Queue {
    name: String,
    state: String,
    items: u64,
    oldest_seconds: f64,
    open_items: u64,
    held_seconds: f64,
    held_by: Option<String>,
    waiters: u64,
    in_rate: f64,
    out_rate: f64,
    expired_rate: f64,
}

/// Journals on the disk.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Journals {
    count: usize,
    record_rate: f64,
    disk_bytes: u64,
    attention: Option<String>,
    journals: Vec<Journal>,
}

#[derive(Clone, Debug, Deserialize)]
struct Journal {
    name: String,
    kind: String,
    state: String,
    first: u64,
    next: u64,
    durable: u64,
    record_rate: f64,
    byte_rate: f64,
    cursor_lag: Option<u64>,
    follower_lag: Option<u64>,
    items: Option<u64>,
    disk_bytes: u64,
    writers: Vec<u32>,
}

/// A title, what needs attention, and a table, whose first columns are text.
pub(super) struct Sheet {
    title: String,
    attention: Option<String>,
    texts: usize,
    head: Vec<&'static str>,
    /// Rows, and whether each needs attention.
    rows: Vec<(bool, Vec<String>)>,
}

impl Queues {
    pub(super) fn sheet(&self) -> Sheet {
        let title = format!(
            "queues: server {}, {} queues, {} items, {}in/s, {}out/s, {} clients",
            plain(&self.status),
            self.count,
            self.total.items,
            human(self.total.in_rate),
            human(self.total.out_rate),
            self.connections
        );
        let row = |queue: &Queue| {
            let cells = vec![
                plain(&queue.name),
                plain(&queue.state),
                plain(queue.held_by.as_deref().unwrap_or("-")),
                queue.items.to_string(),
                time(queue.oldest_seconds),
                queue.open_items.to_string(),
                time(queue.held_seconds),
                queue.waiters.to_string(),
                human(queue.in_rate),
                human(queue.out_rate),
                human(queue.expired_rate),
            ];
            (queue.state != "good", cells)
        };
        Sheet {
            title,
            attention: self.attention.clone(),
            texts: 3,
            head: vec![
                "queue",
                "state",
                "held by",
                "items",
                "oldest",
                "open",
                "held",
                "waiting",
                "in/s",
                "out/s",
                "expired/s",
            ],
            rows: self.queues.iter().map(row).collect(),
        }
    }
}

impl Journals {
    pub(super) fn sheet(&self) -> Sheet {
        let title = format!(
            "journals: {} journals, {}records/s, {}B on disk",
            self.count,
            human(self.record_rate),
            human(self.disk_bytes as f64)
        );
        let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |n| n.to_string());
        let row = |journal: &Journal| {
            let cells = vec![
                plain(&journal.name),
                plain(&journal.kind),
                plain(&journal.state),
                (journal.next.saturating_sub(journal.first)).to_string(),
                journal.next.to_string(),
                journal.next.saturating_sub(journal.durable).to_string(),
                human(journal.record_rate),
                human(journal.byte_rate),
                number(journal.cursor_lag),
                number(journal.follower_lag),
                number(journal.items),
                human(journal.disk_bytes as f64),
                journal.writers.len().to_string(),
            ];
            (journal.state != "good", cells)
        };
        Sheet {
            title,
            attention: self.attention.clone(),
            texts: 3,
            head: vec![
                "journal",
                "kind",
                "state",
                "records",
                "next",
                "not durable",
                "records/s",
                "bytes/s",
                "cursor lag",
                "follower lag",
                "items",
                "disk",
                "writers",
            ],
            rows: self.journals.iter().map(row).collect(),
        }
    }
}

impl Sheet {
    fn attention(&self) -> String {
        match &self.attention {
            Some(words) => words.replace(char::is_control, " "),
            None => "Nothing needs attention.".to_owned(),
        }
    }

    /// The width of each column.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self.head.iter().map(|head| head.len()).collect();
        for (_, row) in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        widths
    }

    /// The sheet as text.
    pub(super) fn text(&self) -> String {
        let widths = self.widths();
        let line = |cells: &[String]| {
            let mut line = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                line += &match column < self.texts {
                    true => format!("{cell:<width$}  "),
                    false => format!("{cell:>width$}  "),
                };
            }
            line.trim_end().to_owned()
        };
        let head: Vec<String> = self.head.iter().map(|head| (*head).to_owned()).collect();
        let mut lines = vec![self.title.clone(), self.attention(), line(&head)];
        lines.extend(self.rows.iter().map(|(_, row)| line(row)));
        lines.join("\n")
    }
}

/// Draws sheets below each other; `lost` says why there are no newer figures.
pub(super) fn draw(frame: &mut Frame<'_>, sheets: &[Sheet], lost: Option<&str>) {
    let heights = sheets.iter().map(|_| Constraint::Fill(1));
    let areas = Layout::vertical(heights).split(frame.area());
    for (sheet, area) in sheets.iter().zip(areas.iter()) {
        let parts = Layout::vertical([Constraint::Length(3), Constraint::Min(2)]).split(*area);
        let colour = match (lost, &sheet.attention) {
            (None, None) => Color::Green,
            _ => Color::Red,
        };
        let second = lost.map_or_else(
            || sheet.attention(),
            |lost| format!("no connection: {lost}"),
        );
        let head = vec![
            Line::styled(
                sheet.title.clone(),
                Style::new().add_modifier(Modifier::BOLD),
            ),
            Line::styled(second, Style::new().fg(colour)),
        ];
        frame.render_widget(Paragraph::new(head).wrap(Wrap { trim: true }), parts[0]);
        let aligned = |cells: Vec<String>| -> Vec<Line<'static>> {
            let cells = cells.into_iter().enumerate();
            let line = cells.map(|(column, cell)| match column < sheet.texts {
                true => Line::from(cell),
                false => Line::from(cell).right_aligned(),
            });
            line.collect()
        };
        let rows = sheet.rows.iter().map(|(marked, cells)| {
            let style = match marked {
                true => Style::new().fg(Color::White).bg(Color::Red),
                false => Style::new(),
            };
            Row::new(aligned(cells.clone())).style(style)
        });
        let widths = sheet.widths();
        let widths = widths.iter().map(|width| Constraint::Length(*width as u16));
        let head = sheet.head.iter().map(|head| (*head).to_owned()).collect();
        let header = Row::new(aligned(head));
        let table = Table::new(rows, widths)
            .header(header.style(Style::new().add_modifier(Modifier::UNDERLINED)));
        frame.render_widget(table, parts[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stuck_queue_is_a_marked_row_without_control_characters() {
        let queue = r#"{"name": "a\u001b[2J", "state": "stuck", "items": 3, "oldest_seconds": 61, "open_items": 1,
            "held_seconds": 70, "held_by": "1.2.3.4:5", "waiters": 0, "in_rate": 2, "out_rate": 0, "expired_rate": 0}"#;
        let text = format!(
            r#"{{"status": "up", "count": 1, "connections": 2, "attention": "look", "total": {queue}, "queues": [{queue}]}}"#
        );
        let queues: Queues = serde_json::from_str(&text).unwrap();
        let sheet = queues.sheet();
        assert!(sheet.rows[0].0);
        let text = sheet.text();
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last[..5], ["a", "[2J", "stuck", "1.2.3.4:5", "3"]);
        assert_eq!(text.lines().nth(1), Some("look"));
    }
}
