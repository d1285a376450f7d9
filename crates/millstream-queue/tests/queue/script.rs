//! Conversations as text.
//!
//! `a> set q 0 0 2|hi|` client `a` sends; `a< STORED|` is all that it has got since (`|` is CR LF, an empty line
//! nothing); `+500` half a second passes; `a!` its connection ends, `a.` the server ends it; `crash` the process dies
//! and starts again; `power` so does the machine, and what was not synced is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_queue::Moment;
use millstream_queue::broker::{Broker, BrokerLimits, EndedBy};
use millstream_queue::config::Config;
use millstream_queue::session::{Session, SessionOptions};
use millstream_queue::storage::MemoryStorage;

/// A server without sockets, and its clients.
pub struct World {
    pub storage: MemoryStorage,
    pub queues: Broker<MemoryStorage>,
    pub now: Moment,
    limits: BrokerLimits,
    config: Config,
    options: Arc<SessionOptions>,
    clients: BTreeMap<char, Client>,
}

struct Client {
    session: Session,
    got: Vec<u8>,
}

impl World {
    pub fn new(config: &str) -> Self {
        Self::with_options(config, SessionOptions::default())
    }

    pub fn with_options(config: &str, options: SessionOptions) -> Self {
        let config: Config = config.parse().unwrap();
        let storage = MemoryStorage::new(64);
        let now = Moment {
            wall_ms: 1_700_000_000_000,
            steady_us: 5_000_000,
        };
        let queues = Broker::open(storage.clone(), config.clone(), now).unwrap();
        World {
            storage,
            queues,
            now,
            limits: BrokerLimits::default(),
            config,
            options: options.into(),
            clients: BTreeMap::new(),
        }
    }

    /// Limits the memory of all queues, also after a restart.
    pub fn set_memory(&mut self, bytes: u64) {
        self.limits.memory_bytes = bytes;
        self.queues.set_limits(self.limits);
    }

    /// Limits what a connection may open, also after a restart.
    pub fn set_opens(&mut self, items: usize) {
        self.limits.opens_per_connection = items;
        self.queues.set_limits(self.limits);
    }

    /// Makes rounds so short, also after a restart.
    pub fn set_round(&mut self, items: usize) {
        self.limits.round_items = items;
        self.queues.set_limits(self.limits);
    }

    /// Run a conversation.
    pub fn play(&mut self, script: &str) {
        for line in script
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let words = line.get(2..).unwrap_or_default().trim_start();
            match line.as_bytes() {
                [b'+', ..] => self.pass(line[1..].parse().unwrap()),
                b"crash" => self.restart(),
                b"power" => {
                    self.clients.clear();
                    self.storage.lose_power(|_| 0);
                    self.restart();
                }
                [name, b'>', ..] => self.send(*name as char, words.replace('|', "\r\n").as_bytes()),
                [name, b'<', ..] => {
                    let got = self.received(*name as char);
                    assert_eq!(got, words, "at {line:?} of\n{script}");
                }
                [name, b'!'] => self.hang_up(*name as char),
                [name, b'.'] => self.end(*name as char, EndedBy::Server),
                _ => panic!("what is {line:?}?"),
            }
        }
        for (name, client) in &self.clients {
            let got = String::from_utf8_lossy(&client.got);
            assert!(
                got.is_empty(),
                "nobody looked at what {name} got: {got:?} in\n{script}"
            );
        }
    }

    pub fn send(&mut self, name: char, bytes: &[u8]) {
        let client = self.clients.entry(name).or_insert_with(|| Client {
            session: Session::new(&mut self.queues, Arc::clone(&self.options)),
            got: Vec::new(),
        });
        client.session.receive(&mut self.queues, bytes, self.now);
        self.deliver();
    }

    /// The replies to a client since the last call, `|` for CR LF.
    pub fn received(&mut self, name: char) -> String {
        let got = self
            .clients
            .get_mut(&name)
            .map(|client| std::mem::take(&mut client.got))
            .unwrap_or_default();
        String::from_utf8_lossy(&got).replace("\r\n", "|")
    }

    pub fn pass(&mut self, ms: u64) {
        let end_us = self.now.steady_us + ms * 1_000;
        while let Some(due_us) = self.queues.next_event().filter(|due_us| *due_us <= end_us) {
            self.advance(due_us.max(self.now.steady_us));
        }
        self.advance(end_us);
    }

    pub fn hang_up(&mut self, name: char) {
        self.end(name, EndedBy::Client);
    }

    fn end(&mut self, name: char, ended: EndedBy) {
        if let Some(mut client) = self.clients.remove(&name) {
            client.session.end(&mut self.queues, ended, self.now);
            self.deliver();
        }
    }

    pub fn is_closed(&self, name: char) -> bool {
        self.clients[&name].session.is_closed()
    }

    pub fn restart(&mut self) {
        self.clients.clear();
        let queues = Broker::open(self.storage.clone(), self.config.clone(), self.now);
        self.queues = queues.unwrap().with_limits(self.limits);
    }

    /// So much time passes at once, and one round of what is due then is done.
    pub fn begin(&mut self, ms: u64) {
        self.advance(self.now.steady_us + ms * 1_000);
    }

    /// Does what is left of the work that is due now. Returns the number of rounds.
    pub fn end_rounds(&mut self) -> u64 {
        let mut rounds = 0;
        while self.queues.next_event() <= Some(self.now.steady_us)
            && self.queues.next_event().is_some()
        {
            self.begin(0);
            rounds += 1;
        }
        rounds
    }

    fn advance(&mut self, steady_us: u64) {
        let before_ms = self.now.steady_us / 1_000;
        self.now.wall_ms += steady_us / 1_000 - before_ms;
        self.now.steady_us = steady_us;
        self.queues.run_due(self.now).unwrap();
        // What is due is synced below, as the rest.
        self.queues.take_commit_wanted();
        self.deliver();
    }

    /// The steps of the server after each batch of work: wake, commit, send; until nothing changes.
    fn deliver(&mut self) {
        loop {
            let woken = self.queues.take_woken();
            let mut sent = false;
            for client in self.clients.values_mut() {
                if woken.contains(&client.session.id()) {
                    client.session.resume(&mut self.queues, self.now);
                }
            }
            let committed = self.queues.commit().is_ok();
            for client in self.clients.values_mut() {
                let bytes = client.session.output().len();
                if bytes > 0 {
                    sent = true;
                    if committed {
                        client.got.extend_from_slice(client.session.output());
                    }
                    client.session.sent(bytes);
                }
                // After output was sent, or between two rounds of a request.
                if client.session.has_work() {
                    sent = true;
                    client.session.resume(&mut self.queues, self.now);
                }
            }
            if woken.is_empty() && !sent {
                return;
            }
        }
    }
}

/// Run a conversation in a new world.
pub fn play(config: &str, script: &str) {
    World::new(config).play(script);
}
