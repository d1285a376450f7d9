//! Replies, and the encoding of items and numbers.

use crate::item::Item;

/// A `set` was stored.
pub const STORED: &[u8] = b"STORED\r\n";
/// The queue is full, or the server accepts no sets now.
pub const NOT_STORED: &[u8] = b"NOT_STORED\r\n";
/// No such queue.
pub const NOT_FOUND: &[u8] = b"NOT_FOUND\r\n";
/// A queue was deleted.
pub const DELETED: &[u8] = b"DELETED\r\n";
/// The time of an open item begins anew.
pub const TOUCHED: &[u8] = b"TOUCHED\r\n";
/// The end of a reply.
pub const END: &[u8] = b"END\r\n";
/// The request was done.
pub const OK: &[u8] = b"OK\r\n";
/// Kestrel's answer to `flush_all`.
pub const FLUSHED_ALL: &[u8] = b"Flushed all queues.\r\n";
/// Kestrel's answer to `reload`.
pub const RELOADED: &[u8] = b"Reloaded config.\r\n";
/// The command does not exist, or is not possible now.
pub const ERROR: &[u8] = b"ERROR\r\n";
/// The answer to `mn`.
pub const META_NOOP: &[u8] = b"MN\r\n";
/// Words are missing, too many, or not numbers.
pub const BAD_FORMAT: &[u8] = b"CLIENT_ERROR bad command line format\r\n";
/// The block of a `set` does not end after the length in its line.
pub const BAD_CHUNK: &[u8] = b"CLIENT_ERROR bad data chunk\r\n";
/// A line over the limit.
pub const LINE_TOO_LONG: &[u8] = b"CLIENT_ERROR line too long\r\n";
/// An item over the server's limit.
pub const TOO_LARGE: &[u8] = b"SERVER_ERROR object too large for cache\r\n";
/// The version of memcached whose text protocol this is, as far as it is supported. Clients compute with it:
/// libmemcached takes a first number of 0 for an error, and expects the answers of later releases, to wrong lines among
/// others, from 1.6 on.
pub const PROTOCOL_VERSION: &str = "1.5.0";
/// `mg`, `ms`, `md` and the other meta commands.
pub const NO_META: &[u8] =
    b"CLIENT_ERROR meta commands are not supported, use the classic ones\r\n";
/// The client must authenticate first.
pub const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
/// Name or password is wrong.
pub const AUTH_FAILED: &[u8] = b"CLIENT_ERROR authentication failure\r\n";

/// Appends `CLIENT_ERROR why`.
#[cold]
pub fn client_error(out: &mut Vec<u8>, why: &dyn std::fmt::Display) {
    line(out, "CLIENT_ERROR ", why);
}

/// Appends `SERVER_ERROR why`.
#[cold]
pub fn server_error(out: &mut Vec<u8>, why: &dyn std::fmt::Display) {
    line(out, "SERVER_ERROR ", why);
}

/// Appends the answer to `version`.
pub fn version(out: &mut Vec<u8>) {
    line(out, "VERSION ", &PROTOCOL_VERSION);
}

fn line(out: &mut Vec<u8>, word: &str, why: &dyn std::fmt::Display) {
    // The text may quote a peer's bytes: it must stay one line.
    let text = why.to_string().replace(['\r', '\n'], " ");
    out.extend_from_slice(word.as_bytes());
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends `VALUE KEY FLAGS BYTES [ID]` and the item, without `END`.
#[inline]
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, id: Option<u64>, body: &[u8]) {
    out.reserve(key.len() + body.len() + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(out, u64::from(flags));
    out.push(b' ');
    number(out, body.len() as u64);
    if let Some(id) = id {
        out.push(b' ');
        number(out, id);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(body);
    out.extend_from_slice(b"\r\n");
}

/// Appends `VALUE KEY FLAGS BYTES ID ADDED_MS EXPIRY_MS DELIVERIES FIRST_FAILED_MS` and the item, without `END`. For
/// an item from another queue the line continues with its state there: `QUEUE REASON LEFT_MS DELIVERIES EXPIRY_MS`.
pub fn value_with_details(out: &mut Vec<u8>, key: &[u8], item: &Item) {
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    for word in [
        u64::from(item.flags),
        item.body.len() as u64,
        item.id,
        item.added_ms,
        item.expiry_ms,
        u64::from(item.deliveries),
        item.first_failed_ms(),
    ] {
        out.push(b' ');
        number(out, word);
    }
    if let Some(origin) = item.origin() {
        out.push(b' ');
        out.extend_from_slice(origin.queue.as_bytes());
        out.push(b' ');
        out.extend_from_slice(origin.reason.as_str().as_bytes());
        for word in [
            origin.left_ms,
            u64::from(origin.deliveries),
            origin.expiry_ms,
        ] {
            out.push(b' ');
            number(out, word);
        }
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(&item.body);
    out.extend_from_slice(b"\r\n");
}

/// Appends `STAT name value`.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &dyn std::fmt::Display) {
    out.extend_from_slice(format!("STAT {name} {value}\r\n").as_bytes());
}

/// Appends a number in decimal.
#[inline]
pub fn number(out: &mut Vec<u8>, mut number: u64) {
    if number < 10 {
        out.push(b'0' + number as u8);
        return;
    }
    let mut digits = [0; 20];
    let mut at = digits.len();
    while number > 0 {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_display_writes_them() {
        for n in [0, 1, 9, 10, 99, 100, 12_345, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            number(&mut out, n);
            assert_eq!(out, n.to_string().into_bytes());
        }
    }

    #[test]
    fn an_error_stays_on_one_line() {
        let mut out = Vec::new();
        client_error(&mut out, &"a\r\nSTORED");
        assert_eq!(out, b"CLIENT_ERROR a  STORED\r\n");
    }
}
