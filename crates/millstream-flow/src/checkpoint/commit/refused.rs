//! The dead letters of what is refused when nothing more is committed: at the end of a flow its last output is
//! delivered after the last epoch.
//!
//! The sinks that have dead letters end first. Then the last commit is amended: the same epoch is appended again, with
//! the tokens of the letters and of what was passed on. A flow that is killed before that has the records in the
//! journal of refused ones, and passes them on at its next start.

use super::Committer;
use crate::checkpoint::sinks::WriterId;
use crate::error::{Failure, FlowError};
use crate::letters::Letters;
use crate::node::NodeId;
use crate::panics::in_step;
use crate::policy::unwritten;
use crate::sink::{Refused, Token};

impl Committer {
    /// Waits for the ends of the deliveries of sinks with dead letters, and writes the letters that are left.
    pub(super) fn pass_on_refused(&mut self) -> Result<(), FlowError> {
        let letters = self.letters.clone();
        let nodes: Vec<NodeId> = letters.iter().map(|(node, _)| *node).collect();
        self.sinks.finish_deliveries(&self.nodes, &nodes);
        while !self.sinks.have_ended(&nodes) && !self.control.aborted() {
            self.control.ends.await_forwarder();
        }
        for (node, letters) in &letters {
            while !self.control.aborted()
                && let Some(taken) = self.sinks.take_refused(&self.nodes, *node)?
            {
                self.amend(*node, &**letters, taken)?;
            }
        }
        Ok(())
    }

    /// Commits the last epoch again, with the dead letters of these records.
    fn amend(
        &mut self,
        node: NodeId,
        letters: &dyn Letters,
        (refused, token): (Vec<Refused>, Token),
    ) -> Result<(), FlowError> {
        let epoch = self.commit.epoch;
        let worker = self.control.load.local().start;
        let name = &self.nodes[node].name;
        let called = in_step(name);
        let write = || {
            let mut open = letters.open(name, worker, &self.control)?;
            open.write(refused)?;
            Ok([open.prepare(epoch)?, open.close()?])
        };
        let tokens = write()
            .map_err(|cause| FlowError::Failed(Failure::new(name.clone(), unwritten(cause))))?;
        drop(called);
        let mut next = self.commit.clone();
        for token in tokens.into_iter().flatten() {
            let writer = WriterId::dead_letters(node);
            next.put_sink(self.sinks.mark(writer, &self.nodes, worker, token));
        }
        let writer = WriterId::sink(node);
        next.put_sink(self.sinks.mark(writer, &self.nodes, worker, token));
        if self.options.sync {
            self.sinks.sync(&self.nodes)?;
        }
        self.store.commit(Vec::new(), &next)?;
        self.commit = next;
        if self.await_replica(epoch)? {
            self.sinks.commit(&self.nodes, &self.commit)
        } else {
            Ok(())
        }
    }
}
