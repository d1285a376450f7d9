//! What crosses from one timely operator to another: a batch, addressed to one worker.
//!
//! All connections of a flow carry this one type, so that the engine is compiled once. The batch
//! inside is boxed: one allocation for a batch, not for an item.

use std::any::Any;
use std::io::Write;

use timely::Accountable;
use timely::bytes::arc::Bytes;
use timely::communication::Push;
use timely::dataflow::channels::pushers::exchange::Distributor;
use timely::dataflow::channels::{ContainerBytes, Message};
use timely::progress::Stamp;

use crate::time::Watermark;

/// A batch on its way, or what its sender says about the times of those to come.
#[derive(Default)]
pub(crate) struct Packet {
    /// The worker it is for.
    pub(crate) to: usize,
    /// When the items were whole at their source.
    pub(crate) stamp: u64,
    /// How many items there are.
    pub(crate) items: usize,
    /// The batch.
    pub(crate) body: Option<Box<dyn Any + Send>>,
    /// The worker that sent it.
    pub(crate) from: usize,
    /// How far the sender's other partitions let event time come.
    pub(crate) floor: i64,
    /// Event time has come to this, behind the batches before.
    pub(crate) mark: Option<Watermark>,
}

impl Accountable for Packet {
    fn record_count(&self) -> i64 {
        i64::from(self.body.is_some() || self.mark.is_some())
    }
}

impl ContainerBytes for Packet {
    fn from_bytes(_: Bytes) -> Self {
        unreachable!("the workers of a flow are threads of one process")
    }
    fn length_in_bytes(&self) -> usize {
        unreachable!("the workers of a flow are threads of one process")
    }
    fn into_bytes<W: Write>(&self, _: &mut W) {
        unreachable!("the workers of a flow are threads of one process")
    }
}

/// Hands each packet to the worker it names.
pub(crate) struct ByAddress;

impl Distributor<Packet> for ByAddress {
    fn partition<T: Clone, P: Push<Message<T, Packet>>>(
        &mut self,
        packet: &mut Packet,
        stamp: &Stamp<T>,
        pushers: &mut [P],
    ) {
        let to = packet.to;
        Message::push_at(packet, stamp.clone(), &mut pushers[to]);
    }
    fn flush<T: Clone, P: Push<Message<T, Packet>>>(&mut self, _: &Stamp<T>, _: &mut [P]) {}
}
