//! The description of a flow: named nodes, and functions that create each of them on a worker.
//!
//! A flow is described once, on the thread that builds it, and created again on each worker when it runs. The
//! description is a list of *roots* in the order of the flow. A root becomes one timely operator: a source, or
//! a node with inputs from other operators (an exchange, a merge). All steps that follow a root are fused into
//! its operator.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::checkpoint::{
    Codecs, ErasedSink, SinkOf, Sinks, Sources, WriterId, erased_sink, erased_source,
};
use crate::dataflow::build::Root;
use crate::dataflow::plan::Plan;
use crate::describe::gathered::Gathered;
use crate::describe::overlap::Files;
use crate::error::{Cause, FlowError};
use crate::input::Input;
use crate::letters::SinkLetters;
use crate::node::meeting::{self, Order};
use crate::node::{DescribedEdge, Node, NodeId, Reads, open_error, reads};
use crate::policy::OnError;
use crate::rehearsal::Rehearsal;
use crate::sink::{Sink, Transactional};
use crate::source::Source;

/// Returns the replacement of a sink in a rehearsal.
type MakeReplacement =
    Arc<dyn Fn(&Rehearsal, &str) -> Result<Arc<dyn ErasedSink>, Cause> + Send + Sync>;

/// A sink with one of its writers.
struct DescribedSink {
    sink: SinkOf,
    replacement: MakeReplacement,
}

#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) name: String,
    /// The version of the program, if it was given one.
    pub(crate) version: Option<Vec<(String, String)>>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) roots: Vec<Root>,
    pub(crate) edges: Vec<DescribedEdge>,
    /// The sources, for checkpoints.
    sources: Sources,
    sinks: Vec<DescribedSink>,
    pub(crate) gathered: Vec<Gathered>,
    /// The dead letters of sinks that have some.
    pub(crate) letters: SinkLetters,
    /// The types whose values can be encoded.
    pub(crate) codecs: Codecs,
    files: Files,
    /// The steps whose output depends on the order of the items of a key.
    pub(crate) orders: HashMap<NodeId, Order>,
    mistake: Option<Mistake>,
}

