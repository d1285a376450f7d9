//! A terminal in raw mode on its other screen, as it was before when this is dropped. Drawing is the ANSI sequences of
//! ECMA-48 that every terminal of today has.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal, Result, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::stdio::stdout;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
use signal_hook::flag;

use super::section::{Line, Tone};

/// To the other screen, without a cursor; and back.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l";
const LEAVE: &[u8] = b"\x1b[?25h\x1b[?1049l";
/// Sends the cursor to the first line; erases the line of the cursor; erases all lines below it.
const HOME: &str = "\x1b[H";
const ERASE_LINE: &str = "\r\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";
const RESET: &str = "\x1b[0m";
/// The size of a terminal that does not know its own.
const WIDTH: usize = 80;
const HEIGHT: usize = 24;

/// The terminal of the program.
pub(super) struct Screen {
    keys: OwnedFd,
    before: Termios,
    stop: Arc<AtomicBool>,
}

impl Screen {
    pub(super) fn open() -> Result<Self> {
        let stdin = std::io::stdin();
        let keys = if stdin.is_terminal() {
            stdin.as_fd().try_clone_to_owned()?
        } else {
            File::open("/dev/tty")?.into()
        };
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&stop))?;
        }
        // Another size needs no flag: the signal ends the wait for a key.
        flag::register(SIGWINCH, Arc::default())?;
        let before = tcgetattr(&keys)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&keys, OptionalActions::Now, &raw)?;
        let screen = Screen { keys, before, stop };
        put(ENTER)?;
        Ok(screen)
    }

    /// Shows the lines that `make` makes for a width and a height.
    pub(super) fn draw(&mut self, make: impl FnOnce((usize, usize)) -> Vec<Line>) -> Result<()> {
        let size = tcgetwinsize(stdout())?;
        let or = |length: u16, default| match length {
            0 => default,
            length => usize::from(length),
        };
        let width = or(size.ws_col, WIDTH);
        let height = or(size.ws_row, HEIGHT);
        let lines = make((width, height));
        put(drawn(&lines, width, height).as_bytes())
    }

    /// Waits for a key or a change of the size: true for what ends the program, `None` if nothing comes within `limit`.
    pub(super) fn ends_within(&mut self, limit: Duration) -> Result<Option<bool>> {
        let limit = Timespec::try_from(limit).map_err(std::io::Error::other)?;
        let mut polled = [PollFd::new(&self.keys, PollFlags::IN)];
        let come = poll(&mut polled, Some(&limit));
        if self.stop.load(Ordering::Relaxed) {
            return Ok(Some(true));
        }
        match come {
            Ok(0) => Ok(None),
            Ok(_) => {
                let mut keys = [0; 64];
                let length = read(&self.keys, &mut keys)?;
                // A terminal that has ended reads as nothing.
                Ok(Some(length == 0 || has_end(&keys[..length])))
            }
            Err(Errno::INTR) => Ok(Some(false)),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = put(LEAVE);
        let _ = tcsetattr(&self.keys, OptionalActions::Now, &self.before);
    }
}

fn put(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// The lines as a terminal of this size shows them. A line is erased before it is written: after a character in the
/// last column the cursor is on it.
fn drawn(lines: &[Line], width: usize, height: usize) -> String {
    let mut drawn = HOME.to_owned();
    for (row, line) in lines.iter().take(height).enumerate() {
        let next = if row > 0 { "\n" } else { "" };
        let text: String = line.text.chars().take(width).collect();
        // Writing to a string does not fail.
        let _ = write!(drawn, "{next}{ERASE_LINE}{}{text}{RESET}", style(line.tone));
    }
    if lines.len() < height {
        let _ = write!(drawn, "\n\r{ERASE_BELOW}");
    }
    drawn
}

fn style(tone: Tone) -> &'static str {
    match tone {
        Tone::Plain => "",
        Tone::Title => "\x1b[1m",
        Tone::Head => "\x1b[4m",
        Tone::Good => "\x1b[32m",
        Tone::Bad => "\x1b[31m",
        Tone::Marked => "\x1b[97;41m",
        Tone::Waits => "\x1b[33m",
    }
}

/// Whether one of the keys is `q`, Ctrl-C, or Escape. Other keys begin with the byte of Escape: `ESC [` up to a letter,
/// `ESC O` and a letter.
fn has_end(mut keys: &[u8]) -> bool {
    const ESCAPE: u8 = 0x1b;
    const CTRL_C: u8 = 0x03;
    loop {
        keys = match keys {
            [] => return false,
            [ESCAPE] | [b'q' | CTRL_C, ..] => return true,
            [ESCAPE, b'[', more @ ..] => {
                let end = more.iter().position(|byte| (0x40..=0x7e).contains(byte));
                end.map_or(&[][..], |end| &more[end + 1..])
            }
            [ESCAPE, b'O', _, more @ ..] | [_, more @ ..] => more,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_end_it_are_told_from_others() {
        for keys in [
            &b"q"[..],
            b"\x03",
            b"\x1b",
            b"xq",
            b"\x1b[Aq",
            b"\x1bOPq",
            b"\x1bq",
        ] {
            assert!(has_end(keys), "{keys:?}");
        }
        for keys in [
            &b""[..],
            b"x",
            b"\x1b[A",
            b"\x1bOP",
            b"\x1b[",
            b"\x1b[3~",
            b"\x1b[113;5u",
        ] {
            assert!(!has_end(keys), "{keys:?}");
        }
    }

    #[test]
    fn lines_are_cut_to_the_screen_and_what_is_below_is_erased() {
        let line = |tone, text: &str| Line {
            tone,
            text: text.to_owned(),
        };
        let lines = [line(Tone::Bad, "abcdef"), line(Tone::Plain, "gh")];
        let first = "\x1b[H\r\x1b[K\x1b[31mabcd\x1b[0m";
        assert_eq!(drawn(&lines, 4, 1), first);
        let both = format!("{first}\n\r\x1b[Kgh\x1b[0m");
        assert_eq!(drawn(&lines, 4, 2), both);
        assert_eq!(drawn(&lines, 4, 3), both + "\n\r\x1b[J");
    }
}
