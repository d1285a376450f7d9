//! The end of a chain in a connection to another operator: divides batches among workers and puts them into
//! packets.

use std::rc::Rc;

use timely::dataflow::channels::pushers::Output;

use crate::batch::Batch;
use crate::dataflow::build::{Capabilities, Edge, Epoch, Route, SegmentBuild};
use crate::dataflow::context::WorkerContext;
use crate::dataflow::edge::Sender;
use crate::dataflow::packet::{Content, Packet};
use crate::dataflow::push::Push;
use crate::error::{Failure, FlowError};
use crate::node::EdgeId;
use crate::time::Watermark;

impl SegmentBuild<'_, '_> {
    /// Ends the chain in a connection to another operator.
    pub(crate) fn leave<B: Batch>(
        &mut self,
        edge: EdgeId,
        route: Option<Box<dyn Route<B>>>,
    ) -> Result<Box<dyn Push<B>>, FlowError> {
        let sender = Sender::of(edge, self.described_edges, self.nodes, &self.form)?;
        let (output, stream) = self.builder.new_output::<Packet>();
        let feeding = Rc::clone(&self.feed.workers);
        self.edges.insert(edge, Edge { stream, feeding });
        let port = self.outputs;
        self.outputs += 1;
        let workers = self.context.borrow().workers;
        let parts = (0..workers).map(|_| B::default()).collect();
        let route = if workers == 1 { None } else { route };
        Ok(Box::new(Departure {
            sender,
            edge,
            output,
            port,
            capabilities: Rc::clone(&self.capabilities),
            route,
            parts,
        }))
    }
}

/// The end of a chain, which sends batches on a connection.
struct Departure<B> {
    sender: Sender<B>,
    edge: EdgeId,
    output: Output<Epoch, Packet>,
    port: usize,
    capabilities: Capabilities,
    route: Option<Box<dyn Route<B>>>,
    parts: Vec<B>,
}

impl<B: Batch> Departure<B> {
    fn send(&mut self, to: usize, batch: &mut B, cx: &mut WorkerContext) -> Result<(), Failure> {
        let items = batch.len();
        let mut packet = self.sender.seal(Packet {
            to,
            stamp: cx.stamp,
            items,
            from: cx.worker,
            floor: cx.floor,
            content: self.sender.content(to, batch)?,
            ..Packet::default()
        });
        match self.capabilities.borrow().get(self.port) {
            Some(capability) => {
                cx.load.sent(to, items);
                cx.figures.edge_counts.sent(cx.worker, self.edge, items);
                self.output.give(capability, &mut packet);
                Ok(())
            }
            None => Err(lost(items, "after the step had ended", cx)),
        }
    }
}

/// Returns the failure for items that cannot be sent on: the run ends, because items must not be lost silently.
fn lost(items: usize, why: &str, cx: &WorkerContext) -> Failure {
    let what = format!("{items} items could not be sent on: they came {why}");
    Failure::new(cx.step_name(), what)
}

impl<B: Batch> Push<B> for Departure<B> {
    fn push(&mut self, batch: &mut B, cx: &mut WorkerContext) -> Result<(), Failure> {
        let Some(route) = &mut self.route else {
            return self.send(cx.worker, batch, cx);
        };
        let mut parts = std::mem::take(&mut self.parts);
        route.route(batch, &mut parts, cx.shards)?;
        for (to, part) in parts.iter_mut().enumerate() {
            if !part.is_empty() {
                self.send(to, part, cx)?;
            }
        }
        self.parts = parts;
        Ok(())
    }
    fn flush(&mut self, _: &mut WorkerContext) -> Result<(), Failure> {
        drop(self.output.activate());
        Ok(())
    }
    fn watermark(&mut self, mark: Watermark, cx: &mut WorkerContext) -> Result<(), Failure> {
        let receivers = match self.route {
            Some(_) => 0..cx.workers,
            None => cx.worker..cx.worker + 1,
        };
        for to in receivers {
            let mut packet = self.sender.seal(Packet {
                to,
                from: cx.worker,
                content: Content::Watermark(mark),
                ..Packet::default()
            });
            match self.capabilities.borrow().get(self.port) {
                Some(capability) => self.output.give(capability, &mut packet),
                None => {
                    let what = "a watermark could not be sent on: it came after the step had ended";
                    return Err(Failure::new(cx.step_name(), what));
                }
            }
        }
        cx.activity += 1;
        Ok(())
    }
    fn tick(&mut self, _: &mut WorkerContext) -> Result<(), Failure> {
        Ok(())
    }
    fn epoch(&mut self, _: Epoch, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.flush(cx)
    }
    fn end(&mut self, _: Epoch, cx: &mut WorkerContext) -> Result<(), Failure> {
        self.flush(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;

    use super::*;
    use crate::clock::WallClock;
    use crate::control::Control;
    use crate::dataflow::edge::Form;
    use crate::metrics::StepMetrics;
    use crate::node::{DescribedEdge, Node, Reads};

    #[test]
    fn batches_after_the_end_of_a_step_are_an_error() {
        let said = timely::execute_directly(|worker| {
            worker.dataflow::<Epoch, _, _>(|scope| {
                let mut builder = OperatorBuilder::new("merged".to_owned(), scope);
                let (output, _stream) = builder.new_output::<Packet>();
                builder.build_reschedule(|_| |_| false);
                let edges = [DescribedEdge::of::<Vec<u8>>(0, 0)];
                let nodes = [Node {
                    name: "merged".to_owned(),
                    kind: "merge",
                    detail: String::new(),
                    inputs: Vec::new(),
                    exchanged: false,
                    reads: Reads::default(),
                }];
                let mut departure = Departure::<Vec<u8>> {
                    sender: Sender::of(0, &edges, &nodes, &Form::InMemory).unwrap(),
                    edge: 0,
                    output,
                    port: 0,
                    capabilities: Capabilities::default(),
                    route: None,
                    parts: vec![Vec::new()],
                };
                let metrics = vec![StepMetrics::new("merged", "merge")];
                let control = Arc::new(Control::new(1, None));
                let clock = Arc::new(WallClock::default());
                let mut cx = WorkerContext::new((0, 1), metrics, clock, control);
                let items = departure.push(&mut vec![1, 2], &mut cx);
                let mark = departure.watermark(Watermark::UNKNOWN, &mut cx);
                [items, mark].map(|outcome| outcome.err().map(|failure| format!("{failure:?}")))
            })
        });
        let expected = [
            "step \"merged\": 2 items could not be sent on: they came after the step had ended",
            "step \"merged\": a watermark could not be sent on: it came after the step had ended",
        ];
        assert_eq!(said.each_ref().map(Option::as_deref), expected.map(Some));
    }
}
