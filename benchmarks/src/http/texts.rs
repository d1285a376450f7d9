//! The requests of the load, and its items.
//!
//! An item is a line of JSON with an id of 16 hexadecimal digits: the connection, the number of the request on it, and
//! the line.

/// The part of an item before its id.
const BEFORE: &str = "{\"id\":\"";
/// The part of an item after its id.
const AFTER: &str = "\",\"symbol\":\"VOD.L\",\"quantity\":100,\"price\":72.5}";
const ID_BYTES: usize = 16;

/// What an item is: its connection, its request, its line.
pub(super) type Id = (u32, u32, u8);

/// A request, whose ids are set before it is sent.
pub(super) struct Request {
    bytes: Vec<u8>,
    /// Where each id is.
    ids: Vec<usize>,
}

impl Request {
    pub(super) fn new(lines: u32) -> Self {
        let line_bytes = BEFORE.len() + ID_BYTES + AFTER.len() + 1;
        let length = line_bytes * lines as usize;
        let head = format!(
            "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-ndjson\r\nContent-Length: {length}\r\n\r\n"
        );
        let first = head.len() + BEFORE.len();
        let line = format!("{BEFORE}{}{AFTER}\n", "0".repeat(ID_BYTES));
        let ids = (0..lines as usize).map(|line| first + line * line_bytes);
        Request {
            ids: ids.collect(),
            bytes: (head + &line.repeat(lines as usize)).into_bytes(),
        }
    }

    /// The bytes of this request.
    pub(super) fn of(&mut self, connection: u32, request: u32) -> &[u8] {
        for (line, &at) in (0_u64..).zip(&self.ids) {
            let id = u64::from(connection) << 40 | u64::from(request) << 8 | line;
            for (digit, byte) in (0..).zip(&mut self.bytes[at..at + ID_BYTES]) {
                let value = (id >> (60 - 4 * digit)) as usize & 15;
                *byte = b"0123456789abcdef"[value];
            }
        }
        &self.bytes
    }
}

/// The id of an item.
pub(super) fn id_of(item: &[u8]) -> Option<Id> {
    let rest = item.strip_prefix(BEFORE.as_bytes())?;
    let (digits, rest) = rest.split_at_checked(ID_BYTES)?;
    if rest != AFTER.as_bytes() {
        return None;
    }
    let id = u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    let connection = u32::try_from(id >> 40).ok()?;
    Some((connection, (id >> 8) as u32, id as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_the_id_of_its_request() {
        let mut request = Request::new(3);
        let text = std::str::from_utf8(request.of(70_000, 4_000_000_000)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())));
        for (number, line) in (0..).zip(body.lines()) {
            let item: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(item["quantity"], 100);
            let id = id_of(line.as_bytes());
            assert_eq!(id, Some((70_000, 4_000_000_000, number)));
        }
        assert_eq!(body.lines().count(), 3);
        assert_eq!(id_of(b"{}"), None);
    }
}
