//! The rights of each name: every command, by the name of the queue.

use std::sync::Arc;

use millstream_queue::session::{Compat, Rights, Session, SessionOptions};

use crate::script::World;

const RIGHTS: &str = "
    [reader]
    read = ['work', 'work+*']
    [writer]
    write = ['work', 'every*']
    [keeper]
    admin = ['work']
    read = ['dead']
    write = ['work']
    [chief]
    read = ['*']
    write = ['*']
    admin = ['*']
";
const NAMES: [&str; 5] = ["reader", "writer", "keeper", "chief", "nobody"];

fn options(compat: Compat, rights: &str) -> SessionOptions {
    let names: Vec<String> = NAMES.iter().map(|name| format!("{name}:pw")).collect();
    SessionOptions {
        compat,
        credentials: Some(names.join("\n").parse().unwrap()),
        rights: toml::from_str::<Rights>(rights).unwrap(),
        ..SessionOptions::default()
    }
}

/// What a client of this name gets for one request. `|` is CR LF.
fn ask(world: &mut World, user: &str, request: &str) -> String {
    let client = user.chars().next().unwrap();
    let secret = format!("{user} pw");
    world.send(
        client,
        format!("set auth 0 0 {}\r\n{secret}\r\n", secret.len()).as_bytes(),
    );
    assert_eq!(world.received(client), "STORED|");
    world.send(client, request.replace('|', "\r\n").as_bytes());
    let answer = world.received(client);
    world.hang_up(client);
    answer
}

/// Each command, and the users that may use it.
const COMMANDS: [(&str, &[&str]); 26] = [
    ("get work|", &["reader", "chief"]),
    ("gets work|", &["reader", "chief"]),
    ("get work/peek/details|", &["reader", "chief"]),
    ("get work/open|", &["reader", "chief"]),
    ("get work/close/open|", &["reader", "chief"]),
    ("get work+copy|", &["reader", "chief"]),
    ("get work,dead|", &["chief"]),
    ("touch work/id=1 5|", &["reader", "chief"]),
    ("touch work 5|", &NAMES),
    ("monitor work 0 1|", &["reader", "chief"]),
    ("set work 0 0 1|x|", &["writer", "keeper", "chief"]),
    ("set everybody 0 0 1|x|", &["writer", "chief"]),
    ("set work/sync 0 0 1|x|", &["writer", "keeper", "chief"]),
    ("redrive dead work|", &["keeper", "chief"]),
    ("flush work|", &["keeper", "chief"]),
    ("flush_expired work|", &["keeper", "chief"]),
    ("delete work|", &["keeper", "chief"]),
    ("stats work|", &["reader", "writer", "keeper", "chief"]),
    ("stats dead|", &["keeper", "chief"]),
    ("flush_all|", &["chief"]),
    ("flush_all_expired|", &["chief"]),
    ("status UP|", &["chief"]),
    ("reload|", &["chief"]),
    ("shutdown|", &["chief"]),
    ("status|", &NAMES),
    ("version|", &NAMES),
];

#[test]
fn every_command_asks_for_its_right_on_both_protocols() {
    for compat in [Compat::Memcached, Compat::Kestrel] {
        for (command, allowed) in COMMANDS {
            for user in NAMES {
                let config = "[alias]\neverybody = ['work', 'dead']";
                let mut world = World::with_options(config, options(compat, RIGHTS));
                ask(&mut world, "chief", "set work 0 0 1|a|set dead 0 0 1|b|");
                let answer = ask(&mut world, user, command);
                let refused = answer.starts_with(&format!("CLIENT_ERROR \"{user}\" "));
                assert_eq!(
                    !refused,
                    allowed.contains(&user),
                    "{user}: {command} {answer}"
                );
                assert!(!refused || answer.matches('|').count() == 1, "{answer}");
                let left =
                    world.queues.items("work").unwrap_or(0) + world.queues.items("dead").unwrap();
                assert!(!refused || left == 2, "{user}: {command} did something");
            }
        }
    }
}

