//! The two ends of an edge on one worker: conversion between a batch and the content of a packet.
//!
//! In memory a batch is boxed and passed unchanged. As bytes it is encoded at the sender and decoded at the receiver,
//! by the codec that both ends find by the type of the batch. In a run of several processes it is encoded for workers
//! of other processes only.

use std::ffi::OsStr;
use std::ops::Range;

use crate::batch::{Batch, BatchCodec};
use crate::control::Load;
use crate::dataflow::packet::{Content, Packet, bytes};
use crate::error::{Cause, Failure, FlowError, chain, context};
use crate::node::{DescribedEdge, EdgeId, Node};
use crate::saved::codec::Codecs;

/// The form of batches between operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Packets {
    /// Unchanged, in the memory of the process: nothing is encoded.
    InMemory,
    /// As bytes, as between processes: each batch is encoded at the sender, also if it is sent to the same
    /// worker, and decoded at the receiver. Each type of items on an edge must have a codec, or the run does
    /// not start. For tests.
    Bytes,
}

impl Packets {
    /// The form that the environment variable `MILLSTREAM_PACKETS` names, `bytes` or `memory`; in memory if it is not
    /// set. With it a whole test suite can run with bytes.
    ///
    /// # Errors
    /// The variable has another value.
    pub fn of_environment() -> Result<Self, FlowError> {
        Packets::named(std::env::var_os("MILLSTREAM_PACKETS").as_deref())
    }

    fn named(value: Option<&OsStr>) -> Result<Self, FlowError> {
        match value.map(OsStr::as_encoded_bytes) {
            None | Some(b"memory") => Ok(Packets::InMemory),
            Some(b"bytes") => Ok(Packets::Bytes),
            Some(_) => Err(FlowError::Usage(format!(
                "MILLSTREAM_PACKETS is {:?}; it must be \"bytes\" or \"memory\"",
                value.unwrap_or_default()
            ))),
        }
    }
}

/// The form of batches between the workers of a run.
#[derive(Clone)]
pub(crate) enum Form<'a> {
    /// All in memory.
    InMemory,
    /// All as bytes.
    Bytes(&'a Codecs),
    /// In memory to the workers of this process, as bytes to others.
    BytesBeyond(Range<usize>, &'a Codecs),
}

impl<'a> Form<'a> {
    pub(crate) fn of(packets: Option<Packets>, load: &Load, codecs: &'a Codecs) -> Self {
        match (packets, load.others()) {
            (Some(Packets::Bytes), _) => Form::Bytes(codecs),
            (_, Some(_)) => Form::BytesBeyond(load.local(), codecs),
            (_, None) => Form::InMemory,
        }
    }

    pub(crate) fn codecs(&self) -> Option<&'a Codecs> {
        match self {
            Form::InMemory => None,
            Form::Bytes(codecs) | Form::BytesBeyond(_, codecs) => Some(codecs),
        }
    }

    /// The workers to which a batch stays in memory, if others receive bytes.
    fn in_memory(&self) -> Range<usize> {
        match self {
            Form::BytesBeyond(local, _) => local.clone(),
            Form::InMemory | Form::Bytes(_) => 0..0,
        }
    }
}

/// Creates the codec of an edge; `None` if packets stay in memory.
fn codec<B: Batch>(
    edge: &DescribedEdge,
    nodes: &[Node],
    codecs: Option<&Codecs>,
) -> Result<Option<Box<dyn BatchCodec<B>>>, FlowError> {
    let made = codecs.map(|codecs| B::codec(codecs)).transpose();
    made.map_err(|cause| edge.no_codec(nodes, cause))
}

/// The sending end of an edge.
pub(crate) struct Sender<B> {
    edge: EdgeId,
    from: String,
    to: String,
    codec: Option<Box<dyn BatchCodec<B>>>,
    /// The workers to which a batch stays in memory although there is a codec.
    in_memory: Range<usize>,
}

impl<B: Batch> Sender<B> {
    /// The sender of edge `number` among `edges`.
    pub(crate) fn of(
        number: EdgeId,
        edges: &[DescribedEdge],
        nodes: &[Node],
        form: &Form<'_>,
    ) -> Result<Self, FlowError> {
        let edge = &edges[number];
        Ok(Sender {
            edge: number,
            from: nodes[edge.from].name.clone(),
            to: nodes[edge.to].name.clone(),
            codec: codec(edge, nodes, form.codecs())?,
            in_memory: form.in_memory(),
        })
    }

    /// Takes the items out of `batch`; returns them as the content of a packet to worker `to`.
    pub(crate) fn content(&self, to: usize, batch: &mut B) -> Result<Content, Failure> {
        let codec = self.codec.as_ref();
        let Some(codec) = codec.filter(|_| !self.in_memory.contains(&to)) else {
            return Ok(Content::Batch(Box::new(std::mem::take(batch))));
        };
        let items = batch.len();
        let mut encoded = Vec::new();
        if let Err(cause) = codec.encode(batch, &mut encoded) {
            return Err(self.unwritable(items, cause));
        }
        batch.clear();
        Ok(Content::Bytes(bytes(encoded)))
    }

