//! The publisher: it writes the figures of the server once a second.
//!
//! It runs between the requests, on the thread of the connections, in slices: no request waits longer than one slice.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::core::{Core, State};
use super::watch::{Glance, GlancedItem, QueueFigures, ServerFigures, ServerWatch};
use crate::broker::Status;
use crate::clock;
use crate::item::Item;
use crate::moment::Moment;

/// The time between two publications.
const EVERY: Duration = Duration::from_secs(1);
/// The longest time that the thread works on figures at a stretch, except for one queue.
const SLICE_US: u64 = 200;
/// The pause between two slices.
const PAUSE: Duration = Duration::from_millis(2);
/// The number of waiting and of open items of a queue that are published.
const ITEMS_MAX: usize = 20;
/// The number of bytes of an item that are published.
const HEAD_BYTES: usize = 512;

/// The oldest items of connections, and since when each is known.
type Held = HashMap<(Arc<str>, u64), (u64, u64)>;

/// What the publisher remembers between two publications.
#[derive(Default)]
pub(super) struct Publisher {
    held: Held,
}

/// Publishes once a second, forever, from the moment on when something reads the figures.
pub(super) async fn run(
    core: Rc<Core>,
    (watch, is_watched): (ServerWatch, Arc<Notify>),
    mut publisher: Publisher,
) {
    is_watched.notified().await;
    loop {
        tokio::time::sleep(EVERY).await;
        publisher.publish(&core, &watch).await;
    }
}

impl Publisher {
    /// Publishes the figures of all queues.
    pub(super) async fn publish(&mut self, core: &Core, watch: &ServerWatch) {
        let mut queues = Vec::new();
        let mut held = Held::new();
        let mut place = 0;
        while let Some(next) = core.with(|state| self.slice(state, place, &mut queues, &mut held)) {
            place = next;
            tokio::time::sleep(PAUSE).await;
        }
        self.held = held;
        queues.sort_unstable_by(|one: &QueueFigures, other| one.name.cmp(&other.name));
        let replica = core.options.replica.as_ref();
        let keeper = replica.and_then(|replica| replica.keeper.as_ref());
        let figures = core.with(|state| {
            let now = clock::now();
            ServerFigures {
                number: watch.number() + 1,
                queues,
                glances: glances(state, &watch.wanted(now.steady_us)),
                // Also while no client waits for an answer.
                is_lease_over: keeper.is_some_and(|keeper| !keeper.standing().may_answer()),
                is_held: state.is_held,
                is_alone: keeper.is_some_and(|keeper| keeper.standing().is_alone()),
                ..of_server(state, now)
            }
        });
        watch.set(figures);
    }

    /// Adds the figures of the queues from this place on, until the slice is over. Returns the next place, if any.
    fn slice(
        &self,
        state: &mut State,
        mut place: usize,
        queues: &mut Vec<QueueFigures>,
        held: &mut Held,
    ) -> Option<usize> {
        let now = clock::now();
        while place < state.broker.places() {
            if let Some(mut figures) = state.broker.figures(place, now) {
                for holder in &mut figures.holders {
                    holder.peer = peer(state, holder.connection);
                    let key = (Arc::clone(&figures.name), holder.connection);
                    let since_us = match self.held.get(&key) {
                        Some((oldest, since_us)) if *oldest == holder.oldest => *since_us,
                        _ => now.steady_us,
                    };
                    holder.held_ms = now.steady_us.saturating_sub(since_us) / 1_000;
                    held.insert(key, (holder.oldest, since_us));
                }
                queues.push(figures);
            }
            place += 1;
            if clock::steady_us() - now.steady_us > SLICE_US {
                return (place < state.broker.places()).then_some(place);
            }
        }
        None
    }
}

fn of_server(state: &mut State, now: Moment) -> ServerFigures {
    let (memory_bytes, memory_bytes_max, connections) = state.broker.usage();
    let closed = state.broker.closed();
    let closed = closed.map(|(name, reason)| (name.to_owned(), reason.to_owned()));
    ServerFigures {
        time_ms: now.wall_ms,
        uptime_ms: state.broker.uptime_ms(now),
        status: match state.broker.status() {
            Status::Up => "up",
            Status::ReadOnly => "read only",
            Status::Quiescent => "quiescent",
        },
        connections,
        memory_bytes,
        memory_bytes_max,
        authenticates: state.live.authenticates(),
        closed: closed.collect(),
        counters: *state.broker.counters(),
        latencies: state.broker.latencies().clone(),
        ..ServerFigures::default()
    }
}

fn peer(state: &mut State, connection: u64) -> String {
    let entry = state.entries.get(connection as usize);
    let entry = entry.and_then(Option::as_ref);
    entry.map_or_else(String::new, |entry| entry.peer.to_string())
}

fn glances(state: &mut State, wanted: &[String]) -> BTreeMap<String, Glance> {
    let mut glances = BTreeMap::new();
    for name in wanted {
        let Some((waiting, open)) = state.broker.glance(name, ITEMS_MAX) else {
            continue;
        };
        let waiting = waiting.iter().map(|item| glanced(item, None)).collect();
        let open = open.iter().map(|(item, connection)| {
            let peer = peer(state, *connection);
            glanced(item, Some((*connection, peer)))
        });
        let open = open.collect();
        glances.insert(name.clone(), Glance { waiting, open });
    }
    glances
}

fn glanced(item: &Item, holder: Option<(u64, String)>) -> GlancedItem {
    GlancedItem {
        id: item.id,
        added_ms: item.added_ms,
        expiry_ms: item.expiry_ms,
        deliveries: item.deliveries,
        length: item.body.len() as u64,
        head: item.body[..item.body.len().min(HEAD_BYTES)].to_vec(),
        holder,
    }
}
