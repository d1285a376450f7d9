//! `millstream journal promote`, `rejoin` and `serve --tell`: one leader at a time, and nothing is dropped in silence.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use millstream_journal::{Journal, Options};

use super::leader::{Follower, Leader, assert_same, next, records, until};
use super::process::{command, feed, interrupt, json, millstream, printed, stderr, text};

fn append(path: &Path, input: &str) {
    printed(&feed(&["journal", "append", text(path), "--quiet"], input));
}

fn lines(what: &str, count: u64) -> String {
    (0..count).map(|n| format!("{what} {n}\n")).collect()
}

fn fails(args: &[&str], says: &str) {
    let output = command(args).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{args:?} {output:?}");
    assert!(
        stderr(&output).contains(says),
        "{args:?}: {}",
        stderr(&output)
    );
}

fn once(leader: &Leader, copy: &Path) {
    let follow = ["journal", "follow", &leader.address, text(copy), "--once"];
    printed(&millstream(&follow));
}

#[test]
fn an_old_leader_stops_at_once_when_a_follower_reports_a_newer_term() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let copy = path("copy");
    let third = path("third");
    append(&orders, &lines("line", 100));
    let leader = Leader::start(":0", &[text(&orders)]);
    // A writer that has been there from the beginning, and waits for input.
    let mut writer = command(&["journal", "append", text(&orders), "--quiet"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = writer.stdin.take().unwrap();
    writeln!(stdin, "from the writer").unwrap();
    until("the writer", || next(&orders) == 101);

    let mut follower = Follower::start(&leader.address, &copy, &[]);
    until("the copy", || next(&copy) == 101);
    once(&leader, &third);
    // While the follower is there it is the only one that appends.
    fails(
        &["journal", "promote", text(&copy)],
        "appends: its follower to it; stop that first",
    );
    fails(
        &["journal", "append", text(&copy), "--sync", "always"],
        "another process is the only one that appends to it",
    );
    interrupt(&follower.child);
    follower.child.wait().unwrap();
    let promoted = json(&millstream(&["journal", "promote", text(&copy), "--json"]));
    assert_eq!(promoted[0]["term"], 1);
    assert_eq!(promoted[0]["start"], 101);
    assert_eq!(promoted[0]["was_copy"], true);
    append(&copy, "the first of the new leader\n");

    // The third machine follows the new leader, and is asked for by the old one by mistake.
    let new = Leader::start(":0", &[&format!("orders={}", text(&copy))]);
    once(&new, &third);
    assert_same(&copy, &third);
    append(&orders, "the old leader does not know yet\n");
    fails(
        &["journal", "follow", &leader.address, text(&third)],
        "'orders' is in term 0 here, superseded by term 1",
    );
    // Every process that has the old leader's journal open refuses, at once and later.
    writeln!(stdin, "one more").unwrap();
    let output = writer.wait_with_output().unwrap();
    let refused = "the journal's term 0 is superseded by term 1";
    assert!(stderr(&output).contains(refused), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
    drop(leader);
    let late = feed(&["journal", "append", text(&orders)], "late\n");
    assert!(stderr(&late).contains(refused), "{}", stderr(&late));
    // It serves no process any more, and does not become a follower by itself.
    let again = Leader::start(":0", &[text(&orders)]);
    fails(
        &["journal", "follow", &again.address, text(&path("fresh"))],
        "superseded by term 1",
    );
    drop(again);
    fails(
        &["journal", "follow", &new.address, text(&orders)],
        "this journal was a leader's, in term 0; `millstream journal rejoin`",
    );
    assert_eq!(next(&orders), 102);
    rejoins(&orders, &new, &copy);
}

/// The old leader's journal has one record that the new leader does not have.
fn rejoins(orders: &Path, new: &Leader, copy: &Path) {
    let rejoin = ["journal", "rejoin", text(orders), "--leader", &new.address];
    let before = records(orders);
    fails(
        &rejoin,
        "records 101 to 101 of term 0 are not the leader's in term 1, and would be dropped",
    );
    assert_eq!(records(orders), before);
    let report = json(&millstream(&[&rejoin[..], &["--yes", "--json"]].concat()));
    assert_eq!(
        (&report[0]["keep"], &report[0]["dropped"]),
        (&101.into(), &1.into())
    );
    let aside = report[0]["aside"].as_str().unwrap();
    assert!(aside.ends_with("orders.dropped-term0-from101"), "{aside}");
    assert_eq!(records(Path::new(aside)), before[101..]);
    once(new, orders);
    assert_same(copy, orders);
    // What a journal is can be seen, and goes along with a copy of its files.
    let info = printed(&millstream(&["journal", "info", text(orders)]));
    assert!(
        info.contains("\nterm       1, a copy: only its follower appends"),
        "{info}"
    );
    let saved = orders.with_extension("saved");
    printed(&millstream(&[
        "journal",
        "copy",
        text(orders),
        text(&saved),
    ]));
    let info = json(&millstream(&["journal", "info", text(&saved), "--json"]));
    assert_eq!(
        (&info["term"], &info["is_copy"]),
        (&1.into(), &false.into())
    );
    // A second time there is nothing to drop.
    let report = json(&millstream(&[&rejoin[..], &["--json"]].concat()));
    assert_eq!(report[0]["dropped"], 0);
    // It is a copy now, which may be promoted in turn.
    fails_to_append(orders, "the journal is a copy");
    let promoted = json(&millstream(&["journal", "promote", text(orders), "--json"]));
    assert_eq!(promoted[0]["term"], 2);
    append(orders, "back\n");
}

fn fails_to_append(path: &Path, says: &str) {
    let output = feed(&["journal", "append", text(path)], "line\n");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
}

#[test]
fn a_new_leader_informs_the_old_one_when_it_returns() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (orders, copy) = (path("a").join("orders"), path("b").join("orders"));
    append(&orders, &lines("line", 10));
    let mut old = Leader::start(":0", &[text(&orders)]);
    let address = old.address.clone();
    once(&old, &copy);
    old.kill();
    printed(&millstream(&["journal", "promote", text(&copy)]));
    let new = Leader::start(":0", &[text(&copy), "--tell", &address]);
    until("a try", || new.said().contains("does not know yet"));
    // Its writers are there before it learns of the term.
    append(&orders, "a zombie's\n");
    let old = Leader::start(&address, &[text(&orders)]);
    until("the news", || {
        new.said().contains("knows that 'orders' is in term 1")
    });
    fails_to_append(&orders, "superseded by term 1");
    assert!(
        old.said()
            .contains("'orders' is superseded: it is in term 0, a copy in term 1 was promoted"),
        "{}",
        old.said()
    );
    // A process that waits for a follower there learns it too, and does not only time out.
    let journal = Journal::open(&orders, Options::default()).unwrap();
    let mut followers = millstream_replication::Followers::of(&journal);
    let error = followers.wait(10, 1, None).unwrap_err().to_string();
    assert!(error.contains("superseded by term 1"), "{error}");
}

#[test]
fn two_copies_that_were_promoted_apart_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let one = path("one");
    let two = path("two");
    append(&orders, &lines("line", 300));
    let mut leader = Leader::start(":0", &[text(&orders)]);
    once(&leader, &one);
    append(&orders, &lines("later", 50));
    once(&leader, &two);
    leader.kill();
    for copy in [&one, &two] {
        printed(&millstream(&["journal", "promote", text(copy)]));
        append(copy, &lines("of its own", 20));
    }
    // Both are in term 1, and have not the same records.
    let first = Leader::start(":0", &[text(&one)]);
    fails(
        &["journal", "rejoin", text(&two), "--leader", &first.address],
        "'one' and the copy were both promoted to term 1; promote again the one that is to lead",
    );
    drop(first);
    printed(&millstream(&["journal", "promote", text(&one)]));
    let first = Leader::start(":0", &[text(&one)]);
    let rejoin = ["journal", "rejoin", text(&two), "--leader", &first.address];
    fails(&rejoin, "records 300 to 369 of term 1");
    printed(&millstream(&[&rejoin[..], &["--yes"]].concat()));
    once(&first, &two);
    assert_same(&one, &two);
    // The one that both were copies of has no more than they have in common and what it kept for itself.
    let rejoin = [
        "journal",
        "rejoin",
        text(&orders),
        "--leader",
        &first.address,
    ];
    fails(&rejoin, "records 300 to 349 of term 0");
    printed(&millstream(&[&rejoin[..], &["--yes"]].concat()));
    once(&first, &orders);
    assert_same(&one, &orders);
}

