//! The places of a server: how many connections it has, and which one ends when there is no place for another.
//!
//! A new connection is *unauthenticated* until a request of it has passed the checks of the server. It takes no place
//! of a client before that, has [`HEADER_TIME`] for it, and is the first to end when places run out, the oldest one
//! first. Requests of *probes* have places of their own, for which clients and silent connections do not compete.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::StatusCode;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::lock;
use crate::refusal::Refusal;

/// The time in which a new connection sends a request that passes the checks.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// How long a connection without a request keeps its place although another one needs it: the next request of a busy
/// client is on its way.
const IDLE_MIN: Duration = Duration::from_secs(1);

/// How many connections a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Of clients.
    pub(crate) clients: usize,
    /// Of probes, beside those.
    pub(crate) probes: usize,
    /// Unauthenticated ones, beside those.
    pub(crate) unauthenticated: usize,
    /// Of clients of one address.
    pub(crate) of_address: usize,
    /// How long a new connection may stay unauthenticated although another one needs its place.
    pub(crate) patience: Duration,
}

impl Limits {
    /// These clients, of any address: that may be the one of a proxy. They share their places with unauthenticated
    /// connections. Those of a burst wait for each other.
    pub(crate) fn clients(clients: usize) -> Self {
        Limits {
            clients,
            probes: 0,
            unauthenticated: 0,
            of_address: usize::MAX,
            patience: IDLE_MIN,
        }
    }

    fn all(&self) -> usize {
        self.clients
            .saturating_add(self.probes)
            .saturating_add(self.unauthenticated)
    }

    /// The most connections of one address: clients, and half of the other places.
    fn all_of_address(&self) -> usize {
        let others = self.probes.saturating_add(self.unauthenticated);
        self.of_address.saturating_add(others.div_ceil(2))
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A client: a program or a browser.
    Client,
    /// A short look from time to time, such as a health check.
    Probe,
}

/// The machine at the other end of a connection. All IPv6 addresses of a network of 64 bits count as one; a connection
/// of a Unix socket has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer(Option<IpAddr>);

impl Peer {
    pub(crate) fn of(address: Option<IpAddr>) -> Self {
        Peer(address.map(|address| match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
            }
            address => address,
        }))
    }

    /// Whether connections of both count as those of one address.
    fn is_that_of(self, other: Peer) -> bool {
        self.0.is_some() && self == other
    }
}

/// The places of one server.
pub(crate) struct Places {
    limits: Limits,
    table: Mutex<Table>,
    /// A connection has ended.
    freed: Notify,
}

/// The connections by their numbers: the oldest first.
#[derive(Default)]
struct Table {
    entries: BTreeMap<u64, Entry>,
    last: u64,
}

struct Entry {
    peer: Peer,
    /// `None` while it is unauthenticated.
    purpose: Option<Purpose>,
    since: Instant,
    /// Since when it has no request that is being answered.
    idle_since: Option<Instant>,
    end: Arc<Notify>,
}

impl Entry {
    fn is(&self, purpose: Purpose) -> bool {
        self.purpose == Some(purpose)
    }
}

/// The place of one connection. It is free again when this is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    end: Arc<Notify>,
    header_until: Instant,
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Places {
            limits,
            table: Mutex::default(),
            freed: Notify::new(),
        })
    }

    /// The place of a new connection, for which another one may end. Waits while there is none; returns `None` if this
    /// address has too many.
    pub(crate) async fn enter(self: &Arc<Self>, peer: Peer) -> Option<Place> {
        loop {
            let next = {
                let mut table = lock(&self.table);
                if !self.has_room_for(&mut table, peer) {
                    return None;
                }
                if table.entries.len() < self.limits.all() || table.end_one(&self.limits, |_| true)
                {
                    return Some(self.add(&mut table, peer));
                }
                table.next_end(&self.limits)
            };
            let freed = self.freed.notified();
            match next {
                // Over or not: then there may be a place.
                Some(at) => drop(timeout_at(at, freed).await),
                None => freed.await,
            }
        }
    }

    /// Whether the address may have another connection. One of its own may end for it.
    fn has_room_for(&self, table: &mut Table, peer: Peer) -> bool {
        let same = |entry: &Entry| entry.peer.is_that_of(peer);
        let count = table.entries.values().filter(|entry| same(entry)).count();
        count < self.limits.all_of_address() || table.end_one(&self.limits, same)
    }

    fn add(self: &Arc<Self>, table: &mut Table, peer: Peer) -> Place {
        table.last += 1;
        let number = table.last;
        let since = Instant::now();
        let end = Arc::new(Notify::new());
        let entry = Entry {
            peer,
            purpose: None,
            since,
            idle_since: None,
            end: Arc::clone(&end),
        };
        table.entries.insert(number, entry);
        Place {
            places: Arc::clone(self),
            number,
            end,
            header_until: since + HEADER_TIME,
        }
    }
}

