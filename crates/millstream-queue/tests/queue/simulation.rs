//! Many clients at random, with a clock and crashes that the test makes, against a model of plain collections.
//!
//! A run is a seed: `QUEUE_SIM_SEED=17 cargo test -p millstream-queue simulation` repeats the one that failed, and
//! `QUEUE_SIM_RUNS=100000` does more than the usual number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millstream_journal::random::Random;

use crate::script::World;

const CONFIG: &str = r#"
    [queue.tiny_memory]
    memory_bytes = 300
    [queue.full]
    max_items = 4
    [queue.rolling]
    max_items = 4
    discard_old = true
    [queue.batched]
    max_opens = 3
    [queue.once]
    dedupe = "60ms"
    memory_bytes = 300
    [queue.parent]
    dedupe = "60ms"
    [queue.unsynced]
    sync = "never"
    memory_bytes = 500
    [queue.leased]
    open_timeout = "40ms"
    memory_bytes = 300
    [queue.retried]
    retry = { first = "5ms", factor = 2, most = "30ms" }
    memory_bytes = 300
"#;
const QUEUES: [&str; 11] = [
    "plain",
    "leased",
    "retried",
    "tiny_memory",
    "full",
    "rolling",
    "batched",
    "once",
    "unsynced",
    "parent",
    "parent+child",
];
const CLIENTS: [char; 6] = ['a', 'b', 'c', 'd', 'e', 'f'];
const STEPS: u64 = 400;
/// Each 100th run is so long that logs are compacted.
const STEPS_LONG: u64 = 20_000;

/// Whether items of these queues may be delayed.
fn may_delay(queues: &[&str]) -> bool {
    !queues.contains(&"full") && !queues.contains(&"batched")
}

/// One of these, each equally likely.
fn any_of<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

#[derive(Clone, Debug, PartialEq)]
struct ModelItem {
    number: u64,
    body: String,
    expiry_ms: u64,
    due_ms: u64,
    failures: u32,
}

/// What a client has opened in a queue; `thing` is none once its time was over.
struct ModelOpen {
    queue: &'static str,
    thing: Option<ModelItem>,
    until_ms: u64,
}

/// What happens to an item that a client gives up.
#[derive(Clone, Copy)]
enum Ending {
    Close,
    /// It comes back after these milliseconds, or after those of the queue.
    Abort(Option<u64>),
}

#[derive(Default)]
struct ModelQueue {
    /// Sorted by number.
    things: Vec<ModelItem>,
    waiters: VecDeque<Waiter>,
    /// All that was ever acknowledged.
    ever: BTreeMap<u64, ModelItem>,
}

#[derive(Clone)]
struct Waiter {
    client: char,
    until_ms: u64,
    key: String,
    open: bool,
    /// Whether the item takes the place of one whose time was over.
    gives_up: bool,
    items_max: Option<u64>,
}

#[derive(Default)]
struct Client {
    open: Vec<ModelOpen>,
    expected: String,
}

