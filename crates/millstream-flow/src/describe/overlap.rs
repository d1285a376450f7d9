//! Finds files that a flow would write twice, or read and write.
//!
//! A sink creates its file anew: two sinks on one file would overwrite each other, and a sink on a file that
//! the flow reads would destroy the input. Paths are compared when a run begins, after links are resolved.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::checkpoint::WriterId;
use crate::error::FlowError;
use crate::node::{Node, NodeId};
use crate::sink::Output;

type Inputs = Arc<dyn Fn() -> Vec<PathBuf> + Send + Sync>;
type Outputs = Arc<dyn Fn(bool) -> Option<Output> + Send + Sync>;

/// The files that the sources and sinks of a flow read and write.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) inputs: Vec<(NodeId, Inputs)>,
    pub(crate) outputs: Vec<(WriterId, Outputs)>,
}

impl Files {
    /// Finds a file that is written twice, or read and written, in a run with recovery or without.
    pub(crate) fn check(&self, nodes: &[Node], recovery: bool) -> Result<(), FlowError> {
        let inputs = self.inputs.iter();
        let inputs =
            inputs.flat_map(|(node, of)| of().into_iter().map(|path| (*node, real(&path))));
        let inputs: Vec<_> = inputs.collect();
        let mut outputs: Vec<(String, bool, Output)> = Vec::new();
        for (writer, output) in &self.outputs {
            let Some(Output { path, sink }) = output(recovery) else {
                continue;
            };
            // Several sinks may write to a device or a pipe.
            if path
                .metadata()
                .is_ok_and(|about| !about.is_file() && !about.is_dir())
            {
                continue;
            }
            let this = Output {
                path: real(&path),
                sink,
            };
            let name = writer.name(nodes);
            let gathered = nodes[writer.node].exchanged && !writer.dead_letters;
            let mut written = outputs.iter();
            let is_same = |other: &&(String, bool, Output)| other.2 == this && other.1 != gathered;
            if let Some((other, ..)) = written.find(is_same) {
                return Err(FlowError::Usage(format!(
                    "sinks \"{other}\" and \"{name}\" both write {}; gather both or none",
                    path.display()
                )));
            }
            let written = outputs.iter();
            let mut written =
                written.filter(|(_, _, other)| other.path == this.path && other.sink != sink);
            if let Some((other, ..)) = written.next() {
                return Err(FlowError::Usage(format!(
                    "sinks \"{}\" and \"{name}\" both write {}; merge their streams, or give each a file of its own",
                    other,
                    path.display()
                )));
            }
            if let Some((source, _)) = inputs.iter().find(|(_, input)| *input == this.path) {
                return Err(FlowError::Usage(format!(
                    "sink \"{name}\" would overwrite {}, which source \"{}\" reads",
                    path.display(),
                    nodes[*source].name
                )));
            }
            outputs.push((name, gathered, this));
        }
        Ok(())
    }
}

/// Returns the path of a file that may not exist yet, with links and dots resolved where its directory exists.
fn real(path: &Path) -> PathBuf {
    let found = path.canonicalize().ok();
    let found = found.or_else(|| {
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        Some(parent.canonicalize().ok()?.join(path.file_name()?))
    });
    found.unwrap_or_else(|| path.to_owned())
}
