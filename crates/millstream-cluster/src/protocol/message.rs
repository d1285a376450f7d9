//! The messages of the control links, as bytes.
//!
//! A message is a frame ([`millstream_link::frames`]): its kind, the run id, and the fields of the kind. Messages before the run have run
//! id 0.
//!
//! ```
//! use millstream_cluster::protocol::{Body, Message};
//! let message = Message { run: 7, body: Body::Prepared { epoch: 3, changed: true, last: false } };
//! let (kind, payload) = message.encode();
//! assert_eq!(Message::decode(kind, &payload)?, message);
//! # Ok::<(), millstream_link::LinkError>(())
//! ```

use millstream_flow::cluster::{
    CommitId, HandledLoad, Offer, OfferedSource, Raise, StateOffer, Status,
};
use millstream_flow::input::InputId;
use millstream_link::{FrameKind, LinkError};

use super::bytes::{Fields, Writer, malformed};

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
    /// What a process offers.
    Offer = 6,
    /// The run begins.
    Start = 7,
    /// Nothing but a sign of life.
    Alive = 8,
    /// See [`Body`].
    Built = 9,
    /// See [`Body`].
    Go = 10,
    /// See [`Body`].
    Drained = 11,
    /// See [`Body`].
    Raise = 12,
    /// See [`Body`].
    Prepared = 13,
    /// See [`Body`].
    Committed = 14,
    /// See [`Body`].
    Handled = 15,
    /// See [`Body`].
    Stop = 16,
    /// See [`Body`].
    Failed = 17,
    /// See [`Body`].
    Died = 18,
    /// See [`Body`].
    Lost = 19,
    /// See [`Body`].
    Ended = 20,
    /// See [`Body`].
    Status = 21,
}

impl FrameKind for Kind {
    fn of(byte: u8) -> Option<Self> {
        use Kind::{
            Alive, Built, Call, Challenge, Committed, Died, Drained, Ended, Failed, Go, Handled,
            Hello, Lost, Offer, Prepared, Raise, Refused, Start, Status, Stop, Welcome,
        };
        let all = [
            Hello, Challenge, Call, Welcome, Refused, Offer, Start, Alive, Built, Go, Drained,
            Raise, Prepared, Committed, Handled, Stop, Failed, Died, Lost, Ended, Status,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    fn byte(self) -> u8 {
        self as u8
    }
}

/// A message of a control link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The run; 0 before it begins.
    pub run: u64,
    /// The content.
    pub body: Body,
}

/// How a run begins, for one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// To process 0: what this process has.
    Offer(Offer),
    /// Process 0 does not take the process.
    Refused {
        /// Whether another attempt may succeed without a change.
        again: bool,
        /// The reason.
        text: String,
    },
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
        cause: String,
    },
    /// From process 0: a process has died, and the run ends.
    Died {
        /// Which.
        process: usize,
        /// Why.
        cause: String,
    },
    /// To process 0: a link to a process is lost.
    Lost {
        /// Which.
        process: usize,
        /// What was seen.
        cause: String,
    },
    /// The sender has ended without a failure.
    Ended,
}

impl Message {
    /// Returns the kind and the payload of the frame.
    #[must_use]
    pub fn encode(&self) -> (Kind, Vec<u8>) {
        let mut out = Writer::default();
        out.u64(self.run);
        let kind = put(&self.body, &mut out);
        (kind, out.0)
    }

    /// Returns the message of a frame.
    ///
    /// # Errors
    /// Bytes that are no message of this kind.
    pub fn decode(kind: Kind, payload: &[u8]) -> Result<Self, LinkError> {
        let mut fields = Fields(payload);
        let run = fields.u64()?;
        let body = get(kind, &mut fields)?;
        fields.end()?;
        Ok(Message { run, body })
    }
}

