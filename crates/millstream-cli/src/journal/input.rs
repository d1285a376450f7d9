//! What comes in: standard input or a file, cut into frames as it comes.
//!
//! A read waits for input without holding back a signal: Ctrl-C ends the waiting, and what has been read is still
//! taken.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;

use millstream_flow::framing::{Cutter, Framing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::outcome::Outcome;
use crate::stop::Stop;

const READ_BYTES: usize = 256 << 10;
/// A signal may come just before the wait, so that it is not for long.
const WAIT: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Frames from standard input or a file.
pub(super) struct Input {
    file: File,
    name: String,
    cutter: Cutter,
    buffer: Vec<u8>,
    filled: usize,
    /// Bytes at the front that belong to frames which were taken.
    consumed: usize,
    spans: Vec<(u32, u32)>,
    fault: Option<String>,
    ended: bool,
}

impl Input {
    /// The file at `path`, or standard input. No frame is longer than `max_frame` bytes.
    pub(super) fn open(path: Option<&Path>, framing: Framing, max_frame: usize) -> Outcome<Self> {
        let (file, name) = match path {
            Some(path) => (File::open(path), format!("'{}'", path.display())),
            None => {
                let own = io::stdin().as_fd().try_clone_to_owned();
                (own.map(File::from), "standard input".to_owned())
            }
        };
        let file = file.map_err(|error| format!("cannot read {name}: {error}"))?;
        Ok(Input {
            file,
            name,
            cutter: Cutter::new(framing, max_frame),
            buffer: vec![0; READ_BYTES],
            filled: 0,
            consumed: 0,
            spans: Vec::new(),
            fault: None,
            ended: false,
        })
    }

    /// Reads once; complete frames are in [`frames`](Self::frames). Returns false at the end and after a signal.
    pub(super) fn read(&mut self, stop: &Stop) -> Outcome<bool> {
        self.spans.clear();
        self.buffer.copy_within(self.consumed..self.filled, 0);
        self.filled -= std::mem::take(&mut self.consumed);
        if let Some(fault) = self.fault.take() {
            return Err(format!("{}: {fault}", self.name).into());
        }
        while !self.ended {
            if stop.requested() {
                return Ok(false);
            }
            if !self.is_ready()? {
                continue;
            }
            if self.filled == self.buffer.len() {
                // Only one frame can fill it all, and the cutter has a limit on that.
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            match self.file.read(&mut self.buffer[self.filled..]) {
                Ok(0) => self.end(),
                Ok(count) => self.cut(count),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("cannot read {}: {error}", self.name).into()),
            }
            return Ok(true);
        }
        Ok(false)
    }

    fn is_ready(&self) -> Outcome<bool> {
        let mut waiting = [PollFd::new(&self.file, PollFlags::IN)];
        match poll(&mut waiting, Some(&WAIT)) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(format!("cannot wait for {}: {error}", self.name).into()),
        }
    }

    /// Frames before a wrong one are good: the next read returns the error.
    fn cut(&mut self, count: usize) {
        self.filled += count;
        let before = self.cutter.offset();
        let outcome = self
            .cutter
            .cut(&self.buffer[..self.filled], 0, &mut self.spans);
        self.consumed = (self.cutter.offset() - before) as usize;
        self.fault = outcome.err().map(|fault| fault.to_string());
    }

    fn end(&mut self) {
        let rest = &self.buffer[..self.filled];
        let outcome = self.cutter.finish(rest, 0, &mut self.spans);
        self.ended = true;
        self.fault = outcome.err().map(|fault| fault.to_string());
        self.consumed = self.filled;
    }

    /// The frames of the last read.
    pub(super) fn frames(&self) -> impl ExactSizeIterator<Item = &[u8]> + Clone {
        self.spans
            .iter()
            .map(|&(start, end)| &self.buffer[start as usize..end as usize])
    }
}
