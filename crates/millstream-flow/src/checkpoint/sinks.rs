//! The sinks of a flow, for recovery: those at the ends of streams, and those of dead letters.
//!
//! Invariant: a sink is notified of an epoch once, with the tokens of all its writers, however many steps write
//! to it.

use std::path::PathBuf;
use std::sync::Arc;

use super::Recovery;
use super::division::Ownership;
use super::record::{Commit, SinkMark};
use crate::cluster::Membership;
use crate::control::Control;
use crate::error::{Cause, FlowError};
use crate::node::{Node, NodeId, open_error};
use crate::panics::in_step;
use crate::sink::{OutputRun, Refused, Scope, Sink, Token};

/// A writer of a sink: the node that ends a stream, or a step with dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterId {
    pub(crate) node: NodeId,
    pub(crate) dead_letters: bool,
}

impl WriterId {
    /// The node at the end of a stream.
    pub(crate) fn sink(node: NodeId) -> Self {
        WriterId {
            node,
            dead_letters: false,
        }
    }

    /// A step with dead letters.
    pub(crate) fn dead_letters(node: NodeId) -> Self {
        WriterId {
            node,
            dead_letters: true,
        }
    }

    /// The name under which its token is saved.
    pub(crate) fn name(self, nodes: &[Node]) -> String {
        if self.dead_letters {
            dead_letters_of(&nodes[self.node].name)
        } else {
            nodes[self.node].name.clone()
        }
    }
}

/// The name of the sink of the dead letters of a step.
pub(crate) fn dead_letters_of(step: &str) -> String {
    format!("{step}.dead_letters")
}

/// A sink with one of its writers.
#[derive(Clone)]
pub(crate) struct SinkOf {
    pub(crate) writer: WriterId,
    /// The same number for all writers of a sink that several steps write to.
    pub(crate) identity: Option<usize>,
    /// Whether the first worker of process 0 writes the items of all.
    pub(crate) gathered: bool,
    pub(crate) sink: Arc<dyn ErasedSink>,
}

/// The sinks of a flow, in one process.
#[derive(Clone, Default)]
pub(crate) struct Sinks {
    all: Vec<SinkOf>,
    /// The number of the process among several.
    process: Option<usize>,
}

impl Sinks {
    pub(crate) fn new(all: Vec<SinkOf>) -> Self {
        Sinks { all, process: None }
    }

    /// Notes which sinks are gathered, as the nodes of a plan say.
    pub(crate) fn note_gathered(&mut self, nodes: &[Node]) {
        for sink in &mut self.all {
            sink.gathered = !sink.writer.dead_letters && nodes[sink.writer.node].exchanged;
        }
    }

    /// Checks that of the writers of a sink all are gathered or none.
    pub(crate) fn check_gathered(&self, nodes: &[Node]) -> Result<(), FlowError> {
        for (at, sink) in self
            .all
            .iter()
            .enumerate()
            .filter(|(_, sink)| sink.identity.is_some())
        {
            let mut before = self.all[..at].iter();
            let other = before.find(|other| other.identity == sink.identity);
            if let Some(other) = other.filter(|other| other.gathered != sink.gathered) {
                return Err(FlowError::Usage(format!(
                    "\"{}\" and \"{}\" write to one sink; gather both or none",
                    other.writer.name(nodes),
                    sink.writer.name(nodes)
                )));
            }
        }
        Ok(())
    }

    /// Whether another process writes a sink.
    fn is_elsewhere(&self, sink: &SinkOf) -> bool {
        sink.gathered && self.process.is_some_and(|process| process > 0)
    }

    /// The mark of a writer of a sink.
    pub(crate) fn mark(
        &self,
        writer: WriterId,
        nodes: &[Node],
        worker: usize,
        token: Token,
    ) -> SinkMark {
        let mut all = self.all.iter();
        let gathered = all.any(|sink| sink.writer == writer && sink.gathered);
        SinkMark {
            sink: writer.name(nodes),
            worker,
            token,
            gathered: gathered && self.process.is_some(),
        }
    }

    /// The names of all writers.
    pub(crate) fn names<'a>(&'a self, nodes: &'a [Node]) -> impl Iterator<Item = String> + 'a {
        self.all.iter().map(|sink| sink.writer.name(nodes))
    }

    /// Each sink that this process writes, with the names of its writers.
    fn each(&self, nodes: &[Node]) -> Vec<(&SinkOf, Vec<String>)> {
        let here = self.all.iter().filter(|sink| !self.is_elsewhere(sink));
        let mut all: Vec<(&SinkOf, Vec<String>)> = Vec::new();
        for sink in here {
            let name = sink.writer.name(nodes);
            let same = |known: &SinkOf| sink.identity.is_some() && known.identity == sink.identity;
            match all.iter_mut().find(|(known, _)| same(known)) {
                Some((_, names)) => names.push(name),
                None => all.push((sink, vec![name])),
            }
        }
        all
    }