#[test]
fn a_copy_that_has_more_than_its_leader_after_a_loss_of_power_rejoins_without_terms() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let copy = path("copy");
    append(&orders, &lines("line", 500));
    let leader = Leader::start(":0", &[text(&orders)]);
    once(&leader, &copy);
    drop(leader);
    // As after a loss of power with sync=never: the last records are not there, and others got their numbers.
    let options = Options {
        exclusive: true,
        ..Options::default()
    };
    Journal::open(&orders, options).unwrap().cut(317).unwrap();
    append(&orders, &lines("other", 400));
    let leader = Leader::start(":0", &[text(&orders)]);
    fails(
        &["journal", "follow", &leader.address, text(&copy), "--once"],
        "the copy's record 499 is not that of 'orders'",
    );
    let rejoin = [
        "journal",
        "rejoin",
        text(&copy),
        "--leader",
        &leader.address,
    ];
    fails(&rejoin, "records 317 to 499 of term 0");
    printed(&millstream(&[&rejoin[..], &["--yes"]].concat()));
    once(&leader, &copy);
    assert_same(&orders, &copy);
    // Nothing at all in common.
    let other = path("other");
    append(&other, &lines("other", 10));
    fails(
        &[
            "journal",
            "rejoin",
            text(&other),
            "--leader",
            &leader.address,
        ],
        "follow into a new directory",
    );
}

#[test]
fn bad_usage_of_promote_and_rejoin() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("empty")).unwrap();
    let empty = path("empty");
    let none = path("none");
    append(&path("a"), "line\n");
    let a = path("a");
    for (args, code, says) in [
        (&["promote"][..], 2, "required"),
        (&["promote", text(&empty)], 1, "there is no journal here"),
        (&["promote", text(&none)], 1, "there is no journal here"),
        (&["rejoin", text(&a)], 2, "--leader"),
        (
            &["rejoin", text(&none), "--leader", "127.0.0.1:1"],
            1,
            "there is no journal here",
        ),
        (
            &["rejoin", text(&a), "--leader", "127.0.0.1:1"],
            1,
            "cannot connect to 127.0.0.1:1",
        ),
        (
            &["follow", "127.0.0.1:1/a", text(&none), "--set", "a,b"],
            2,
            "leave '/a' out",
        ),
        (
            &["follow", "127.0.0.1:1", text(&none), "--set", "a,../b"],
            2,
            "'../b' is no name",
        ),
        (
            &["follow", "127.0.0.1:1", text(&none), "--set", "a,a"],
            2,
            "is there twice",
        ),
    ] {
        let output = millstream(&[&["journal"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?} {output:?}");
        assert!(
            stderr(&output).contains(says),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    assert!(!none.exists());
}
