//! The messages of the control links, as bytes.
//!
//! A message is a frame ([`millstream_link::frames`]) of the kind [`Kind::Message`]. Its payload is a [`Message`] in
//! the form of [`millstream_link::encode`]. Messages before the run have run id 0.
//!
//! ```
//! use millstream_cluster::protocol::{Body, Message};
//! let message = Message { run: 7, body: Body::Drained { has_input: true } };
//! let payload = message.encode();
//! assert_eq!(payload, b"\x92\x07\x81\xa7Drained\x91\xc3");
//! assert_eq!(Message::decode(&payload)?, message);
//! # Ok::<(), millstream_link::LinkError>(())
//! ```

use millstream_flow::cluster::{HandledLoad, Offer, Raise, Status};
use millstream_link::{FrameKind, LinkError};
use serde::{Deserialize, Serialize, Serializer};

/// The version of the protocol. Processes of different versions do not join.
pub const VERSION: u32 = 1;
/// The longest payload after authentication: the graph and the partitions of a large flow.
pub const PAYLOAD_MAX: usize = 16 << 20;
/// The longest cause of a death that is passed on, in bytes.
const CAUSE_MAX: usize = 64 << 10;

/// The kinds of frames on links, by their byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The first message of a caller.
    Hello = 1,
    /// The answer to it.
    Challenge = 2,
    /// The caller proves the secret and says what the connection is for.
    Call = 3,
    /// The listener proves the secret.
    Welcome = 4,
    /// The process is refused.
    Refused = 5,
    /// A [`Message`] of a control link, after the handshake.
    Message = 6,
}

impl FrameKind for Kind {
    fn of(byte: u8) -> Option<Self> {
        use Kind::{Call, Challenge, Hello, Message, Refused, Welcome};
        let all = [Hello, Challenge, Call, Welcome, Refused, Message];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    fn byte(self) -> u8 {
        self as u8
    }
}

/// A message of a control link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The run; 0 before it begins.
    pub run: u64,
    /// The content.
    pub body: Body,
}

/// How a run begins, for one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The id of the run.
    pub run: u64,
    /// The id of the cluster's state.
    pub cluster: u64,
    /// The last committed epoch of process 0.
    pub epoch: u64,
    /// Whether the prepared epoch of this process is committed.
    pub keeps_prepared: bool,
}

/// Why a process does not fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misfit {
    /// Whether another attempt may succeed without a change.
    pub again: bool,
    /// Whether the options of the run are wrong, in all processes.
    pub usage: bool,
    /// The reason.
    #[serde(serialize_with = "shortened")]
    pub text: String,
}

impl From<String> for Misfit {
    fn from(text: String) -> Self {
        Misfit {
            text,
            ..Misfit::default()
        }
    }
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    /// To process 0: what this process has.
    Offer(Box<Offer>),
    /// Process 0 does not take the process.
    Refused(Misfit),
    /// From process 0: all have joined.
    Start(Start),
    /// A sign of life.
    Alive,
    /// To process 0: the flow is built.
    Built,
    /// From process 0: all have built the flow.
    Go,
    /// To process 0: the sources have ended.
    Drained {
        /// Whether they have read anything.
        has_input: bool,
    },
    /// From process 0: the epoch ends.
    Raise(Raise),
    /// To process 0: the epoch is prepared.
    Prepared {
        /// The epoch.
        epoch: u64,
        /// Whether there is a prepared record.
        changed: bool,
        /// Whether no later epoch has parts here.
        last: bool,
    },
    /// From process 0: the epoch is committed.
    Committed {
        /// The epoch.
        epoch: u64,
        /// Whether no later epoch has parts anywhere.
        last: bool,
    },
    /// To process 0, which passes it to the senders: what workers have handled.
    Handled(Vec<HandledLoad>),
    /// To process 0: how this process is doing.
    Status(Status),
    /// A process was asked to stop.
    Stop,
    /// To process 0: this process has failed.
    Failed {
        /// Why.
        #[serde(serialize_with = "shortened")]
        cause: String,
    },
    /// From process 0: a process has died, and the run ends.
    Died {
        /// Which.
        process: usize,
        /// Why.
        #[serde(serialize_with = "shortened")]
        cause: String,
    },
    /// To process 0: a link to a process is lost.
    Lost {
        /// Which.
        process: usize,
        /// What was seen.
        #[serde(serialize_with = "shortened")]
        cause: String,
    },
    /// The sender has ended without a failure.
    Ended,
}

impl Message {
    /// Returns the payload of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        millstream_link::encode(self)
    }

    /// Returns the message of a payload.
    ///
    /// # Errors
    /// Bytes that are no message.
    pub fn decode(payload: &[u8]) -> Result<Self, LinkError> {
        millstream_link::decode(payload)
    }
}

/// The beginning of a text that would be too long to pass on.
fn shortened<S: Serializer>(text: &str, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(&text[..text.floor_char_boundary(CAUSE_MAX)])
}

#[cfg(test)]
mod tests {
    use millstream_flow::cluster::{CommitId, OfferedSource, StateOffer};
    use millstream_flow::input::InputId;

    use super::*;

