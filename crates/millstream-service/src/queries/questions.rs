//! The questions that wait for a component, and the functions that answer them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};

use millstream_journal::chain;
use serde_json::Value;

use super::fault::{Arguments, Fault, QueryError};
use super::message::{Reply, Request};
use crate::panics;

/// The function that answers a query.
pub(crate) type Answer<C> = Box<dyn FnMut(&mut C, &Arguments) -> Result<Value, QueryError> + Send>;

/// A question of a client, and where its answer goes.
pub(super) type Question = (Request, Sender<Reply>);

/// The questions that wait for the component.
pub(crate) struct Questions {
    receiver: Receiver<Question>,
    count: Arc<AtomicUsize>,
}

/// Where clients put their questions.
#[derive(Clone)]
pub(super) struct Desk {
    pub sender: Sender<Question>,
    pub count: Arc<AtomicUsize>,
}

pub(super) fn desk() -> (Desk, Questions) {
    let (sender, receiver) = channel();
    let count = Arc::<AtomicUsize>::default();
    let desk = Desk {
        sender,
        count: Arc::clone(&count),
    };
    (desk, Questions { receiver, count })
}

impl Questions {
    /// Whether there is one; cheap.
    #[inline]
    pub fn are_there(&self) -> bool {
        self.count.load(Relaxed) > 0
    }

    /// Answers the next question.
    pub fn answer<C>(&self, component: &mut C, queries: &mut [(String, Answer<C>)]) {
        let Ok((request, sender)) = self.receiver.try_recv() else {
            return;
        };
        self.count.fetch_sub(1, Relaxed);
        let is_only = request.query.is_empty() && queries.len() == 1;
        let known = { queries.iter_mut() }.find(|(name, _)| is_only || *name == request.query);
        let answered = match known {
            Some((_, answer)) => panics::call(component, |component| {
                Ok(answer(component, &request.arguments))
            })
            .unwrap_or_else(|panic| Err(QueryError::failed(chain(&*panic).to_string()))),
            None => Err(unknown(&request.query, queries)),
        };
        // The client may have gone.
        let _ = sender.send(Reply::of(answered));
    }
}

fn unknown<C>(name: &str, queries: &[(String, Answer<C>)]) -> QueryError {
    let known: Vec<&str> = queries.iter().map(|(name, _)| name.as_str()).collect();
    QueryError {
        fault: Fault::Unknown,
        reason: format!(
            "the component has no query {name}; it has {}",
            known.join(", ")
        ),
    }
}