impl Table {
    /// Ends one of the connections that `may` end: the oldest unauthenticated one, or that which is idle for the
    /// longest time. Returns false if there is none.
    fn end_one(&mut self, limits: &Limits, may: impl Fn(&Entry) -> bool) -> bool {
        let now = Instant::now();
        let among = || self.entries.iter().filter(|(_, entry)| may(entry));
        let mut silent = among().filter(|(_, entry)| entry.purpose.is_none());
        let silent = silent.find(|(_, entry)| now >= entry.since + limits.patience);
        let found = silent.map(|(number, _)| *number).or_else(|| {
            let idle = among().filter_map(|(number, entry)| Some((entry.idle_since?, *number)));
            let longest = idle.min().filter(|(since, _)| now >= *since + IDLE_MIN);
            longest.map(|(_, number)| number)
        });
        if let Some(number) = found {
            self.end(number);
        }
        found.is_some()
    }

    fn end(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            entry.end.notify_one();
        }
    }

    /// When the next connection may end for another one.
    fn next_end(&self, limits: &Limits) -> Option<Instant> {
        let ends = self
            .entries
            .values()
            .filter_map(|entry| match entry.purpose {
                None => Some(entry.since + limits.patience),
                Some(_) => entry.idle_since.map(|since| since + IDLE_MIN),
            });
        ends.min()
    }
}

impl Place {
    /// A request has passed the checks of the server: the connection is no longer the first to end.
    ///
    /// # Errors
    /// All places are taken by requests that are being answered.
    pub(crate) fn confirm(&self, purpose: Purpose) -> Result<(), Refusal> {
        let limits = &self.places.limits;
        let mut table = lock(&self.places.table);
        let Some(entry) = table.entries.get(&self.number) else {
            // It ends.
            return Err(too_many(""));
        };
        // A client may ask for what probes ask for, too.
        if entry.is(Purpose::Client) || entry.is(purpose) {
            return Ok(());
        }
        let peer = entry.peer;
        match purpose {
            Purpose::Probe => {
                let probes = table.entries.iter().filter(|(_, entry)| entry.is(purpose));
                let count = probes.clone().count();
                let oldest = probes.map(|(n, _)| *n).next();
                if let Some(oldest) = oldest.filter(|_| count >= limits.probes.max(1)) {
                    table.end(oldest);
                }
            }
            Purpose::Client => {
                let same = |entry: &Entry| entry.is(purpose) && entry.peer.is_that_of(peer);
                table.make_room(limits, same, limits.of_address, " from this address")?;
                table.make_room(limits, |entry| entry.is(purpose), limits.clients, "")?;
            }
        }
        if let Some(entry) = table.entries.get_mut(&self.number) {
            entry.purpose = Some(purpose);
        }
        Ok(())
    }

    /// A request is being answered from now on, or no longer.
    pub(crate) fn set_idle(&self, is_idle: bool) {
        if let Some(entry) = lock(&self.places.table).entries.get_mut(&self.number) {
            entry.idle_since = is_idle.then(Instant::now);
        }
    }

    /// Returns when another connection needs the place, or no request has passed the checks in time.
    pub(crate) async fn ended(&self) {
        if timeout_at(self.header_until, self.end.notified())
            .await
            .is_ok()
        {
            return;
        }
        let is_late = {
            let table = lock(&self.places.table);
            let entry = table.entries.get(&self.number);
            entry.is_none_or(|entry| entry.purpose.is_none())
        };
        if !is_late {
            self.end.notified().await;
        }
    }
}

impl Table {
    /// Ends an idle one of those that `count` if there are `max`.
    fn make_room(
        &mut self,
        limits: &Limits,
        counts: impl Fn(&Entry) -> bool,
        max: usize,
        of: &str,
    ) -> Result<(), Refusal> {
        let count = self.entries.values().filter(|entry| counts(entry)).count();
        if count < max || self.end_one(limits, counts) {
            Ok(())
        } else {
            Err(too_many(of))
        }
    }
}