/// An error in the description. It is stored, so that every run reports it.
#[derive(Clone, Copy)]
pub(crate) enum Mistake {
    /// A step of this kind keeps state and has no name.
    Unnamed(&'static str),
    /// A stream of another flow was joined.
    Foreign,
    /// A step of this kind assigns times after the node, where partitions are merged.
    TimeMisplaced(&'static str, NodeId),
    /// Another error, in words.
    Usage(&'static str),
}

/// A flow under construction, shared by all its streams.
pub(crate) type Shared = Arc<Mutex<Graph>>;

impl Graph {
    pub(crate) fn new(name: &str) -> Shared {
        Arc::new(Mutex::new(Graph {
            name: name.to_owned(),
            ..Graph::default()
        }))
    }

    /// Adds a node; an empty name is replaced by the kind and a number.
    pub(crate) fn add(&mut self, kind: &'static str, name: &str, inputs: Vec<NodeId>) -> NodeId {
        let id = self.nodes.len();
        let name = if name.is_empty() {
            reads::default_name(kind, id)
        } else {
            name.to_owned()
        };
        let node = Node {
            name,
            kind,
            detail: String::new(),
            inputs,
            exchanged: false,
            reads: Reads::default(),
        };
        self.nodes.push(node);
        id
    }

    /// Adds a source.
    pub(crate) fn add_source<B: 'static>(
        &mut self,
        name: &str,
        source: &Arc<dyn Source<B>>,
    ) -> NodeId {
        let node = self.add("source", name, Vec::new());
        self.nodes[node].detail = source.describe();
        let read = Arc::clone(source);
        let inputs = Arc::new(move || {
            let inputs = read.settings().inputs;
            let files = inputs.iter().filter_map(Input::file);
            files.map(Path::to_owned).collect()
        });
        self.files.inputs.push((node, inputs));
        if let OnError::DeadLetter(sink) = source.settings().on_error {
            self.add_sink(WriterId::dead_letters(node), &sink);
        }
        self.sources.push((node, erased_source(Arc::clone(source))));
        node
    }

    /// Adds a sink to which `writer` writes: the node that ends a stream, or a step with its dead letters.
    pub(crate) fn add_sink<B: 'static>(&mut self, writer: WriterId, sink: &Arc<dyn Sink<B>>) {
        let written = Arc::clone(sink);
        let output = Arc::new(move |recovery| written.output(recovery));
        self.files.outputs.push((writer, output));
        // Several steps may write their dead letters to one sink, and each of them has a reference to it.
        let own = || Arc::as_ptr(sink).cast::<()>() as usize;
        let identity = sink.transactional().and_then(Transactional::identity);
        let identity = identity.or_else(|| writer.dead_letters.then(own));
        let own = Arc::clone(sink);
        self.sinks.push(DescribedSink {
            sink: SinkOf {
                writer,
                identity,
                gathered: false,
                sink: erased_sink(Arc::clone(sink)),
            },
            replacement: Arc::new(move |rehearsal, name| {
                Ok(erased_sink(rehearsal.sink_for(name, &*own)?))
            }),
        });
    }

    /// Gives a node another name.
    pub(crate) fn rename(&mut self, id: NodeId, name: &str) {
        name.clone_into(&mut self.nodes[id].name);
    }

    /// Records the first error; the fluent calls continue and `check` reports it.
    pub(crate) fn mistake(&mut self, mistake: Mistake) {
        self.mistake.get_or_insert(mistake);
    }

    /// Requires a name for a step with state.
    pub(crate) fn demand_name(&mut self, kind: &'static str, name: &str) {
        if name.is_empty() {
            self.mistake(Mistake::Unnamed(kind));
        }
    }

    /// Returns the first error in the description. Names are compared only here: a default name may have been
    /// replaced after its step was added.
    pub(crate) fn check(&self) -> Result<(), FlowError> {
        let flow = self.name.clone();
        match self.mistake {
            Some(Mistake::Foreign) => return Err(FlowError::ForeignStream),
            Some(Mistake::Unnamed(kind)) => {
                let kind = kind.to_owned();
                return Err(FlowError::MissingName { flow, kind });
            }
            Some(Mistake::Usage(words)) => {
                return Err(FlowError::Usage(format!("flow \"{flow}\": {words}")));
            }
            Some(Mistake::TimeMisplaced(kind, node)) => {
                let kind = kind.to_owned();
                let after = self.nodes[node].name.clone();
                return Err(FlowError::TimeMisplaced { flow, kind, after });
            }
            None => {}
        }
        let mut names = HashSet::new();
        let nodes = self.nodes.iter().map(|node| node.name.clone());
        let writers = self.sinks.iter().map(|described| described.sink.writer);
        let dead_letters = writers.filter(|writer| writer.dead_letters);
        let mut all = nodes.chain(dead_letters.map(|writer| writer.name(&self.nodes)));
        match all.find(|name| !names.insert(name.clone())) {
            Some(name) => Err(FlowError::DuplicateName { flow, name }),
            None => Ok(()),
        }
    }

    /// Checks that no sink gets the dead letters of a sink and has some of its own: at the end of a flow its delivery
    /// would have to end before that of the other, and after it.
    fn check_letters(&self) -> Result<(), FlowError> {
        let has_letters = |node| self.letters.iter().any(|(with, _)| *with == node);
        let sinks = || self.sinks.iter().map(|described| &described.sink);
        let name = |sink: &SinkOf| sink.writer.name(&self.nodes);
        let ends = |sink: &&SinkOf| !sink.writer.dead_letters;
        for sink in sinks()
            .filter(ends)
            .filter(|sink| has_letters(sink.writer.node))
        {
            let mut others = sinks()
                .filter(ends)
                .filter(|other| other.writer != sink.writer);
            let same = |other: &&SinkOf| sink.identity.is_some() && other.identity == sink.identity;
            if let Some(other) = others.find(same) {
                return Err(FlowError::Usage(format!(
                    "flow \"{}\": \"{}\" and \"{}\" write to one sink, and a sink with dead letters has one policy; make a sink for each",
                    self.name,
                    name(sink),
                    name(other)
                )));
            }
        }
        let with_letters = sinks().filter(|sink| has_letters(sink.writer.node));
        let (to, of): (Vec<&SinkOf>, Vec<&SinkOf>) =
            with_letters.partition(|sink| sink.writer.dead_letters);
        for sink in to {
            let same =
                |other: &&&SinkOf| sink.identity.is_some() && other.identity == sink.identity;
            if let Some(other) = of.iter().find(same) {
                return Err(FlowError::Usage(format!(
                    "flow \"{}\": the sink \"{}\" has dead letters of its own and gets those of \"{}\"; use another sink for these",
                    self.name,
                    name(other),
                    self.nodes[sink.writer.node].name
                )));
            }
        }
        Ok(())
    }

    /// Checks what must hold before the flow can run.
    fn check_complete(&self) -> Result<(), FlowError> {
        self.check()?;
        self.check_letters()?;
        if !self.nodes.iter().any(|node| node.kind == "source") {
            return Err(FlowError::NoSource(self.name.clone()));
        }
        let read: HashSet<NodeId> = self.nodes.iter().flat_map(|n| n.inputs.clone()).collect();
        match self
            .nodes
            .iter()
            .enumerate()
            .find(|(id, n)| n.kind != "sink" && !read.contains(id))
        {
            Some((_, node)) => Err(FlowError::Unread {
                flow: self.name.clone(),
                step: node.name.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Returns the flow for a run on several processes or on one: checked, and with the replacements of its sources
    /// and sinks in a rehearsal.
    pub(crate) fn plan(
        &self,
        rehearsal: Option<&Rehearsal>,
        recovery: bool,
        clustered: bool,
    ) -> Result<Plan, FlowError> {
        self.check_complete()?;
        let (sources, sinks) = match rehearsal {
            Some(rehearsal) => (
                rehearsal.left(&self.nodes, &self.sources),
                self.replacements(rehearsal)?,
            ),
            None => {
                self.files.check(&self.nodes, recovery)?;
                meeting::warn(&self.nodes, &self.orders);
                let sinks = self.sinks.iter().map(|described| described.sink.clone());
                (self.sources.clone(), Sinks::new(sinks.collect()))
            }
        };
        let mut plan = Plan {
            name: self.name.clone(),
            version: self.version.clone(),
            nodes: self.nodes.clone(),
            roots: self.roots.clone(),
            edges: self.edges.clone(),
            sources,
            sinks,
            // In a rehearsal nothing is delivered, and nothing refused.
            letters: match rehearsal {
                Some(_) => Vec::new(),
                None => self.letters.clone(),
            },
            codecs: self.codecs.clone(),
        };
        for gathered in &self.gathered {
            gathered.add_to(&mut plan, clustered);
        }
        plan.sinks.note_gathered(&plan.nodes);
        plan.sinks.check_gathered(&plan.nodes)?;
        Ok(plan)
    }

    /// Returns the replacements of the sinks, each with one writer.
    fn replacements(&self, rehearsal: &Rehearsal) -> Result<Sinks, FlowError> {
        let mut sinks = Vec::new();
        for DescribedSink { sink, replacement } in &self.sinks {
            let writer = sink.writer;
            let sink = match replacement(rehearsal, &writer.name(&self.nodes)) {
                Ok(sink) => sink,
                // The dead letters of a source that is replaced need no replacement; for others opening them
                // reports the error.
                Err(_) if writer.dead_letters => continue,
                Err(cause) => return Err(open_error(&self.nodes[writer.node], cause)),
            };
            sinks.push(SinkOf {
                writer,
                identity: None,
                gathered: false,
                sink,
            });
        }
        Ok(Sinks::new(sinks))
    }

    pub(crate) fn describe(&self) -> Description {
        Description {
            flow: self.name.clone(),
            nodes: self.nodes.clone(),
        }
    }
}

/// The graph of a flow, as text (`Display`), JSON or Mermaid.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Description {
    /// The flow's name.
    pub flow: String,
    /// The nodes in the order in which they were described; `inputs` are indices into this list.
    pub nodes: Vec<Node>,
}

impl Description {
    /// `{flow, nodes: [{name, kind, detail, inputs: [name, ...], exchanged}]}`
    #[must_use]
    pub fn to_json(&self) -> Value {
        let nodes: Vec<Value> = self
            .nodes
            .iter()
            .map(|node| {
                json!({
                    "name": node.name, "kind": node.kind, "detail": node.detail,
                    "inputs": self.input_names(node), "exchanged": node.exchanged,
                })
            })
            .collect();
        json!({"flow": self.flow, "nodes": nodes})
    }

    /// Formats a Mermaid flowchart; a thick arrow is one on which items may move to another worker.
    #[must_use]
    pub fn to_mermaid(&self) -> String {
        let mut text = String::from("flowchart LR\n");
        for (id, node) in self.nodes.iter().enumerate() {
            let label = format!("{}<br/>{} {}", node.name, node.kind, node.detail);
            text += &format!("  n{id}[\"{}\"]\n", label.trim_end().replace('"', "#quot;"));
        }
        for (id, node) in self.nodes.iter().enumerate() {
            let arrow = if node.exchanged { "==>" } else { "-->" };
            for input in &node.inputs {
                text += &format!("  n{input} {arrow} n{id}\n");
            }
        }
        text
    }

    fn input_names(&self, node: &Node) -> Vec<&str> {
        node.inputs
            .iter()
            .map(|&input| self.nodes[input].name.as_str())
            .collect()
    }
}

/// The least width of the column of kinds, so that most flows have the same layout.
const KIND_WIDTH: usize = 9;

impl std::fmt::Display for Description {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width = self.nodes.iter().map(|node| node.kind.len()).max();
        let width = width.unwrap_or(0).max(KIND_WIDTH);
        writeln!(f, "flow {}", self.flow)?;
        for node in &self.nodes {
            write!(f, "  {:<width$} {}", node.kind, node.name)?;
            if !node.detail.is_empty() {
                write!(f, " ({})", node.detail)?;
            }
            if !node.inputs.is_empty() {
                let by = match (node.kind, node.exchanged) {
                    ("redistribute", _) => "in turn from",
                    ("sink", true) => "gathered from",
                    (_, true) => "by key from",
                    (_, false) => "from",
                };
                write!(f, " {by} {}", self.input_names(node).join(", "))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
