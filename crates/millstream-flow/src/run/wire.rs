//! A connection for data, as the engine uses it: wakes sleeping workers, counts bytes, and never shows the engine a
//! lost connection.
//!
//! The engine ends a connection with an empty message, and panics if one ends without it. Such a connection is lost:
//! its process has died, which fails the run; the thread that noticed waits for the end of the process.
//!
//! The first 16 bytes of each direction are the identity of the machine since its boot: the clocks of two
//! processes can be compared if they are equal.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use timely::communication::allocator::zero_copy::stream::Stream;

use crate::cluster::Link;
use crate::control::remote::LinkState;
use crate::control::{Control, Ends, Lifecycle, Load};

/// The identity of a machine between two boots.
type BootId = [u8; 16];

/// Returns the identity of this machine since its boot; zeros if the system has none.
fn boot_id() -> BootId {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).map_or([0; 16], u128::to_be_bytes)
}

/// A connection for data to one process.
pub(super) struct Wire {
    link: Box<dyn Link>,
    process: usize,
    life: Arc<Lifecycle>,
    load: Arc<Load>,
    ends: Arc<Ends>,
    /// Whether the other machine is known.
    met: bool,
    /// Whether the engine has received bytes since the workers were woken.
    delivered: bool,
    messages: Messages,
}

impl Wire {
    /// Begins to use a connection.
    pub(super) fn begin(
        mut link: Box<dyn Link>,
        process: usize,
        control: &Arc<Control>,
    ) -> io::Result<Self> {
        link.write_all(&boot_id())?;
        link.flush()?;
        Ok(Wire::over(link, process, control))
    }

    fn over(link: Box<dyn Link>, process: usize, control: &Arc<Control>) -> Self {
        Wire {
            link,
            process,
            life: Arc::clone(&control.life),
            load: Arc::clone(&control.load),
            ends: Arc::clone(&control.ends),
            met: false,
            delivered: false,
            messages: Messages::default(),
        }
    }

    fn count(&self, add: impl FnOnce(&LinkState)) {
        if let Some(others) = self.load.others() {
            add(others.link(self.process));
        }
    }

    /// Reads the identity of the other machine.
    fn meet(&mut self) -> io::Result<()> {
        let mut theirs = [0; 16];
        self.link.read_exact(&mut theirs)?;
        self.met = true;
        let same = theirs == boot_id() && theirs != [0; 16];
        self.count(|link| link.same_clock.store(same, Ordering::Relaxed));
        Ok(())
    }

    /// Reports that the connection is lost, and waits for the end of the process.
    fn lost(&self, cause: &str) -> ! {
        self.life.link_lost(self.process, cause);
        loop {
            std::thread::park();
        }
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if std::mem::take(&mut self.delivered) {
            self.load.wake_receivers();
        }
        if self.messages.ended {
            // The engine reads once more before it passes on what has arrived with the end, and its workers need that
            // to end.
            self.ends.half_ended();
            return Ok(0);
        }
        if !self.met
            && let Err(error) = self.meet()
        {
            self.lost(&error.to_string());
        }
        loop {
            match self.link.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) => self.lost("it has closed the connection for data"),
                Err(error) => self.lost(&format!("the connection for data: {error}")),
                Ok(read) => {
                    self.delivered = true;
                    self.messages.advance(&buffer[..read]);
                    self.count(|link| {
                        link.received_bytes
                            .fetch_add(read as u64, Ordering::Relaxed);
                    });
                    return Ok(read);
                }
            }
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.link.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => self.lost(&format!("the connection for data: {error}")),
            Ok(written) => {
                self.count(|link| {
                    link.sent_bytes.fetch_add(written as u64, Ordering::Relaxed);
                });
                Ok(written)
            }
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        match self.link.flush() {
            Err(error) => self.lost(&format!("the connection for data: {error}")),
            Ok(()) => Ok(()),
        }
    }
}