fn too_many(of: &str) -> Refusal {
    let line = format!("too many open connections{of}; try again later");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, line)
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.table).entries.remove(&self.number);
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LIMITS: Limits = Limits {
        clients: 3,
        probes: 1,
        unauthenticated: 2,
        of_address: 2,
        patience: Duration::ZERO,
    };

    fn peer(last: u8) -> Peer {
        Peer::of(Some(Ipv4Addr::new(10, 0, 0, last).into()))
    }

    /// What is ready at once.
    fn now<T>(work: impl Future<Output = T>) -> Option<T> {
        match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    fn enter(places: &Arc<Places>, from: Peer) -> Place {
        now(places.enter(from)).flatten().unwrap()
    }

    fn client(places: &Arc<Places>, from: Peer) -> Place {
        let place = enter(places, from);
        place.confirm(Purpose::Client).unwrap();
        place
    }

    fn has_ended(place: &Place) -> bool {
        !lock(&place.places.table)
            .entries
            .contains_key(&place.number)
    }

    fn within_runtime(test: impl FnOnce()) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        let _entered = runtime.enter();
        test();
    }

    #[test]
    fn the_oldest_unauthenticated_one_ends_first() {
        within_runtime(|| {
            let places = Places::new(LIMITS);
            let first = client(&places, peer(1));
            let silent: Vec<Place> = (2..7).map(|last| enter(&places, peer(last))).collect();
            assert!(!silent.iter().any(has_ended));
            let _new = enter(&places, peer(7));
            assert!(has_ended(&silent[0]) && now(silent[0].ended()).is_some());
            assert!(!silent[1..].iter().any(has_ended) && !has_ended(&first));
            // One that has ended meanwhile is served no more.
            assert!(silent[0].confirm(Purpose::Client).is_err());
        });
    }

    #[test]
    fn probes_have_places_beside_those_of_clients() {
        within_runtime(|| {
            let places = Places::new(LIMITS);
            let clients: Vec<Place> = (1..4).map(|last| client(&places, peer(last))).collect();
            let refused = enter(&places, peer(4)).confirm(Purpose::Client);
            assert_eq!(refused.unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
            let probe = enter(&places, peer(4));
            probe.confirm(Purpose::Probe).unwrap();
            let next = enter(&places, peer(5));
            next.confirm(Purpose::Probe).unwrap();
            assert!(has_ended(&probe) && !has_ended(&next));
            // A client that asks for what probes ask for stays a client.
            clients[0].confirm(Purpose::Probe).unwrap();
            assert!(!has_ended(&next) && !clients.iter().any(has_ended));
        });
    }

    #[test]
    fn an_address_has_not_all_places() {
        within_runtime(|| {
            let places = Places::new(LIMITS);
            let clients: Vec<Place> = (0..2).map(|_| client(&places, peer(1))).collect();
            let third = enter(&places, peer(1));
            assert!(third.confirm(Purpose::Client).is_err());
            let silent = enter(&places, peer(1));
            // Its oldest silent one ends for the next, and none of others.
            let other = enter(&places, peer(2));
            let _next = enter(&places, peer(1));
            assert!(has_ended(&third) && !has_ended(&silent) && !has_ended(&other));
            assert!(!clients.iter().any(has_ended));
            // Connections of the socket of this machine have no address.
            let _local: Vec<Place> = (0..3).map(|_| enter(&places, Peer::of(None))).collect();
            assert!(now(places.enter(Peer::of(None))).flatten().is_some());
        });
    }

    #[test]
    fn a_burst_waits_where_silent_connections_share_places_with_clients() {
        within_runtime(|| {
            let places = Places::new(Limits::clients(2));
            let first = enter(&places, peer(1));
            let second = enter(&places, peer(1));
            assert!(now(places.enter(peer(1))).is_none());
            first.confirm(Purpose::Client).unwrap();
            assert!(now(places.enter(peer(1))).is_none());
            drop(second);
            assert!(now(places.enter(peer(1))).flatten().is_some());
        });
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let of = |text: &str| Peer::of(Some(text.parse().unwrap()));
        assert!(of("2001:db8::1").is_that_of(of("2001:db8::2")));
        assert!(!of("2001:db8::1").is_that_of(of("2001:db8:0:1::1")));
        assert!(of("::ffff:10.0.0.1").is_that_of(peer(1)));
        assert!(!peer(1).is_that_of(peer(2)) && !Peer::of(None).is_that_of(Peer::of(None)));
    }
}