    fn offer() -> Offer {
        Offer {
            flow: "orders".to_owned(),
            version: vec![("main file".to_owned(), "7f".to_owned())],
            graph: vec!["a -> b".to_owned(), String::new()],
            workers: 2,
            sources: vec![OfferedSource {
                name: "a".to_owned(),
                local: true,
                partitions: vec!["0".to_owned()],
                inputs: vec![
                    (
                        "Cargo.toml".to_owned(),
                        InputId::of_file("Cargo.toml".as_ref()),
                    ),
                    ("none".to_owned(), None),
                ],
            }],
            state: Some(StateOffer {
                cluster: Some(3),
                processes: Some(4),
                committed: Some(CommitId { epoch: 9, run: 8 }),
                prepared: Some(CommitId { epoch: 10, run: 8 }),
                members: vec![CommitId { epoch: 9, run: 8 }, CommitId::default()],
                drops: vec!["sum".to_owned()],
                names: vec!["a".to_owned(), "sum".to_owned()],
            }),
        }
    }

    fn samples() -> Vec<Body> {
        let load = HandledLoad {
            sender: 1,
            worker: 5,
            weight: 100,
            items: 10,
            turn_items: u64::MAX,
            in_flight_items_max: 4,
            congested: true,
            outbox_full: false,
        };
        let cause = || "äöü".to_owned();
        vec![
            Body::Offer(Box::new(offer())),
            Body::Refused(Misfit {
                again: true,
                usage: false,
                text: cause(),
            }),
            Body::Start(Start {
                run: 1,
                cluster: 2,
                epoch: 3,
                keeps_prepared: true,
            }),
            Body::Alive,
            Body::Built,
            Body::Go,
            Body::Drained { has_input: true },
            Body::Raise(Raise::Suspending),
            Body::Prepared {
                epoch: 4,
                changed: true,
                last: false,
            },
            Body::Committed {
                epoch: 4,
                last: true,
            },
            Body::Handled(vec![load, load]),
            Body::Status(Status {
                last: true,
                bytes: vec![1, 2, 3],
            }),
            Body::Stop,
            Body::Failed { cause: cause() },
            Body::Died {
                process: 2,
                cause: cause(),
            },
            Body::Lost {
                process: 3,
                cause: cause(),
            },
            Body::Ended,
        ]
    }

    #[test]
    fn messages_are_read_as_written_and_never_from_fewer_or_more_bytes() {
        for body in samples() {
            let message = Message { run: 77, body };
            let mut payload = message.encode();
            assert_eq!(Message::decode(&payload).unwrap(), message);
            for length in 0..payload.len() {
                assert!(Message::decode(&payload[..length]).is_err());
            }
            payload.push(0);
            assert!(Message::decode(&payload).is_err());
        }
    }

    /// The names and fields of `docs/cluster-protocol.md`.
    #[test]
    fn the_bytes_are_those_of_the_document() {
        let names = [
            "Offer",
            "Refused",
            "Start",
            "Alive",
            "Built",
            "Go",
            "Drained",
            "Raise",
            "Prepared",
            "Committed",
            "Handled",
            "Status",
            "Stop",
            "Failed",
            "Died",
            "Lost",
            "Ended",
        ];
        let cause = b"\xa6\xc3\xa4\xc3\xb6\xc3\xbc";
        let load = [
            &b"\x98\x01\x05\x64\x0a\xcf"[..],
            &[0xff; 8],
            b"\x04\xc3\xc2",
        ]
        .concat();
        for (name, body) in names.into_iter().zip(samples()) {
            let fields = match name {
                "Refused" => [&b"\x93\xc3\xc2"[..], cause].concat(),
                "Start" => b"\x94\x01\x02\x03\xc3".to_vec(),
                "Drained" => b"\x91\xc3".to_vec(),
                "Raise" => b"\xaaSuspending".to_vec(),
                "Prepared" => b"\x93\x04\xc3\xc2".to_vec(),
                "Committed" => b"\x92\x04\xc3".to_vec(),
                "Handled" => [&b"\x92"[..], &load, &load].concat(),
                "Status" => b"\x92\xc3\xc4\x03\x01\x02\x03".to_vec(),
                "Failed" => [&b"\x91"[..], cause].concat(),
                "Died" => [&b"\x92\x02"[..], cause].concat(),
                "Lost" => [&b"\x92\x03"[..], cause].concat(),
                _ => Vec::new(),
            };
            let payload = Message { run: 77, body }.encode();
            let named = [&[0xa0 | name.len() as u8], name.as_bytes(), &fields].concat();
            match name {
                "Offer" => {
                    assert!(payload.starts_with(b"\x92\x4d\x81\xa5Offer\x96\xa6orders\x91\x92"))
                }
                _ if fields.is_empty() => assert_eq!(payload, [b"\x92\x4d", &named[..]].concat()),
                _ => assert_eq!(payload, [b"\x92\x4d\x81", &named[..]].concat()),
            }
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_another_message() {
        for body in samples() {
            let message = Message { run: 77, body };
            let payload = message.encode();
            for bit in 0..payload.len() * 8 {
                let mut damaged = payload.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                // Reading ends, and takes no memory that was not received.
                assert_ne!(Message::decode(&damaged).ok(), Some(message.clone()));
            }
        }
    }

    #[test]
    fn a_very_long_cause_is_shortened() {
        let cause = "ä".repeat(CAUSE_MAX);
        let body = Body::Failed { cause };
        let payload = Message { run: 1, body }.encode();
        let Ok(Message {
            body: Body::Failed { cause },
            ..
        }) = Message::decode(&payload)
        else {
            panic!("a cause");
        };
        assert_eq!(cause.len(), CAUSE_MAX);
    }
}