impl Stream for Wire {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Wire {
            link: self.link.try_clone()?,
            process: self.process,
            life: Arc::clone(&self.life),
            load: Arc::clone(&self.load),
            ends: Arc::clone(&self.ends),
            met: false,
            delivered: false,
            messages: Messages::default(),
        })
    }
    fn set_nonblocking(&self, _: bool) -> io::Result<()> {
        Ok(()) // a `Link` blocks
    }
    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        // The last bytes are written. If the other process has closed the connection already, it needs no end.
        let _ = self.link.shutdown(how);
        self.ends.half_ended();
        Ok(())
    }
}

/// The header of a message of the engine.
const HEADER: usize = 48;
/// The place of the length of the body in it, a big-endian number of 8 bytes.
const LENGTH: usize = 32;

/// The messages in a stream of bytes: finds the empty one that ends it.
struct Messages {
    header: [u8; HEADER],
    /// The bytes of the header that have arrived.
    known: usize,
    /// The bytes of the body that have not arrived.
    body: u64,
    ended: bool,
}

impl Default for Messages {
    fn default() -> Self {
        Messages {
            header: [0; HEADER],
            known: 0,
            body: 0,
            ended: false,
        }
    }
}

impl Messages {
    fn advance(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.body > 0 {
                let part = self.body.min(bytes.len() as u64);
                self.body -= part;
                bytes = &bytes[part as usize..];
                continue;
            }
            let part = bytes.len().min(HEADER - self.known);
            self.header[self.known..self.known + part].copy_from_slice(&bytes[..part]);
            self.known += part;
            bytes = &bytes[part..];
            if self.known == HEADER {
                self.known = 0;
                let length = self.header[LENGTH..].first_chunk();
                self.body = length.map_or(0, |length| u64::from_be_bytes(*length));
                self.ended = self.body == 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(length: u64) -> Vec<u8> {
        let mut message = vec![7; HEADER];
        message[LENGTH..LENGTH + 8].copy_from_slice(&length.to_be_bytes());
        message.resize(HEADER + length as usize, 0);
        message
    }

    #[test]
    fn the_end_of_the_messages_is_found_wherever_reads_divide_them() {
        let all = [message(100), message(1), message(56), message(0)].concat();
        for size in 1..=all.len() {
            let mut messages = Messages::default();
            let mut left = all.len();
            for part in all.chunks(size) {
                assert!(!messages.ended, "{left} bytes before the end");
                messages.advance(part);
                left -= part.len();
            }
            assert!(messages.ended, "parts of {size} bytes");
        }
    }

    #[test]
    fn zeros_in_a_body_are_not_the_end() {
        let mut messages = Messages::default();
        messages.advance(&message(96)[..HEADER + 60]);
        assert!(!messages.ended);
    }

    /// A connection that has so many bytes, and whose next read would wait for the end of the other process.
    struct Waits(Vec<u8>);

    impl Read for Waits {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert!(!self.0.is_empty(), "it waits");
            let count = self.0.len().min(buffer.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0.drain(..count);
            Ok(count)
        }
    }

    impl Write for Waits {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Link for Waits {
        fn try_clone(&self) -> io::Result<Box<dyn Link>> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn shutdown(&self, _: Shutdown) -> io::Result<()> {
            Ok(())
        }
    }

    /// The engine reads once more when it finds the end, before it passes on the messages that arrived with it.
    #[test]
    fn a_read_after_the_end_does_not_wait() {
        let sent = [vec![0; 16], message(100), message(0)].concat();
        let control = Arc::new(Control::new(1, None));
        let mut wire = Wire::over(Box::new(Waits(sent)), 1, &control);
        let mut buffer = [0; 1024];
        assert_eq!(wire.read(&mut buffer).unwrap(), 2 * HEADER + 100);
        assert_eq!(wire.read(&mut buffer).unwrap(), 0);
    }

    #[test]
    fn this_machine_has_an_identity() {
        assert_ne!(boot_id(), [0; 16]);
    }
}