fn put(body: &Body, out: &mut Writer) -> Kind {
    match body {
        Body::Offer(offer) => {
            put_offer(offer, out);
            Kind::Offer
        }
        Body::Refused { again, text } => {
            out.u8(u8::from(*again)).text(shortened(text));
            Kind::Refused
        }
        Body::Start(start) => {
            out.u64(start.run).u64(start.cluster).u64(start.epoch);
            out.u8(u8::from(start.keeps_prepared));
            Kind::Start
        }
        Body::Alive => Kind::Alive,
        Body::Built => Kind::Built,
        Body::Go => Kind::Go,
        Body::Drained { has_input } => {
            out.u8(u8::from(*has_input));
            Kind::Drained
        }
        Body::Raise(raise) => {
            out.u8(match raise {
                Raise::Next => 0,
                Raise::Ending => 1,
                Raise::Suspending => 2,
            });
            Kind::Raise
        }
        Body::Prepared {
            epoch,
            changed,
            last,
        } => {
            out.u64(*epoch).u8(u8::from(*changed)).u8(u8::from(*last));
            Kind::Prepared
        }
        Body::Committed { epoch, last } => {
            out.u64(*epoch).u8(u8::from(*last));
            Kind::Committed
        }
        Body::Handled(loads) => {
            out.list(loads, put_load);
            Kind::Handled
        }
        Body::Status(status) => {
            out.u8(u8::from(status.last)).bytes(&status.bytes);
            Kind::Status
        }
        Body::Stop => Kind::Stop,
        Body::Failed { cause } => {
            out.text(shortened(cause));
            Kind::Failed
        }
        Body::Died { process, cause } => {
            out.u64(*process as u64).text(shortened(cause));
            Kind::Died
        }
        Body::Lost { process, cause } => {
            out.u64(*process as u64).text(shortened(cause));
            Kind::Lost
        }
        Body::Ended => Kind::Ended,
    }
}

fn get(kind: Kind, fields: &mut Fields<'_>) -> Result<Body, LinkError> {
    Ok(match kind {
        Kind::Hello | Kind::Challenge | Kind::Call | Kind::Welcome => return Err(malformed()),
        Kind::Offer => Body::Offer(get_offer(fields)?),
        Kind::Refused => Body::Refused {
            again: fields.flag()?,
            text: fields.text()?,
        },
        Kind::Start => Body::Start(Start {
            run: fields.u64()?,
            cluster: fields.u64()?,
            epoch: fields.u64()?,
            keeps_prepared: fields.flag()?,
        }),
        Kind::Alive => Body::Alive,
        Kind::Built => Body::Built,
        Kind::Go => Body::Go,
        Kind::Drained => Body::Drained {
            has_input: fields.flag()?,
        },
        Kind::Raise => Body::Raise(match fields.u8()? {
            0 => Raise::Next,
            1 => Raise::Ending,
            2 => Raise::Suspending,
            _ => return Err(malformed()),
        }),
        Kind::Prepared => Body::Prepared {
            epoch: fields.u64()?,
            changed: fields.flag()?,
            last: fields.flag()?,
        },
        Kind::Committed => Body::Committed {
            epoch: fields.u64()?,
            last: fields.flag()?,
        },
        Kind::Handled => Body::Handled(fields.list(get_load)?),
        Kind::Status => Body::Status(Status {
            last: fields.flag()?,
            bytes: fields.bytes()?.to_vec(),
        }),
        Kind::Stop => Body::Stop,
        Kind::Failed => Body::Failed {
            cause: fields.text()?,
        },
        Kind::Died => Body::Died {
            process: fields.size()?,
            cause: fields.text()?,
        },
        Kind::Lost => Body::Lost {
            process: fields.size()?,
            cause: fields.text()?,
        },
        Kind::Ended => Body::Ended,
    })
}

/// The beginning of a text that would be too long to pass on.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(CAUSE_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn put_load(out: &mut Writer, load: &HandledLoad) {
    out.u64(load.sender as u64).u64(load.worker as u64);
    out.u64(load.weight).u64(load.items);
    out.u64(load.turn_items).u64(load.in_flight_items_max);
    out.u8(u8::from(load.congested))
        .u8(u8::from(load.outbox_full));
}

fn get_load(fields: &mut Fields<'_>) -> Result<HandledLoad, LinkError> {
    Ok(HandledLoad {
        sender: fields.size()?,
        worker: fields.size()?,
        weight: fields.u64()?,
        items: fields.u64()?,
        turn_items: fields.u64()?,
        in_flight_items_max: fields.u64()?,
        congested: fields.flag()?,
        outbox_full: fields.flag()?,
    })
}

