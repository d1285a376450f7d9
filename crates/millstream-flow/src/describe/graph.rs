//! The description of a flow: nodes with names, and how to make each of them on a worker.
//!
//! A flow is described once, on the thread of whoever writes it, and made anew on each worker
//! when it runs. The description is a list of *roots* in the order of the flow. A root becomes
//! one timely operator: a source, or the place where streams come together (an exchange, a
//! merge). All steps that follow a root are fused into its operator.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::checkpoint::{Codecs, SinkOf, Sinks, Sources, WriterId};
use crate::describe::overlap::Files;
use crate::error::{Cause, FlowError};
use crate::push::{Push, Tee};
use crate::run::control::lock;
use crate::run::segment::{SegmentBuild, WorkerBuild};
use crate::sink::{Settled, Sink};

/// The number of a node in its flow.
pub(crate) type NodeId = usize;
/// The number of a connection between two timely operators.
pub(crate) type EdgeId = usize;

/// Makes a root's operator on one worker.
pub(crate) type Root =
    Arc<dyn for<'a, 's> Fn(&mut WorkerBuild<'a, 's>) -> Result<(), FlowError> + Send + Sync>;
/// Makes one reader of a stream on one worker.
pub(crate) type Reader<B> = Arc<
    dyn for<'a, 's> Fn(&mut SegmentBuild<'a, 's>) -> Result<Box<dyn Push<B>>, FlowError>
        + Send
        + Sync,
>;

/// One source, step or sink, as it is described.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name: given, or the kind with a number.
    pub name: String,
    /// The kind: `source`, `map`, `stateful`, `sink`, ...
    pub kind: &'static str,
    /// What more there is to say, for instance the address of a connector.
    pub detail: String,
    /// The nodes whose output this one reads.
    pub inputs: Vec<NodeId>,
    /// True when items may change the worker before this node.
    pub exchanged: bool,
}

#[derive(Default)]
pub(crate) struct Graph {
    pub(crate) name: String,
    pub(crate) nodes: Vec<Node>,
    pub(crate) roots: Vec<Root>,
    pub(crate) edges: usize,
    /// The sources, as a run sees them that begins.
    pub(crate) sources: Sources,
    /// The sinks, as recovery sees them.
    pub(crate) sinks: Sinks,
    /// The types whose values can be saved.
    pub(crate) codecs: Codecs,
    pub(crate) files: Files,
    mistake: Option<Mistake>,
}

/// What the description cannot mean. It is kept, so that every run tells it.
#[derive(Clone, Copy)]
pub(crate) enum Mistake {
    /// A step of this kind keeps state and has no name.
    Unnamed(&'static str),
    /// A stream of another flow was joined.
    Foreign,
    /// A step of this kind gives times behind the node, where partitions have come together.
    TimeBehind(&'static str, NodeId),
    /// Something else, in words.
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
            format!("{kind}-{id}")
        } else {
            name.to_owned()
        };
        let node = Node {
            name,
            kind,
            detail: String::new(),
            inputs,
            exchanged: false,
        };
        self.nodes.push(node);
        id
    }

    /// The dead letters of a step go to `sink`.
    pub(crate) fn dead_letters<D: 'static>(&mut self, node: NodeId, sink: &Arc<dyn Sink<D>>) {
        let own = Arc::as_ptr(sink).cast::<()>() as usize;
        self.sinks.0.push(SinkOf {
            writer: WriterId {
                node,
                dead_letters: true,
            },
            identity: Some(sink.identity().unwrap_or(own)),
            settle: Arc::new(Settled(Arc::clone(sink))),
        });
    }

    /// Gives a node another name.
    pub(crate) fn rename(&mut self, id: NodeId, name: &str) {
        name.clone_into(&mut self.nodes[id].name);
    }

    /// Keeps the first mistake; the fluent calls go on and `check` reports it.
    pub(crate) fn mistake(&mut self, mistake: Mistake) {
        self.mistake.get_or_insert(mistake);
    }

    /// Demands a name for a step that keeps state.
    pub(crate) fn demand_name(&mut self, kind: &'static str, name: &str) {
        if name.is_empty() {
            self.mistake(Mistake::Unnamed(kind));
        }
    }

    /// The first mistake in the description. Names are compared only here: a default name may
    /// have been replaced since its step was added.
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
            Some(Mistake::TimeBehind(kind, behind)) => {
                let kind = kind.to_owned();
                let behind = self.nodes[behind].name.clone();
                return Err(FlowError::TimeBehind { flow, kind, behind });
            }
            None => {}
        }
        let mut names = HashSet::new();
        let nodes = self.nodes.iter().map(|node| node.name.clone());
        let letters = self.sinks.0.iter().map(|sink| sink.writer);
        let letters = letters.filter(|writer| writer.dead_letters);
        let mut all = nodes.chain(letters.map(|writer| writer.name(&self.nodes)));
        match all.find(|name| !names.insert(name.clone())) {
            Some(name) => Err(FlowError::DuplicateName { flow, name }),
            None => Ok(()),
        }
    }

    /// What must hold before the flow can run.
    pub(crate) fn check_whole(&self) -> Result<(), FlowError> {
        self.check()?;
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

    pub(crate) fn describe(&self) -> Description {
        Description {
            flow: self.name.clone(),
            nodes: self.nodes.clone(),
        }
    }
}

/// Where the output of a node goes: the list of its readers, filled while the flow is described.
pub(crate) struct Outlet<B>(Arc<Mutex<Vec<Reader<B>>>>);

impl<B> Clone for Outlet<B> {
    fn clone(&self) -> Self {
        Outlet(Arc::clone(&self.0))
    }
}

impl<B: crate::batch::Batch> Outlet<B> {
    pub(crate) fn new() -> Self {
        Outlet(Arc::default())
    }

    pub(crate) fn read_by(&self, reader: Reader<B>) {
        lock(&self.0).push(reader);
    }

    /// Whether anything follows.
    pub(crate) fn is_read(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    /// Makes all that follows, on one worker.
    pub(crate) fn build(
        &self,
        segment: &mut SegmentBuild<'_, '_>,
    ) -> Result<Box<dyn Push<B>>, FlowError> {
        let readers = lock(&self.0).clone();
        let mut built = Vec::with_capacity(readers.len());
        for reader in &readers {
            built.push(reader(segment)?);
        }
        match built.pop() {
            Some(only) if built.is_empty() => Ok(only),
            Some(last) => {
                built.push(last);
                Ok(Box::new(Tee(built)))
            }
            None => Ok(Box::new(Tee(built))),
        }
    }
}

/// Names a connector that could not be opened.
pub(crate) fn open_error(node: &Node, cause: Cause) -> FlowError {
    FlowError::Open {
        what: format!("{} \"{}\" ({})", node.kind, node.name, node.detail),
        cause,
    }
}

/// The graph of a flow, as text (`Display`), JSON or Mermaid.
#[derive(Clone, Debug)]
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

    /// A Mermaid flowchart; a thick arrow is one on which items may change the worker.
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

/// The column of the kinds is at least so wide, that flows without a long one look alike.
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
