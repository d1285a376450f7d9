//! What a server is asked and what it must answer: memcache, or the list type of Redis.
//!
//! An item goes in at one end and out at the other, whatever the words for that are.
//!
//! ```text
//! memcache   set bench 0 0 64 | ...           STORED
//!            get bench                        VALUE bench 0 64 | ... | END
//! Redis      LPUSH bench ...                  :N        (the length of the list)
//!            RPOP bench                       $64 | ...
//! ```

use std::io::{self, Read, Write};
use std::time::Duration;

use millstream_queue::address::Address;

const QUEUE: &str = "bench";
/// A server that does not answer for so long has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The protocol that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `set` and `get`.
    Memcache,
    /// `LPUSH` and `RPOP`.
    RedisList,
}

/// What is sent and what must come back, for all requests that are in flight together.
pub(super) struct Words {
    pub(super) sets: Vec<u8>,
    pub(super) stored: Answer,
    pub(super) gets: Vec<u8>,
    pub(super) values: Answer,
}

/// What must come back.
pub(super) enum Answer {
    /// These bytes.
    Exact(Vec<u8>),
    /// So many numbers, as Redis writes them.
    Numbers(usize),
}

impl Words {
    pub(super) fn new(dialect: Dialect, length: usize, in_flight: usize) -> Self {
        let body = "x".repeat(length);
        let all = |one: String| one.repeat(in_flight).into_bytes();
        let call = |words: &[&str]| {
            let bulks: String = words
                .iter()
                .map(|word| format!("${}\r\n{word}\r\n", word.len()))
                .collect();
            all(format!("*{}\r\n{bulks}", words.len()))
        };
        match dialect {
            Dialect::Memcache => Words {
                sets: all(format!("set {QUEUE} 0 0 {length}\r\n{body}\r\n")),
                stored: Answer::Exact(all("STORED\r\n".to_owned())),
                gets: all(format!("get {QUEUE}\r\n")),
                values: Answer::Exact(all(format!(
                    "VALUE {QUEUE} 0 {length}\r\n{body}\r\nEND\r\n"
                ))),
            },
            Dialect::RedisList => Words {
                sets: call(&["LPUSH", QUEUE, &body]),
                stored: Answer::Numbers(in_flight),
                gets: call(&["RPOP", QUEUE]),
                values: Answer::Exact(all(format!("${length}\r\n{body}\r\n"))),
            },
        }
    }
}

impl Answer {
    /// The bytes or lines seen with `came`, if `came` may follow the `seen` ones of the answer so far.
    pub(super) fn follow(&self, seen: usize, came: &[u8]) -> Option<usize> {
        match self {
            Answer::Exact(all) => {
                let to = seen + came.len();
                (all.get(seen..to) == Some(came)).then_some(to)
            }
            Answer::Numbers(count) => {
                let number = |byte: &u8| byte.is_ascii_digit() || b":\r\n".contains(byte);
                let to = seen + came.iter().filter(|&&byte| byte == b'\n').count();
                (came.iter().all(number) && to <= *count).then_some(to)
            }
        }
    }

    /// Whether the answer is complete.
    pub(super) fn is_complete(&self, seen: usize) -> bool {
        match self {
            Answer::Exact(all) => seen == all.len(),
            Answer::Numbers(count) => seen == *count,
        }
    }
}

/// The queue is there and empty, whatever a load before has left: what is measured is not how long a first item takes,
/// for which a server may have to make files.
pub(super) fn begin_queue(dialect: Dialect, server: &Address) -> io::Result<()> {
    let mut stream = server.connect()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let words = match dialect {
        Dialect::Memcache => [
            format!("set {QUEUE} 0 0 1\r\nx\r\n"),
            format!("flush {QUEUE}\r\n"),
        ],
        Dialect::RedisList => [format!("LPUSH {QUEUE} x\r\n"), format!("DEL {QUEUE}\r\n")],
    };
    for word in words {
        stream.write_all(word.as_bytes())?;
        let _answer = stream.read(&mut [0; 64])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_come_in_pieces_but_not_be_another() {
        let words = |dialect| Words::new(dialect, 2, 2);
        let redis = words(Dialect::RedisList);
        assert_eq!(redis.gets, b"*2\r\n$4\r\nRPOP\r\n$5\r\nbench\r\n".repeat(2));
        let seen = redis.stored.follow(0, b":1\r\n:1").unwrap();
        assert!(!redis.stored.is_complete(seen));
        let seen = redis.stored.follow(seen, b"2\r\n").unwrap();
        assert!(redis.stored.is_complete(seen));
        assert_eq!(redis.stored.follow(seen, b":3\r\n"), None);
        assert_eq!(redis.stored.follow(0, b"-ERR\r\n"), None);
        let values = words(Dialect::Memcache).values;
        let seen = values.follow(0, b"VALUE bench 0 2\r\nx").unwrap();
        assert_eq!(values.follow(seen, b"y"), None);
        let seen = values
            .follow(seen, b"x\r\nEND\r\nVALUE bench 0 2\r\nxx\r\nEND\r\n")
            .unwrap();
        assert!(values.is_complete(seen));
    }
}