/// The model of the server, in plain collections.
#[derive(Default)]
struct Model {
    lines: BTreeMap<&'static str, ModelQueue>,
    clients: BTreeMap<char, Client>,
    /// Waits for several items that have the first one.
    served: Vec<(Waiter, &'static str)>,
    /// When an item with this id was put into the queue.
    ids: BTreeMap<(&'static str, u64), u64>,
    now_ms: u64,
    numbers: u64,
}

impl Model {
    fn line(&mut self, queue: &'static str) -> &mut ModelQueue {
        self.lines.entry(queue).or_default()
    }

    fn say(&mut self, client: char, reply: &str) {
        self.clients.entry(client).or_default().expected += reply;
    }

    fn value(&mut self, client: char, key: &str, thing: &ModelItem) {
        let ModelItem { number, body, .. } = thing;
        self.say(
            client,
            &format!("VALUE {key} {} {}|{body}|", *number as u32, body.len()),
        );
    }

    fn put(
        &mut self,
        client: char,
        queue: &'static str,
        body: &str,
        (expiry_s, delay_ms): (u64, u64),
        id: Option<u64>,
    ) {
        let now_ms = self.now_ms;
        if queue == "full" && self.line(queue).things.len() >= 4 {
            return self.say(client, "NOT_STORED|");
        }
        let thing = ModelItem {
            number: self.numbers,
            body: body.to_owned(),
            expiry_ms: if expiry_s == 0 {
                0
            } else {
                now_ms + expiry_s * 1_000
            },
            due_ms: if delay_ms == 0 { 0 } else { now_ms + delay_ms },
            failures: 0,
        };
        let children: &[&'static str] = if queue == "parent" {
            &["parent", "parent+child"]
        } else {
            &[queue]
        };
        for &queue in children {
            if id.is_some_and(|id| !self.is_new(queue, id)) {
                continue;
            }
            let line = self.line(queue);
            line.ever.insert(thing.number, thing.clone());
            line.things.push(thing.clone());
            while queue == "rolling" && line.things.len() > 4 {
                line.things.remove(0);
            }
        }
        self.say(client, "STORED|");
        children.iter().for_each(|queue| self.serve(queue));
    }

    /// Whether no item with this id was put into the queue in its time; now it is.
    fn is_new(&mut self, queue: &'static str, id: u64) -> bool {
        let now_ms = self.now_ms;
        let set_ms = self.ids.entry((queue, id)).or_insert(0);
        let is_new = *set_ms + 60 <= now_ms;
        if is_new {
            *set_ms = now_ms;
        }
        is_new
    }

    fn next(&mut self, queue: &'static str) -> Option<ModelItem> {
        let now_ms = self.now_ms;
        let line = self.line(queue);
        line.things
            .retain(|thing| thing.expiry_ms == 0 || thing.expiry_ms > now_ms);
        let at = line
            .things
            .iter()
            .position(|thing| thing.due_ms <= now_ms)?;
        Some(line.things.remove(at))
    }

    fn put_back(&mut self, queue: &'static str, thing: ModelItem) {
        let line = self.line(queue);
        let at = line
            .things
            .partition_point(|other| other.number < thing.number);
        line.things.insert(at, thing);
    }

    fn serve(&mut self, queue: &'static str) {
        while !self.line(queue).waiters.is_empty() {
            let Some(thing) = self.next(queue) else {
                return;
            };
            let Some(waiter) = self.line(queue).waiters.pop_front() else {
                return;
            };
            self.leave(waiter.client);
            self.hand_out(&waiter, queue, thing);
            match waiter.items_max {
                None => self.say(waiter.client, "END|"),
                Some(_) => self.served.push((waiter, queue)),
            }
        }
    }

    /// A client gets an item, which leaves or is open.
    fn hand_out(&mut self, to: &Waiter, queue: &'static str, thing: ModelItem) {
        self.value(to.client, &to.key, &thing);
        if to.open {
            self.open(to.client, queue, thing, to.gives_up);
        }
    }

    /// After the first item of a batch its client takes what is there, as if it asked for one item after the other.
    fn rest(&mut self, mut to: Waiter, queue: &'static str) {
        for _ in 1..to.items_max.unwrap_or(1) {
            if !self.can_take(&mut to, queue) {
                break;
            }
            let Some(thing) = self.next(queue) else {
                break;
            };
            self.hand_out(&to, queue, thing);
        }
        self.say(to.client, "END|");
    }

    /// All clients that wait are served before one of them takes more.
    fn end_batches(&mut self) {
        let mut served = std::mem::take(&mut self.served);
        served.sort_by_key(|(waiter, _)| waiter.client);
        for (waiter, queue) in served {
            self.rest(waiter, queue);
        }
    }

    /// A client waits no more.
    fn leave(&mut self, client: char) {
        for line in self.lines.values_mut() {
            line.waiters.retain(|waiter| waiter.client != client);
        }
    }

    /// Whether a client may take or open one more item, and whether it gives up one for that.
    fn can_take(&self, to: &mut Waiter, queue: &str) -> bool {
        let client = self.clients.get(&to.client);
        let opens = client.into_iter().flat_map(|client| &client.open);
        let opens: Vec<_> = opens.filter(|open| open.queue == queue).collect();
        let limit = match (queue, to.items_max) {
            ("batched", _) => 3,
            (_, None) => 1,
            _ => usize::MAX,
        };
        to.gives_up = opens.len() >= limit;
        if to.open {
            !to.gives_up || opens.iter().any(|open| open.thing.is_none())
        } else {
            opens.iter().all(|open| open.thing.is_none())
        }
    }

    fn open(&mut self, client: char, queue: &'static str, thing: ModelItem, gives_up: bool) {
        let until_ms = match queue {
            "leased" => self.now_ms + 40,
            _ => u64::MAX,
        };
        let client = self.clients.entry(client).or_default();
        // A client that opens another item has given up one whose time was over.
        let mut opens = client.open.iter();
        let is_stale = |open: &ModelOpen| open.queue == queue && open.thing.is_none();
        if let Some(at) = opens.position(is_stale).filter(|_| gives_up) {
            client.open.remove(at);
        }
        let thing = Some(thing);
        client.open.push(ModelOpen {
            queue,
            thing,
            until_ms,
        });
    }

    /// Returns an item that was delivered in vain.
    fn fail(&mut self, queue: &'static str, thing: ModelItem, delay_ms: Option<u64>) {
        self.put_back_failed(queue, thing, delay_ms);
        self.serve(queue);
    }

    fn put_back_failed(
        &mut self,
        queue: &'static str,
        mut thing: ModelItem,
        delay_ms: Option<u64>,
    ) {
        thing.failures += 1;
        let own = match queue {
            "retried" => (5 << (thing.failures - 1).min(10)).min(30),
            _ => 0,
        };
        thing.due_ms = self.now_ms + delay_ms.unwrap_or(own);
        self.put_back(queue, thing);
    }

    /// Returns false if one of the items that the client opened was open no longer.
    fn close_all(&mut self, client: char, queues: &[&'static str]) -> bool {
        let open = &mut self.clients.entry(client).or_default().open;
        let closed = open.extract_if(.., |open| queues.contains(&open.queue));
        closed.filter(|open| open.thing.is_none()).count() == 0
    }

    /// Returns false if the item that the client opened first was open no longer.
    fn end_oldest(&mut self, client: char, queues: &[&'static str], ending: Ending) -> bool {
        let open = &mut self.clients.entry(client).or_default().open;
        let Some(at) = open.iter().position(|open| queues.contains(&open.queue)) else {
            return true;
        };
        let ModelOpen { queue, thing, .. } = open.remove(at);
        match (thing, ending) {
            (None, _) => false,
            (Some(_), Ending::Close) => true,
            (Some(thing), Ending::Abort(delay_ms)) => {
                self.fail(queue, thing, delay_ms);
                true
            }
        }
    }

    fn touch(&mut self, client: char, queue: &'static str, seconds: u64) {
        let limit_ms = match (seconds, queue) {
            (0, "leased") => 40,
            (0, _) => u64::MAX,
            (seconds, _) => seconds * 1_000,
        };
        let now_ms = self.now_ms;
        let mut touched = false;
        for open in &mut self.clients.entry(client).or_default().open {
            if open.queue == queue && open.thing.is_some() {
                open.until_ms = now_ms.saturating_add(limit_ms);
                touched = true;
            }
        }
        self.say(client, if touched { "TOUCHED|" } else { "NOT_FOUND|" });
    }

    /// Returns the items of this queue whose time is over.
    fn end_leases(&mut self, queue: &'static str) {
        let now_ms = self.now_ms;
        let opens = self
            .clients
            .values_mut()
            .flat_map(|client| &mut client.open);
        let over = opens.filter(|open| open.queue == queue && open.until_ms <= now_ms);
        let things: Vec<_> = over.filter_map(|open| open.thing.take()).collect();
        for thing in things {
            self.put_back_failed(queue, thing, None);
        }
        self.serve(queue);
    }

    /// Takes from the first of the queues that has an item.
    fn get(&mut self, client: char, queues: &[&'static str], options: &str) {
        let key = format!("{}{options}", queues.join(","));
        let has = |option: &str| options.contains(option);
        let number = |option: &str| {
            let mut options = options.split('/');
            options.find_map(|one| one.strip_prefix(option)?.parse().ok())
        };
        let wait_ms: u64 = number("t=").unwrap_or(0);
        let delay_ms = number("delay=");
        let items_max = number("max=");
        let ending = match (has("/close"), has("/abort")) {
            (true, _) => Some(Ending::Close),
            (_, true) => Some(Ending::Abort(delay_ms)),
            _ => None,
        };
        let is_ended = match ending {
            None => true,
            Some(_) if items_max.is_some() => self.close_all(client, queues),
            Some(ending) => self.end_oldest(client, queues, ending),
        };
        if !is_ended {
            return self.say(client, "NOT_FOUND|");
        }
        if has("/abort") || (has("/close") && !has("/open")) {
            return self.say(client, "END|");
        }
        let mut to = Waiter {
            client,
            until_ms: self.now_ms + wait_ms,
            key,
            open: has("/open"),
            gives_up: false,
            items_max,
        };
        for &queue in queues {
            if !has("/peek") && !self.can_take(&mut to, queue) {
                return self.say(client, "ERROR|");
            }
        }
        for &queue in queues {
            let Some(thing) = self.next(queue) else {
                continue;
            };
            if has("/peek") {
                self.value(client, &to.key, &thing);
                self.put_back(queue, thing);
                return self.say(client, "END|");
            }
            self.can_take(&mut to, queue);
            self.hand_out(&to, queue, thing);
            return self.rest(to, queue);
        }
        if wait_ms == 0 {
            return self.say(client, "END|");
        }
        for &queue in queues {
            self.can_take(&mut to, queue);
            self.line(queue).waiters.push_back(to.clone());
        }
    }

    fn is_waiting(&self, client: char) -> bool {
        self.lines
            .values()
            .any(|line| line.waiters.iter().any(|waiter| waiter.client == client))
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            let now_ms = self.now_ms;
            let waiters = self.lines.values().flat_map(|line| &line.waiters);
            let over = waiters.filter(|waiter| waiter.until_ms <= now_ms);
            for client in over.map(|waiter| waiter.client).collect::<BTreeSet<_>>() {
                self.leave(client);
                self.say(client, "END|");
            }
            for queue in QUEUES {
                self.end_leases(queue);
                self.serve(queue);
            }
            self.end_batches();
        }
    }

    fn hang_up(&mut self, client: char) {
        self.leave(client);
        let gone = self.clients.remove(&client).unwrap_or_default();
        let mut failed = BTreeSet::new();
        for open in gone.open {
            let Some(thing) = open.thing else { continue };
            // The client worked on the one that it opened first.
            if failed.insert(open.queue) {
                self.fail(open.queue, thing, None);
            } else {
                self.put_back(open.queue, thing);
                self.serve(open.queue);
            }
        }
    }

    fn crash(&mut self) {
        self.lines
            .values_mut()
            .for_each(|line| line.waiters.clear());
        // The end of the server is no failure of an item.
        for open in std::mem::take(&mut self.clients)
            .into_values()
            .flat_map(|client| client.open)
        {
            if let Some(thing) = open.thing {
                self.put_back(open.queue, thing);
            }
        }
    }
}

struct Run {
    world: World,
    model: Model,
    random: Random,
    told: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let world = World::new(CONFIG);
        let model = Model {
            now_ms: world.now.wall_ms,
            ..Model::default()
        };
        let mut run = Run {
            world,
            model,
            random: Random::new(seed),
            told: Vec::new(),
        };
        if seed % 2 == 1 {
            // So short that most work needs several.
            run.world.set_round(12 + (seed % 7) as usize);
        }
        run.world.play("x> get parent+child|\nx< END|");
        run
    }

    fn step(&mut self) {
        let random = &mut self.random;
        match random.below(100) {
            0 => {
                self.told.push("crash".to_owned());
                self.world.restart();
                self.model.crash();
            }
            1 if random.below(2) == 0 => self.lose_power(),
            1..=4 => {
                let client = any_of(random, &CLIENTS);
                self.told.push(format!("{client}!"));
                self.world.hang_up(client);
                self.model.hang_up(client);
            }
            5..=19 => {
                let ms = if random.below(4) == 0 {
                    random.below(1_500)
                } else {
                    random.below(20)
                };
                self.told.push(format!("+{ms}"));
                self.world.pass(ms);
                self.model.pass(ms);
                if random.below(3) == 0 {
                    self.between_rounds();
                }
            }
            _ => self.command(),
        }
        self.compare();
    }

    /// A millisecond passes, and only a part of what is due then is done before the process dies or a client asks for
    /// something.
    fn between_rounds(&mut self) {
        self.told.push("+1, one round".to_owned());
        self.world.begin(1);
        self.model.pass(1);
        if self.random.below(4) == 0 {
            self.told.push("crash".to_owned());
            self.world.restart();
            self.model.crash();
        } else {
            self.command();
        }
        self.world.end_rounds();
    }

    fn command(&mut self) {
        let random = &mut self.random;
        let model = &mut self.model;
        let client = any_of(random, &CLIENTS);
        if model.is_waiting(client) {
            return;
        }
        let queue = any_of(random, &QUEUES);
        let line = if random.below(2) == 0 {
            let body = "x".repeat(random.below(60) as usize);
            // Whether an expired item still counts for a limit depends on when it was swept.
            let timely = !["full", "rolling"].contains(&queue);
            let expiry_s = if timely && random.below(5) == 0 {
                1 + random.below(2)
            } else {
                0
            };
            let delay_ms = if may_delay(&[queue]) && random.below(8) == 0 {
                1 + random.below(30)
            } else {
                0
            };
            let delay = if delay_ms == 0 {
                String::new()
            } else {
                format!("/delay={delay_ms}")
            };
            model.numbers += 1;
            let flags = model.numbers as u32;
            let with_id = ["once", "parent"].contains(&queue) && random.below(3) > 0;
            let id = with_id.then(|| random.below(6));
            model.put(client, queue, &body, (expiry_s, delay_ms), id);
            let id = id.map_or(String::new(), |id| format!("/id={id}"));
            format!(
                "set {queue}{delay}{id} {flags} {expiry_s} {}\r\n{body}\r\n",
                body.len()
            )
        } else if random.below(150) == 0 {
            let all = model.lines.values_mut();
            all.for_each(|line| line.things.clear());
            model.say(client, "OK|");
            "flush_all\r\n".to_owned()
        } else if random.below(60) == 0 {
            let line = model.line(queue);
            line.things.clear();
            model.say(client, "END|");
            format!("flush {queue}\r\n")
        } else if random.below(20) == 0 {
            let seconds = random.below(3);
            model.touch(client, queue, seconds);
            format!("touch {queue} {seconds}\r\n")
        } else {
            self.get_line(client, queue)
        };
        self.told
            .push(format!("{client}> {}", line.replace("\r\n", "|")));
        let cut = self.random.below(line.len() as u64 + 1) as usize;
        self.world.send(client, &line.as_bytes()[..cut]);
        self.world.send(client, &line.as_bytes()[cut..]);
    }

    fn get_line(&mut self, client: char, queue: &'static str) -> String {
        let random = &mut self.random;
        let model = &mut self.model;
        let wait_ms = 1 + random.below(40);
        let queues = match random.below(8) {
            // Nothing is due in one of these, so that it is defined which of them serves a waiter.
            0 => vec!["full", "rolling"],
            1 => vec!["rolling", "full"],
            _ => vec![queue],
        };
        let delays = may_delay(&queues);
        let batch = format!("/max={}", 1 + random.below(4));
        let options = match random.below(13) {
            0 | 1 => String::new(),
            2 => "/open".to_owned(),
            3 => "/close".to_owned(),
            4 => "/abort".to_owned(),
            5 => "/close/open".to_owned(),
            6 => "/peek".to_owned(),
            7 => format!("/t={wait_ms}"),
            8 if delays => format!("/abort/delay={}", random.below(30)),
            10 => batch,
            11 => format!("/open{batch}"),
            // Where several items become due at once, a batch has those that were there when the first one had come.
            12 if delays => format!("/close{batch}/open"),
            12 => format!("/close/open{batch}/t={wait_ms}"),
            _ => format!("/close/open/t={wait_ms}"),
        };
        model.get(client, &queues, &options);
        format!("get {}{options}\r\n", queues.join(","))
    }

    fn compare(&mut self) {
        self.model.end_batches();
        for client in CLIENTS {
            let expected = self
                .model
                .clients
                .get_mut(&client)
                .map(|c| std::mem::take(&mut c.expected))
                .unwrap_or_default();
            assert_eq!(self.world.received(client), expected, "what {client} got");
        }
    }

    /// The machine dies, and keeps what was synced and a part of the rest. What a queue then holds must be in order and
    /// known; with all that was acknowledged and not yet taken, where the queue promises that.
    fn lose_power(&mut self) {
        self.told.push("power".to_owned());
        self.model.crash();
        let random = &mut self.random;
        self.world
            .storage
            .lose_power(|unsynced| random.below(unsynced + 1));
        self.world.restart();
        for queue in QUEUES {
            let mut found = Vec::new();
            loop {
                self.world.send('y', format!("get {queue}\r\n").as_bytes());
                let got = self.world.received('y');
                if got == "END|" {
                    break;
                }
                let mut words = got.split([' ', '|']);
                let number: u64 = words.nth(2).unwrap().parse().unwrap();
                found.push((number, words.nth(1).unwrap().to_owned()));
            }
            let now_ms = self.model.now_ms;
            let line = self.model.line(queue);
            assert!(
                found.is_sorted_by_key(|(number, _)| *number),
                "{queue} in order: {found:?}"
            );
            for (number, body) in &found {
                assert_eq!(
                    line.ever.get(number).map(|thing| &thing.body),
                    Some(body),
                    "{queue} holds what was never put"
                );
            }
            let visible = |thing: &&ModelItem| {
                (thing.expiry_ms == 0 || thing.expiry_ms > now_ms) && thing.due_ms <= now_ms
            };
            if queue != "unsynced" {
                for thing in line.things.iter().filter(visible) {
                    assert!(
                        found.iter().any(|(number, _)| *number == thing.number),
                        "{queue} lost {thing:?}"
                    );
                }
            }
            line.things.clear();
            self.world
                .send('y', format!("flush {queue}\r\n").as_bytes());
            assert_eq!(self.world.received('y'), "END|");
        }
    }
}

#[test]
fn random_clients_see_what_the_model_says() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .map(|text| text.parse::<u64>().unwrap())
    };
    let seeds = match number("QUEUE_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("QUEUE_SIM_RUNS").unwrap_or(40),
    };
    for seed in seeds {
        let mut run = Run::new(seed);
        for _ in 0..if seed % 40 == 39 { STEPS_LONG } else { STEPS } {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step()));
            if let Err(cause) = outcome {
                let tail = run.told.len().saturating_sub(40);
                eprintln!(
                    "QUEUE_SIM_SEED={seed} repeats this; the last of {} steps:\n{}",
                    run.told.len(),
                    run.told[tail..].join("\n")
                );
                std::panic::resume_unwind(cause);
            }
        }
    }
}
