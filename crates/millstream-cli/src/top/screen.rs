//! A terminal in raw mode on its other screen, as it was before when this is dropped.

use std::io::{Result, Write, stdout};
use std::time::Duration;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::style::{Attribute, Color, Colors, SetAttribute, SetColors};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode, size,
};
use crossterm::{execute, queue};

use super::section::{Line, Tone};

/// The terminal of the program.
pub(super) struct Screen(());

impl Screen {
    pub(super) fn open() -> Result<Self> {
        enable_raw_mode()?;
        let screen = Screen(());
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Shows the lines that `make` makes for a width and a height.
    pub(super) fn draw(&mut self, make: impl FnOnce((usize, usize)) -> Vec<Line>) -> Result<()> {
        let (width, height) = size()?;
        let (width, height) = (usize::from(width), usize::from(height));
        let lines = make((width, height));
        let mut out = stdout().lock();
        for (row, line) in (0..).zip(lines.iter().take(height)) {
            queue!(out, MoveTo(0, row))?;
            paint(&mut out, line.tone)?;
            let shown: String = line.text.chars().take(width).collect();
            write!(out, "{shown}")?;
            queue!(
                out,
                SetAttribute(Attribute::Reset),
                Clear(ClearType::UntilNewLine)
            )?;
        }
        if lines.len() < height {
            queue!(
                out,
                MoveTo(0, lines.len() as u16),
                Clear(ClearType::FromCursorDown)
            )?;
        }
        out.flush()
    }

    /// Waits for a key or a change of the size: true for a key that ends the program, `None` if nothing comes within `limit`.
    pub(super) fn ends_within(&mut self, limit: Duration) -> Result<Option<bool>> {
        if !event::poll(limit)? {
            return Ok(None);
        }
        Ok(Some(
            matches!(event::read()?, Event::Key(key) if is_end(key)),
        ))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = execute!(stdout(), Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

fn paint(out: &mut impl Write, tone: Tone) -> Result<()> {
    let colour = match tone {
        Tone::Plain => return Ok(()),
        Tone::Title => return queue!(out, SetAttribute(Attribute::Bold)),
        Tone::Head => return queue!(out, SetAttribute(Attribute::Underlined)),
        Tone::Marked => Colors::new(Color::White, Color::DarkRed),
        Tone::Good => Colors::new(Color::DarkGreen, Color::Reset),
        Tone::Bad => Colors::new(Color::DarkRed, Color::Reset),
        Tone::Waits => Colors::new(Color::DarkYellow, Color::Reset),
    };
    queue!(out, SetColors(colour))
}

fn is_end(key: KeyEvent) -> bool {
    let interrupts =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    interrupts || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}