    /// Notifies the sinks of the process in which they are, before anything else. Those that all workers of a process
    /// share write to a file or directory of this process, which is logged, as is that a sink is gathered.
    pub(crate) fn join(&mut self, nodes: &[Node], membership: Option<Membership>) {
        self.process = membership.map(|membership| membership.process);
        for sink in self.all.iter().filter(|sink| sink.gathered) {
            let _called = in_step(&nodes[sink.writer.node].name);
            sink.sink.join(None);
            if let Some(process) = self.process {
                log_gathered(&nodes[sink.writer.node], process);
            }
        }
        for (sink, names) in self.each(nodes) {
            if sink.gathered {
                continue;
            }
            let _called = in_step(&nodes[sink.writer.node].name);
            if let (Some(path), Some(name)) = (sink.sink.join(membership), names.first()) {
                tracing::info!(
                    sink = name.as_str(),
                    "sink \"{name}\": this process writes {}",
                    path.display()
                );
            }
        }
    }

    /// What the tokens of a sink belong to, and whether it is gathered; `None` if the flow has no such sink.
    pub(crate) fn ownership(&self, nodes: &[Node], name: &str) -> Option<Ownership> {
        let mut all = self.all.iter();
        let sink = all.find(|sink| sink.writer.name(nodes) == name)?;
        Some(Ownership {
            scope: sink.sink.scope(),
            gathered: sink.gathered,
        })
    }

    /// Notifies the sinks that a run of `flow` begins, with a state directory or without.
    pub(crate) fn begin(
        &self,
        flow: &str,
        nodes: &[Node],
        recovery: Option<&Recovery>,
        control: &Arc<Control>,
    ) -> Result<(), FlowError> {
        for (sink, names) in self.each(nodes) {
            let _called = in_step(&nodes[sink.writer.node].name);
            let begun = sink.sink.begin(&OutputRun {
                flow,
                names: &names,
                state_dir: recovery.map(Recovery::dir),
                control,
            });
            begun.map_err(|cause| failed(sink, nodes, cause))?;
        }
        Ok(())
    }

    /// Starts the delivery of the sinks that deliver in the background.
    pub(crate) fn start(&self, nodes: &[Node]) -> Result<(), FlowError> {
        for (sink, _) in self.each(nodes) {
            let _called = in_step(&nodes[sink.writer.node].name);
            let started = sink.sink.start();
            started.map_err(|cause| failed(sink, nodes, cause))?;
        }
        Ok(())
    }

    /// Rolls the sinks back to the last commit; returns the token of each, under the name of its first writer.
    pub(crate) fn resume(
        &self,
        nodes: &[Node],
        commit: &Commit,
    ) -> Result<Vec<SinkMark>, FlowError> {
        let mut marks = Vec::new();
        for (sink, names) in self.each(nodes) {
            let _called = in_step(&nodes[sink.writer.node].name);
            let token = sink.sink.resume(&tokens(commit, &names));
            let token = token.map_err(|cause| failed(sink, nodes, cause))?;
            marks.extend(token.map(|token| self.mark(sink.writer, nodes, 0, token)));
        }
        Ok(marks)
    }

    /// Makes what the sinks have prepared survive a loss of power.
    pub(crate) fn sync(&self, nodes: &[Node]) -> Result<(), FlowError> {
        for (sink, _) in self.each(nodes) {
            let _called = in_step(&nodes[sink.writer.node].name);
            let synced = sink.sink.sync();
            synced.map_err(|cause| failed(sink, nodes, cause))?;
        }
        Ok(())
    }

    /// The sinks of these nodes that this process writes and that deliver in the background.
    fn delivering(&self, nodes: &[NodeId]) -> impl Iterator<Item = &SinkOf> {
        let of = |sink: &&SinkOf| {
            !sink.writer.dead_letters
                && nodes.contains(&sink.writer.node)
                && !self.is_elsewhere(sink)
                && sink.sink.delivers()
        };
        self.all.iter().filter(of)
    }

    /// Notifies the sinks of these nodes that nothing more is committed to them in this run, so that their deliveries
    /// end.
    pub(crate) fn finish_deliveries(&self, nodes: &[Node], of: &[NodeId]) {
        for sink in self.delivering(of) {
            let _called = in_step(&nodes[sink.writer.node].name);
            sink.sink.finish();
        }
    }

    /// Whether the deliveries of the sinks of these nodes have ended.
    pub(crate) fn have_ended(&self, of: &[NodeId]) -> bool {
        self.delivering(of).all(|sink| sink.sink.has_ended())
    }

    /// Takes records that the destination of the sink of this node has refused after the last commit, with the token
    /// for them.
    pub(crate) fn take_refused(
        &self,
        nodes: &[Node],
        node: NodeId,
    ) -> Result<Option<(Vec<Refused>, Token)>, FlowError> {
        let Some(sink) = self.delivering(&[node]).next() else {
            return Ok(None);
        };
        let _called = in_step(&nodes[node].name);
        let taken = sink.sink.take_refused();
        let (refused, token) = taken.map_err(|cause| failed(sink, nodes, cause))?;
        Ok((!refused.is_empty()).then_some((refused, token)))
    }