fn put_offer(offer: &Offer, out: &mut Writer) {
    let text = |out: &mut Writer, text: &String| {
        out.text(text);
    };
    out.text(&offer.flow);
    out.list(&offer.version, |out, (part, version)| {
        out.text(part).text(version);
    });
    out.list(&offer.graph, text);
    out.u64(offer.workers as u64);
    out.list(&offer.sources, put_source);
    out.u8(u8::from(offer.state.is_some()));
    if let Some(state) = &offer.state {
        out.optional(state.cluster)
            .optional(state.processes.map(|processes| processes as u64))
            .optional(state.committed.map(|commit| commit.epoch))
            .optional(state.committed.map(|commit| commit.run))
            .optional(state.prepared.map(|commit| commit.epoch))
            .optional(state.prepared.map(|commit| commit.run));
        out.list(&state.members, |out, commit| {
            out.u64(commit.epoch).u64(commit.run);
        });
    }
}

fn put_source(out: &mut Writer, source: &OfferedSource) {
    out.text(&source.name).u8(u8::from(source.local));
    out.list(&source.partitions, |out, name| {
        out.text(name);
    });
    out.list(&source.inputs, |out, (path, id)| {
        // What cannot be encoded is not compared.
        let id = id.as_ref().and_then(|id| id.encode().ok());
        out.text(path).bytes(&id.unwrap_or_default());
    });
}

fn get_source(fields: &mut Fields<'_>) -> Result<OfferedSource, LinkError> {
    Ok(OfferedSource {
        name: fields.text()?,
        local: fields.flag()?,
        partitions: fields.list(Fields::text)?,
        inputs: fields.list(|fields| {
            let (path, id) = (fields.text()?, fields.bytes()?);
            let id = (!id.is_empty()).then(|| InputId::decode(id));
            Ok((path, id.transpose().map_err(|_| malformed())?))
        })?,
    })
}

fn get_offer(fields: &mut Fields<'_>) -> Result<Offer, LinkError> {
    Ok(Offer {
        flow: fields.text()?,
        version: fields.list(|fields| Ok((fields.text()?, fields.text()?)))?,
        graph: fields.list(Fields::text)?,
        workers: fields.size()?,
        sources: fields.list(get_source)?,
        state: match fields.flag()? {
            false => None,
            true => Some(StateOffer {
                cluster: fields.optional()?,
                processes: fields.optional()?.map(|processes| processes as usize),
                committed: get_optional_commit(fields)?,
                prepared: get_optional_commit(fields)?,
                members: fields.list(|fields| {
                    let (epoch, run) = (fields.u64()?, fields.u64()?);
                    Ok(CommitId { epoch, run })
                })?,
            }),
        },
    })
}

fn get_optional_commit(fields: &mut Fields<'_>) -> Result<Option<CommitId>, LinkError> {
    let commit = fields.optional()?.zip(fields.optional()?);
    Ok(commit.map(|(epoch, run)| CommitId { epoch, run }))
}

#[cfg(test)]
mod tests {
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
            Body::Offer(offer()),
            Body::Refused {
                again: true,
                text: cause(),
            },
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
            let (kind, mut payload) = message.encode();
            assert_eq!(Message::decode(kind, &payload).unwrap(), message);
            for length in 0..payload.len() {
                assert!(Message::decode(kind, &payload[..length]).is_err());
            }
            payload.push(0);
            assert!(Message::decode(kind, &payload).is_err());
        }
    }

    #[test]
    fn damaged_bytes_are_an_error_or_another_message() {
        for body in samples() {
            let (kind, payload) = Message { run: 77, body }.encode();
            for bit in 0..payload.len() * 8 {
                let mut damaged = payload.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                // Reading ends, and takes no memory that was not received.
                let _either = Message::decode(kind, &damaged);
            }
        }
    }

    #[test]
    fn a_very_long_cause_is_shortened() {
        let cause = "ä".repeat(CAUSE_MAX);
        let body = Body::Failed { cause };
        let (kind, payload) = Message { run: 1, body }.encode();
        let Ok(Message {
            body: Body::Failed { cause },
            ..
        }) = Message::decode(kind, &payload)
        else {
            panic!("a cause");
        };
        assert_eq!(cause.len(), CAUSE_MAX);
    }
}
