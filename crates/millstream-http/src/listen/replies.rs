//! A sink of replies to the requests of a source.

use std::sync::{Arc, Mutex};

use millstream_flow::control::Control;
use millstream_flow::error::Cause;
use millstream_flow::framing::Frames;
use millstream_flow::sink::{Sink, Token, Transactional, Writer};

use super::desk::{Desk, Held};
use super::reply::Reply;
use crate::lock;

/// A sink of replies to the requests of a source. See [`Listen::replies`](crate::Listen::replies).
#[derive(Clone)]
pub struct Replies {
    pub(super) address: String,
    pub(super) desk: Arc<Desk>,
    /// Holds the desk from the begin of a run with a state directory to its last commit.
    pub(super) committing: Arc<Mutex<Option<Held>>>,
}

impl Sink<Frames> for Replies {
    fn describe(&self) -> String {
        format!("http reply {}", self.address)
    }
    fn open(&self, _: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Frames>>, Cause> {
        Ok(Box::new(ReplyWriter {
            held: Some(self.desk.hold()),
            desk: Arc::clone(&self.desk),
            after_commit: lock(&self.committing).is_some(),
            replies: Vec::new(),
        }))
    }
    /// The one that has the source.
    fn in_one_process(&self) -> bool {
        true
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl Transactional for Replies {
    fn resume(&self, _: &[Token]) -> Result<Option<Token>, Cause> {
        let held = self.desk.hold();
        *lock(&self.committing) = Some(held);
        Ok(None)
    }
    fn commit(&self, epoch: u64, _: &[Token]) -> Result<(), Cause> {
        self.desk.commit(epoch);
        Ok(())
    }
    fn finish(&self) {
        let held = lock(&self.committing).take();
        drop(held);
    }
    fn identity(&self) -> Option<usize> {
        Some(Arc::as_ptr(&self.committing).addr())
    }
}

struct ReplyWriter {
    desk: Arc<Desk>,
    /// None after it is closed.
    held: Option<Held>,
    /// Whether replies are sent after the commit of their epoch, or at once.
    after_commit: bool,
    /// Those of this epoch.
    replies: Vec<Reply>,
}

impl Writer<Frames> for ReplyWriter {
    fn write_batch(&mut self, batch: &mut Frames) -> Result<(), Cause> {
        for item in batch.iter() {
            let reply = Reply::read(item).ok_or("an item of a sink of replies is no reply")?;
            self.replies.push(reply);
        }
        batch.data.clear();
        batch.spans.clear();
        if !self.after_commit {
            self.desk.send(self.replies.drain(..));
        }
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        self.desk.prepare(epoch, std::mem::take(&mut self.replies));
        Ok(None)
    }
    fn close(&mut self) -> Result<Option<Token>, Cause> {
        self.held = None;
        Ok(None)
    }
}