    /// Notifies the sinks that nothing more is committed in this run.
    pub(crate) fn finish(&self, nodes: &[Node]) {
        for sink in &self.all {
            if !self.is_elsewhere(sink) {
                let _called = in_step(&nodes[sink.writer.node].name);
                sink.sink.finish();
            }
        }
    }

    /// Notifies the sinks that an epoch is committed.
    pub(crate) fn commit(&self, nodes: &[Node], commit: &Commit) -> Result<(), FlowError> {
        for (sink, names) in self.each(nodes) {
            let _called = in_step(&nodes[sink.writer.node].name);
            let told = sink.sink.commit(commit.epoch, &tokens(commit, &names));
            told.map_err(|cause| failed(sink, nodes, cause))?;
        }
        Ok(())
    }
}

/// Logs at the start where a gathered sink is written.
fn log_gathered(node: &Node, process: usize) {
    let name = node.name.as_str();
    let detail = node.detail.as_str();
    match process {
        0 => {
            tracing::info!(
                sink = name,
                "sink \"{name}\": this process writes the output of all processes ({detail})"
            );
        }
        _ => {
            tracing::info!(
                sink = name,
                "sink \"{name}\": process 0 writes the output of all processes"
            );
        }
    }
}

/// The tokens of the writers with these names.
fn tokens(commit: &Commit, names: &[String]) -> Vec<Token> {
    let marks = commit.sinks.iter();
    let marks = marks.filter(|mark| names.contains(&mark.sink));
    marks.map(|mark| mark.token.clone()).collect()
}

fn failed(sink: &SinkOf, nodes: &[Node], cause: Cause) -> FlowError {
    let node = &nodes[sink.writer.node];
    if sink.writer.dead_letters {
        FlowError::Open {
            what: format!("dead letters of \"{}\"", node.name),
            cause,
        }
    } else {
        open_error(node, cause)
    }
}

/// A sink of any type of batch, for recovery.
pub(crate) trait ErasedSink: Send + Sync {
    fn join(&self, membership: Option<Membership>) -> Option<PathBuf>;
    fn scope(&self) -> Scope;
    fn begin(&self, run: &OutputRun<'_>) -> Result<(), Cause>;
    fn start(&self) -> Result<(), Cause>;
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause>;
    fn sync(&self) -> Result<(), Cause>;
    fn commit(&self, epoch: u64, tokens: &[Token]) -> Result<(), Cause>;
    fn finish(&self);
    /// Whether it delivers in the background.
    fn delivers(&self) -> bool;
    fn has_ended(&self) -> bool;
    fn take_refused(&self) -> Result<(Vec<Refused>, Token), Cause>;
}

/// A sink without its type.
struct Erased<B>(Arc<dyn Sink<B>>);

impl<B: 'static> ErasedSink for Erased<B> {
    fn join(&self, membership: Option<Membership>) -> Option<PathBuf> {
        self.0.join(membership)
    }
    fn scope(&self) -> Scope {
        let sink = self.0.transactional();
        sink.map_or(Scope::Path, |sink| sink.scope())
    }
    fn begin(&self, run: &OutputRun<'_>) -> Result<(), Cause> {
        self.0.forwarding().map_or(Ok(()), |sink| sink.begin(run))
    }
    fn start(&self) -> Result<(), Cause> {
        self.0.forwarding().map_or(Ok(()), |sink| sink.start())
    }
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        match self.0.transactional() {
            Some(sink) => sink.resume(tokens),
            None => Ok(None),
        }
    }
    fn sync(&self) -> Result<(), Cause> {
        match self.0.transactional() {
            Some(sink) => sink.sync(),
            None => Ok(()),
        }
    }
    fn commit(&self, epoch: u64, tokens: &[Token]) -> Result<(), Cause> {
        match self.0.transactional() {
            Some(sink) => sink.commit(epoch, tokens),
            None => Ok(()),
        }
    }
    fn finish(&self) {
        if let Some(sink) = self.0.transactional() {
            sink.finish();
        }
    }
    fn delivers(&self) -> bool {
        self.0.forwarding().is_some()
    }
    fn has_ended(&self) -> bool {
        self.0.forwarding().is_none_or(|sink| sink.has_ended())
    }
    fn take_refused(&self) -> Result<(Vec<Refused>, Token), Cause> {
        match self.0.forwarding() {
            Some(sink) => sink.take_refused(),
            None => Ok((Vec::new(), Token::new())),
        }
    }
}

/// The same sink without the type of its batches.
pub(crate) fn erased_sink<B: 'static>(sink: Arc<dyn Sink<B>>) -> Arc<dyn ErasedSink> {
    Arc::new(Erased(sink))
}