    /// The failure of a batch that has no bytes. A codec that knows the item returns a failure with it, and no step.
    fn unwritable(&self, items: usize, cause: Cause) -> Failure {
        let step = self.from.clone();
        match cause.downcast::<Failure>() {
            Ok(of_item) => Failure { step, ..*of_item },
            Err(cause) => {
                let to = &self.to;
                let what = format_args!("{items} items cannot be sent to \"{to}\" as bytes");
                Failure::new(step, context(what, cause))
            }
        }
    }

    /// Returns the packet with the number of its edge, and encoded if all packets are bytes.
    pub(crate) fn seal(&self, mut packet: Packet) -> Packet {
        packet.edge = self.edge;
        match self.codec {
            Some(_) if self.in_memory.is_empty() => packet.through_bytes(),
            _ => packet,
        }
    }
}

/// The receiving end of one or more edges with batches of one type.
pub(crate) struct Receiver<B> {
    to: String,
    /// The edges in the order of the inputs, each with the name of the sending node.
    edges: Vec<(EdgeId, String)>,
    codec: Option<Box<dyn BatchCodec<B>>>,
}

impl<B: Batch> Receiver<B> {
    /// The receiver, in the step with the name `to`, of the edges with these numbers among `all`.
    pub(crate) fn of(
        to: &str,
        numbers: &[EdgeId],
        all: &[DescribedEdge],
        nodes: &[Node],
        form: &Form<'_>,
    ) -> Result<Self, FlowError> {
        let from = |&number: &EdgeId| (number, nodes[all[number].from].name.clone());
        let first = numbers.first();
        let made = first.map(|&number| codec(&all[number], nodes, form.codecs()));
        Ok(Receiver {
            to: to.to_owned(),
            edges: numbers.iter().map(from).collect(),
            codec: made.transpose()?.flatten(),
        })
    }

    /// The edge of an input.
    pub(crate) fn edge(&self, input: usize) -> Option<EdgeId> {
        self.edges.get(input).map(|(number, _)| *number)
    }

    /// Checks the header of a packet that came as bytes by input `input`: its edge and its sender.
    pub(crate) fn check(
        &self,
        input: usize,
        packet: &Packet,
        workers: usize,
    ) -> Result<(), Failure> {
        if self.codec.is_none() {
            return Ok(());
        }
        let edge = self.edge(input);
        match &packet.content {
            Content::Damaged(why) => Err(self.unreadable(input, why)),
            _ if edge != Some(packet.edge) => {
                Err(self.unreadable(input, &format!("it is for edge {}", packet.edge)))
            }
            _ if packet.from >= workers => {
                let why = format!("it comes from worker {} of {workers}", packet.from);
                Err(self.unreadable(input, &why))
            }
            _ => Ok(()),
        }
    }

    /// Returns the batch of a packet with `items` items that came by input `input`.
    pub(crate) fn batch(
        &self,
        input: usize,
        items: usize,
        content: Content,
    ) -> Result<Box<B>, Failure> {
        let encoded = match content {
            // Both ends of a connection are created by one call, with one type.
            Content::Batch(batch) => {
                return batch.downcast::<B>().map_err(|_| {
                    let error = format!(
                        "{items} items could not be sent on: they came as a batch of another type"
                    );
                    Failure::new(self.to.clone(), error)
                });
            }
            Content::Bytes(encoded) => encoded,
            Content::Damaged(why) => return Err(self.unreadable(input, &why)),
            Content::Nothing | Content::Watermark(_) => return Ok(Box::default()),
        };
        let Some(codec) = &self.codec else {
            let why = "it came as bytes, and packets stay in memory";
            return Err(self.unreadable(input, why));
        };
        let batch = codec.decode(&encoded);
        let batch = batch.map_err(|cause| self.unreadable(input, &chain(&*cause).to_string()))?;
        match batch.len() {
            found if found == items => Ok(Box::new(batch)),
            found => Err(self.unreadable(input, &format!("it has {found} items, not {items}"))),
        }
    }

