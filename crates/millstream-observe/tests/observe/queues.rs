//! What a reader with the token asks of a server of queues, which runs in this process.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use millstream_observe::sections::queues::Queues;
use millstream_observe::{Observer, http};
use millstream_queue::address::Stream;
use millstream_queue::server::{Server, ServerOptions};
use millstream_queue::session::Compat;
use serde_json::Value;

use crate::server::{get, post, until};

const RIGHT: &str = "Authorization: Bearer secret\r\n";

/// A server of queues with a page, and a client of it.
struct Served {
    observer: Observer,
    client: BufReader<Stream>,
    server: Option<Server>,
}

impl Served {
    fn start(folder: &Path, token: bool) -> Self {
        let mut page = http("127.0.0.1:0");
        if token {
            page = page.token("secret");
        }
        let observer = page.bind().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = ServerOptions {
            listen: vec![(any.into(), Compat::Memcached)],
            config: Some(folder.join("queues.toml")),
            shutdown: true,
            ..ServerOptions::new(folder.join("queues"))
        };
        let server = Server::start(options).unwrap();
        observer.show(Queues::new(server.watch().clone(), true));
        let client = server.addresses()[0].connect().unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Served {
            observer,
            client: BufReader::new(client),
            server: Some(server),
        }
    }

    /// Sends a request, and returns the first line of the answer.
    fn ask(&mut self, request: &str) -> String {
        self.client.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        self.client.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn items(&mut self, queue: &str) -> usize {
        let mut line = self.ask(&format!("stats {queue}\r\n"));
        let mut items = 0;
        while line != "END" {
            if let Some(count) = line.strip_prefix("STAT items ") {
                items = count.parse().unwrap();
            }
            line.clear();
            self.client.read_line(&mut line).unwrap();
            line.truncate(line.trim_end().len());
        }
        items
    }

    fn act(&self, action: &str) -> (u16, String) {
        post(&self.observer, &format!("/api/actions/{action}"), RIGHT)
    }

    fn stop(&mut self) {
        self.client.get_mut().write_all(b"shutdown\r\n").unwrap();
        self.server.take().unwrap().wait().unwrap();
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("queues.toml"), "").unwrap();
    folder
}

#[test]
fn items_move_from_one_queue_to_another() {
    let folder = folder();
    let mut served = Served::start(folder.path(), true);
    for _ in 0..5 {
        assert_eq!(served.ask("set dead 0 0 1\r\nx\r\n"), "STORED");
    }
    let (status, body) = served.act("redrive?from=dead&to=jobs&max=2");
    assert_eq!(status, 200, "{body}");
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(answer["moved"], 2);
    assert_eq!((served.items("dead"), served.items("jobs")), (3, 2));
    let (_, body) = served.act("redrive?from=dead&to=jobs");
    assert!(body.contains("\"moved\":3"), "{body}");
    // A name that is markup is a name.
    let evil = "%3Cscript%3E";
    let (_, body) = served.act(&format!("redrive?from=jobs&to={evil}"));
    assert!(
        body.contains("\"to\":\"<script>\"") && body.contains("\"moved\":5"),
        "{body}"
    );
    served.stop();
    let (status, body) = served.act("redrive?from=jobs&to=dead");
    assert_eq!(status, 503);
    assert!(body.contains("does not run"), "{body}");
}

#[test]
fn items_that_left_are_counted_from_the_start_of_the_server() {
    let folder = folder();
    for (sets, gets, counts) in [(5, 2, [5, 2, 3]), (0, 1, [0, 1, 2]), (1, 3, [1, 3, 0])] {
        let mut served = Served::start(folder.path(), true);
        for _ in 0..sets {
            assert_eq!(served.ask("set jobs 0 0 1\r\nx\r\n"), "STORED");
        }
        for _ in 0..gets {
            assert_eq!(served.ask("get jobs\r\n"), "VALUE jobs 0 1");
            assert_eq!((served.ask(""), served.ask("")), ("x".into(), "END".into()));
        }
        until("the counts", || {
            let (_, body) = get(&served.observer, "/api/snapshot.json", RIGHT);
            let snapshot: Value = serde_json::from_str(&body).unwrap();
            let queue = &snapshot["queues"]["queues"][0];
            let found = ["in_items", "out_items", "items"].map(|key| queue[key].as_u64());
            found == counts.map(Some)
        });
        served.stop();
    }
}

/// The conditions that hold: name and subject.
fn held(observer: &Observer) -> Vec<(String, String)> {
    let (_, body) = get(observer, "/api/snapshot.json", RIGHT);
    let snapshot: Value = serde_json::from_str(&body).unwrap();
    let conditions = snapshot["conditions"].as_array().unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let held = conditions.iter();
    held.map(|one| (text(one, "name"), text(one, "subject")))
        .collect()
}

#[test]
fn a_server_that_takes_no_sets_is_not_ready() {
    let folder = folder();
    let mut served = Served::start(folder.path(), true);
    for (status, words) in [
        ("READONLY", "takes no sets: its status is READONLY"),
        ("QUIESCENT", "takes neither sets nor gets"),
    ] {
        until("ready", || get(&served.observer, "/readyz", "").0 == 200);
        assert_eq!(served.ask(&format!("status {status}\r\n")), "END");
        until("not ready", || {
            let (code, body) = get(&served.observer, "/readyz", "");
            code == 503 && body.contains(words)
        });
        assert_eq!(served.ask("status UP\r\n"), "END");
    }
    served.stop();
}

#[test]
fn items_that_wait_to_move_on_need_no_consumer() {
    let folder = folder();
    let config = "[queue.later]\nexpire_to = 'now'\n";
    std::fs::write(folder.path().join("queues.toml"), config).unwrap();
    let mut served = Served::start(folder.path(), true);
    for set in ["set later 0 3600 1", "set plain 0 0 1"] {
        assert_eq!(served.ask(&format!("{set}\r\nx\r\n")), "STORED");
    }
    let Served {
        observer,
        client,
        server: _server,
    } = served;
    drop(client);
    until("a condition", || !held(&observer).is_empty());
    let of = |name: &str, queue: &str| (name.to_owned(), queue.to_owned());
    assert_eq!(held(&observer), [of("MillstreamQueueNotRead", "plain")]);
}

#[test]
fn a_wrong_redrive_is_refused_with_the_queue() {
    let folder = folder();
    let mut served = Served::start(folder.path(), true);
    assert_eq!(served.ask("set dead 0 0 1\r\nx\r\n"), "STORED");
    for (query, status, said) in [
        ("", 400, "needs two queues"),
        ("?from=dead", 400, "needs two queues"),
        ("?from=dead&to=dead", 400, "queue \"dead\" cannot send"),
        ("?from=dead&to=jobs&max=0", 400, "queue \"dead\": max"),
        ("?from=dead&to=jobs&max=-1", 400, "queue \"dead\": max"),
        ("?from=dead&to=jobs&max=many%0A", 400, "not \"many\\n\""),
        ("?from=../x&to=jobs", 400, "\"../x\": queue name"),
        ("?from=dead&to=", 400, "queue name is empty"),
        ("?from=lost&to=jobs", 404, "there is no queue \"lost\""),
    ] {
        let (found, body) = served.act(&format!("redrive{query}"));
        assert_eq!(found, status, "{query}: {body}");
        assert!(body.contains(said), "{query}: {body}");
    }
    let text = "[queue.out]\nfanout_only = true\n[alias]\nall = [\"jobs\"]\n";
    std::fs::write(folder.path().join("queues.toml"), text).unwrap();
    assert_eq!(served.act("reload").0, 200);
    for to in ["out", "all"] {
        let (found, body) = served.act(&format!("redrive?from=dead&to={to}"));
        assert_eq!(found, 409, "{body}");
        assert!(body.contains(&format!("\"{to}\"")), "{body}");
    }
    assert_eq!(served.items("dead"), 1);
    served.stop();
}

#[test]
fn a_reload_answers_as_that_of_a_client() {
    let folder = folder();
    let mut served = Served::start(folder.path(), true);
    let config = folder.path().join("queues.toml");
    std::fs::write(&config, "[queue.jobs]\nmax_items = 1\n").unwrap();
    let (status, body) = served.act("reload");
    assert_eq!((status, body.contains("\"at_next_start\":[]")), (200, true));
    assert_eq!(served.ask("set jobs 0 0 1\r\nx\r\n"), "STORED");
    assert_ne!(served.ask("set jobs 0 0 1\r\nx\r\n"), "STORED");
    std::fs::write(&config, "[queue.jobs]\nmax_itmes = 1\n").unwrap();
    let (status, body) = served.act("reload");
    assert_eq!(status, 409);
    assert!(
        body.contains("the old configuration holds") && body.contains("queues.toml"),
        "{body}"
    );
    std::fs::write(&config, "[limits]\nitem_bytes = 100000000\n").unwrap();
    let (status, body) = served.act("reload");
    assert_eq!(status, 200);
    assert!(body.contains("takes effect at the next start"), "{body}");
    served.stop();
}

#[test]
fn only_the_token_acts_on_queues() {
    let folder = folder();
    let mut served = Served::start(folder.path(), true);
    assert_eq!(served.ask("set dead 0 0 1\r\nx\r\n"), "STORED");
    let path = "/api/actions/redrive?from=dead&to=jobs";
    for (headers, status) in [
        ("", 401),
        ("Authorization: Bearer wrong\r\n", 403),
        (
            "Authorization: Bearer secret\r\nOrigin: http://evil.example\r\n",
            403,
        ),
        (
            "Authorization: Bearer secret\r\nHost: evil.example\r\n",
            403,
        ),
    ] {
        assert_eq!(
            post(&served.observer, path, headers).0,
            status,
            "{headers:?}"
        );
    }
    let in_query = format!("{path}&token=secret");
    assert_eq!(post(&served.observer, &in_query, "").0, 401);
    assert_eq!(get(&served.observer, path, RIGHT).0, 405);
    let (_, snapshot) = get(&served.observer, "/api/snapshot.json", RIGHT);
    assert!(
        snapshot.contains("\"actions\":[\"redrive\",\"reload\"]"),
        "{snapshot}"
    );
    assert_eq!(served.items("dead"), 1);
    served.stop();
    drop(served);

    let mut open = Served::start(folder.path(), false);
    assert_eq!(post(&open.observer, path, RIGHT).0, 403);
    assert_eq!(post(&open.observer, "/api/actions/reload", "").0, 403);
    let (_, snapshot) = get(&open.observer, "/api/snapshot.json", "");
    assert!(snapshot.contains("\"actions\":[]"), "{snapshot}");
    open.stop();
}