#[test]
fn an_error_names_client_right_and_queue() {
    let mut world = World::with_options("", options(Compat::Memcached, RIGHTS));
    for (user, request, expected) in [
        (
            "reader",
            "set work 0 0 1|x|",
            "CLIENT_ERROR \"reader\" may not write to queue \"work\"|",
        ),
        (
            "writer",
            "get work|",
            "CLIENT_ERROR \"writer\" may not read queue \"work\"|",
        ),
        (
            "writer",
            "delete work|",
            "CLIENT_ERROR \"writer\" may not administer queue \"work\"|",
        ),
        (
            "keeper",
            "flush_all|",
            "CLIENT_ERROR \"keeper\" may not flush_all: that needs admin = [\"*\"]|",
        ),
        (
            "nobody",
            "stats work|",
            "CLIENT_ERROR \"nobody\" has no right to queue \"work\"|",
        ),
        // One key that may not be read, and nothing is taken of the others.
        (
            "keeper",
            "get dead work|",
            "CLIENT_ERROR \"keeper\" may not read queue \"work\"|",
        ),
        ("reader", "set work 0 0 1 noreply|x|get work|", "END|"),
        ("reader", "delete work noreply|get work|", "END|"),
        // A word that is no name gets the usual error.
        (
            "nobody",
            "get .x|",
            "CLIENT_ERROR queue name must not begin with '.' nor have an empty part beside '+'|",
        ),
    ] {
        ask(&mut world, "chief", "set dead 0 0 1|x|");
        assert_eq!(ask(&mut world, user, request), expected);
        assert_eq!(
            ask(&mut world, "chief", "get dead|"),
            "VALUE dead 0 1|x|END|"
        );
    }
}

#[test]
fn numbers_are_reported_of_the_queues_that_a_client_may_use() {
    let mut world = World::with_options("", options(Compat::Memcached, RIGHTS));
    ask(&mut world, "chief", "set work 0 0 1|x|set dead 0 0 1|x|");
    for (user, queues) in [
        ("reader", vec!["work"]),
        ("keeper", vec!["dead", "work"]),
        ("nobody", vec![]),
        ("chief", vec!["dead", "work"]),
    ] {
        let stats = ask(&mut world, user, "stats|");
        let told: Vec<&str> = stats
            .split('|')
            .filter_map(|line| line.strip_prefix("STAT queue_")?.strip_suffix("_items 1"))
            .filter(|name| !name.ends_with("_total") && !name.ends_with("_mem"))
            .collect();
        assert_eq!(told, queues, "{user}");
        assert!(stats.contains("STAT uptime "));
        let dumped = ask(&mut world, user, "dump_stats|");
        let told: Vec<&str> = dumped
            .split('|')
            .filter_map(|line| line.strip_prefix("queue '")?.strip_suffix("' {"))
            .collect();
        assert_eq!(told, queues, "{user}");
    }
}

#[test]
fn rights_that_change_hold_at_once_and_what_is_open_can_be_confirmed() {
    let mut world = World::with_options("", options(Compat::Memcached, RIGHTS));
    ask(&mut world, "chief", "set work 0 0 1|x|set work 0 0 1|y|");
    let mut session = Session::new(&mut world.queues, options(Compat::Memcached, RIGHTS));
    let mut waiting = Session::new(&mut world.queues, options(Compat::Memcached, RIGHTS));
    let now = world.now;
    let mut say = |session: &mut Session, request: &str| {
        session.receive(
            &mut world.queues,
            request.replace('|', "\r\n").as_bytes(),
            now,
        );
        let answer = String::from_utf8_lossy(session.output()).replace("\r\n", "|");
        session.sent(usize::MAX);
        answer
    };
    say(&mut session, "set auth 0 0 9|reader pw|");
    say(
        &mut waiting,
        "set auth 0 0 9|reader pw|get work+copy/t=5000|",
    );
    assert_eq!(
        say(&mut session, "get work/open|"),
        "VALUE work/open 0 1|x|END|"
    );
    let fewer = Arc::new(options(Compat::Memcached, "[reader]\nwrite = ['work']"));
    session.set_options(&fewer);
    waiting.set_options(&fewer);
    assert!(waiting.is_closed() && !session.is_closed());
    let refused = "CLIENT_ERROR \"reader\" may not read queue \"work\"|";
    assert_eq!(say(&mut session, "get work/close/open|"), refused);
    assert_eq!(
        say(&mut session, "get work/close|set work 0 0 1|z|"),
        "END|STORED|"
    );
    let none = Arc::new(options(Compat::Memcached, ""));
    session.set_options(&none);
    assert_eq!(say(&mut session, "get work|"), "VALUE work 0 1|y|END|");
}