    fn unreadable(&self, input: usize, why: &str) -> Failure {
        let from = self.edges.get(input).map_or("", |(_, from)| from);
        let error = format!("a packet from \"{from}\" cannot be read: {why}");
        Failure::new(self.to.clone(), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Reads;
    use crate::saved::codec::Codec;

    fn nodes() -> Vec<Node> {
        let node = |name: &str| Node {
            name: name.to_owned(),
            kind: "map",
            detail: String::new(),
            inputs: Vec::new(),
            exchanged: false,
            reads: Reads::default(),
        };
        vec![node("a"), node("b"), node("c")]
    }

    /// Both ends of the edge from "a" to "c", which is the second, and of the one from "b" that comes first.
    fn ends<B: Batch>(form: &Form<'_>) -> Result<(Sender<B>, Receiver<B>), FlowError> {
        let nodes = nodes();
        let edges = [DescribedEdge::of::<B>(1, 2), DescribedEdge::of::<B>(0, 2)];
        Ok((
            Sender::of(1, &edges, &nodes, form)?,
            Receiver::of("c", &[0, 1], &edges, &nodes, form)?,
        ))
    }

    fn sent<B: Batch>(sender: &Sender<B>, to: usize, mut batch: B) -> Packet {
        let items = batch.len();
        let content = sender.content(to, &mut batch).unwrap();
        assert!(batch.is_empty());
        sender.seal(Packet {
            items,
            to,
            content,
            ..Packet::default()
        })
    }

    fn received<B: Batch>(receiver: &Receiver<B>, packet: Packet) -> Result<B, String> {
        let checked = receiver.check(1, &packet, 2);
        let batch = checked.and_then(|()| receiver.batch(1, packet.items, packet.content));
        batch
            .map(|batch| *batch)
            .map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn a_batch_arrives_as_it_was_sent_in_memory_and_as_bytes() {
        let codecs = Codecs::default();
        for (form, to, encoded) in [
            (Form::InMemory, 1, false),
            (Form::Bytes(&codecs), 1, true),
            (Form::BytesBeyond(0..2, &codecs), 1, false),
            (Form::BytesBeyond(0..2, &codecs), 2, true),
        ] {
            let (sender, receiver) = ends::<Vec<u64>>(&form).unwrap();
            let packet = sent(&sender, to, vec![7, 8]);
            assert_eq!(matches!(packet.content, Content::Bytes(_)), encoded);
            assert_eq!(received(&receiver, packet), Ok(vec![7, 8]));
        }
    }

    #[test]
    fn bytes_that_are_not_a_batch_are_an_error_that_names_both_steps() {
        let codecs = Codecs::default();
        let (sender, receiver) = ends::<Vec<String>>(&Form::Bytes(&codecs)).unwrap();
        let damaged = |damage: &dyn Fn(&mut Packet)| {
            let mut packet = sent(&sender, 0, vec!["x".to_owned()]);
            damage(&mut packet);
            received(&receiver, packet).unwrap_err()
        };
        let prefix = "step \"c\": a packet from \"a\" cannot be read: ";
        let body = |packet: &mut Packet| packet.content = Content::Bytes(bytes(vec![0xc1]));
        assert!(damaged(&body).starts_with(prefix));
        assert_eq!(
            damaged(&|packet| packet.items = 2),
            format!("{prefix}it has 1 items, not 2")
        );
        assert_eq!(
            damaged(&|packet| packet.edge = 0),
            format!("{prefix}it is for edge 0")
        );
        assert_eq!(
            damaged(&|packet| packet.from = 2),
            format!("{prefix}it comes from worker 2 of 2")
        );
        let torn = |packet: &mut Packet| packet.content = Content::Damaged("torn".to_owned());
        assert_eq!(damaged(&torn), format!("{prefix}torn"));
        let (_, in_memory) = ends::<Vec<String>>(&Form::InMemory).unwrap();
        let found = received(&in_memory, sent(&sender, 0, vec!["x".to_owned()]));
        assert!(found.unwrap_err().contains("packets stay in memory"));
    }

    #[test]
    fn an_item_that_cannot_be_encoded_fails_the_sending_step() {
        #[derive(Clone)]
        struct Stubborn;
        let mut codecs = Codecs::default();
        codecs.put::<Stubborn>(Codec {
            save: |_, _| Err("never".into()),
            load: |_| Err::<Stubborn, Cause>("never".into()),
        });
        let (sender, _) = ends(&Form::Bytes(&codecs)).unwrap();
        let failed = sender.content(0, &mut vec![Stubborn]).err().unwrap();
        assert_eq!(
            format!("{failed:?}"),
            "step \"a\": 1 items cannot be sent to \"c\" as bytes: never"
        );
    }

    #[test]
    fn an_edge_without_a_codec_is_named_with_the_type() {
        #[derive(Clone)]
        struct Own;
        assert!(ends::<Vec<Own>>(&Form::InMemory).is_ok());
        let codecs = Codecs::default();
        let error = ends::<Vec<Own>>(&Form::Bytes(&codecs)).err().unwrap();
        let error = format!("{error:?}");
        assert!(
            error.starts_with("items from \"a\" to \"c\" cannot be sent as bytes: "),
            "{error}"
        );
        assert!(error.contains("Own"), "{error}");
    }

    #[test]
    fn packets_have_a_name_in_the_environment() {
        let named = |value: Option<&str>| Packets::named(value.map(OsStr::new));
        assert_eq!(named(None).unwrap(), Packets::InMemory);
        assert_eq!(named(Some("memory")).unwrap(), Packets::InMemory);
        assert_eq!(named(Some("bytes")).unwrap(), Packets::Bytes);
        for wrong in ["", "byte", "Bytes"] {
            let error = named(Some(wrong)).unwrap_err().to_string();
            assert!(error.contains(&format!("is {wrong:?}")), "{error}");
        }
    }
}
