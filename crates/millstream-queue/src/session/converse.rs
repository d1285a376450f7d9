//! A client's complete conversation as a function, for fuzzers and tests.

use super::{ServerCommand, Session, SessionOptions};
use crate::broker::{Broker, EndedBy};
use crate::config::Config;
use crate::error::QueueError;
use crate::moment::Moment;
use crate::protocol::Limits;
use crate::storage::MemoryStorage;

/// The answer of a new server to bytes in these pieces. There is no other client, so that each wait times out.
///
/// The answer must not depend on how the bytes are cut.
///
/// # Errors
/// Never with queues in memory; a fuzzer may report one as a fault.
#[doc(hidden)] // For the other crates of Millstream.
pub fn converse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<u8>, QueueError> {
    let mut now = Moment {
        wall_ms: 1_700_000_000_000,
        steady_us: 0,
    };
    let mut broker = Broker::open(MemoryStorage::new(64), Config::default(), now)?;
    let limits = Limits {
        line_bytes: 512,
        item_bytes: 4096,
    };
    let mut session = Session::new(
        &mut broker,
        SessionOptions {
            limits,
            ..SessionOptions::default()
        },
    );
    let mut answer = Vec::new();
    for piece in pieces {
        session.receive(&mut broker, piece, now);
        loop {
            if session.take_command() == Some(ServerCommand::Reload) {
                session.reloaded(&Ok(Vec::new()));
            }
            broker.commit()?;
            answer.extend_from_slice(session.output());
            session.sent(usize::MAX);
            if session.has_work() {
                session.resume(&mut broker, now);
                continue;
            }
            let Some(due_us) = broker.next_event().filter(|_| session.is_waiting()) else {
                break;
            };
            now.steady_us = due_us;
            broker.run_due(now)?;
            session.resume(&mut broker, now);
        }
    }
    session.end(&mut broker, EndedBy::Client, now);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words of the protocol and near misses, so that random sequences reach deep states.
    const WORDS: [&str; 45] = [
        "set ",
        "get ",
        "gets ",
        "q ",
        "q",
        "/open",
        "/close",
        "/abort",
        "/peek",
        "/t=5",
        "/t=",
        "0 ",
        "0 0 5",
        "0 0 0",
        "-1",
        "5",
        "hello",
        "\r\n",
        "\r\n",
        "\r\n",
        "\n",
        "\r",
        " ",
        "noreply",
        "delete ",
        "flush_all",
        "monitor q 1",
        "confirm q 1",
        "confirm q id=0 id=1",
        "/close=0",
        "/abort=1",
        "/max=2",
        "/id=7",
        "/max=",
        "99999999999",
        "q+c ",
        "add ",
        "cas ",
        "stats",
        "\u{e9}",
        "\0",
        "ms q 5\r\n",
        "quit",
        "reload\r\n",
        "set q 0 0 5\r\nhello\r\n",
    ];

    #[test]
    fn the_answer_does_not_depend_on_the_cuts() {
        let mut state = 1u64;
        let mut random = move |limit: usize| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % limit
        };
        for run in 0..2_000 {
            let sent: String = (0..random(30))
                .map(|_| WORDS[random(WORDS.len())])
                .collect();
            let whole = converse([sent.as_bytes()]).unwrap();
            for piece in [1, 2, 3, 7] {
                assert_eq!(
                    converse(sent.as_bytes().chunks(piece)).unwrap(),
                    whole,
                    "run {run}: {sent:?} in pieces of {piece}"
                );
            }
        }
    }
}
