//! A server without sockets: sessions over queues on a disk, and the bytes that their clients have received.

use std::collections::BTreeMap;

use millstream_queue::broker::{Broker, EndedBy};
use millstream_queue::config::Config;
use millstream_queue::session::{Session, SessionOptions};
use millstream_queue::{Moment, QueueError};

use super::disks::Disks;

/// One process that serves queues.
pub struct Server {
    queues: Broker<Disks>,
    clients: BTreeMap<u8, Client>,
}

struct Client {
    session: Session,
    got: Vec<u8>,
}

impl Server {
    pub fn start(disks: Disks, config: &Config, now: Moment) -> Result<Self, QueueError> {
        Ok(Server {
            queues: Broker::open(disks, config.clone(), now)?,
            clients: BTreeMap::new(),
        })
    }

    /// The queues that are kept closed, and why.
    pub fn closed(&self) -> Option<String> {
        let closed: Vec<String> = self
            .queues
            .closed()
            .map(|(queue, why)| format!("{queue}: {why}"))
            .collect();
        (!closed.is_empty()).then(|| closed.join("; "))
    }

    /// Another configuration holds.
    pub fn configure(&mut self, config: &Config, now: Moment) {
        self.queues.configure(config.clone(), now);
    }

    /// A client sends bytes, and each answer reaches its client.
    pub fn send(&mut self, client: u8, bytes: &[u8], now: Moment) {
        let Server { queues, clients } = self;
        let client = clients.entry(client).or_insert_with(|| Client {
            session: Session::new(queues, SessionOptions::default()),
            got: Vec::new(),
        });
        client.session.receive(queues, bytes, now);
        self.deliver(now);
    }

    /// The bytes that a client has received since the last call.
    pub fn received(&mut self, client: u8) -> Vec<u8> {
        self.clients
            .get_mut(&client)
            .map(|client| std::mem::take(&mut client.got))
            .unwrap_or_default()
    }

    /// The connection of a client ends.
    pub fn hang_up(&mut self, client: u8, now: Moment) {
        if let Some(mut client) = self.clients.remove(&client) {
            client.session.end(&mut self.queues, EndedBy::Client, now);
            self.deliver(now);
        }
    }

    /// Time has passed.
    pub fn turn(&mut self, now: Moment) -> Result<(), QueueError> {
        self.queues.run_due(now)?;
        self.deliver(now);
        Ok(())
    }

    /// When there is something to do without a request.
    pub fn next_event(&self) -> Option<u64> {
        self.queues.next_event()
    }

    /// As the real server does after a batch of work: wake, commit, and only then send; until nothing more happens.
    fn deliver(&mut self, now: Moment) {
        loop {
            let woken = self.queues.take_woken();
            for client in self.clients.values_mut() {
                if woken.contains(&client.session.id()) {
                    client.session.resume(&mut self.queues, now);
                }
            }
            let committed = self.queues.commit().is_ok();
            let mut sent = false;
            for client in self.clients.values_mut() {
                let bytes = client.session.output().len();
                if bytes == 0 {
                    continue;
                }
                sent = true;
                if committed {
                    client.got.extend_from_slice(client.session.output());
                }
                client.session.sent(bytes);
                if client.session.has_work() {
                    client.session.resume(&mut self.queues, now);
                }
            }
            if woken.is_empty() && !sent {
                return;
            }
        }
    }
}
