//! `millstream journal followers`: which followers count for a writer that waits, and the way on for those that do not.

use std::path::Path;

use serde_json::Value;

use super::leader::{Follower, Leader, next, records, until};
use super::process::{feed, interrupt, json, millstream, printed, stderr, text};

/// Append a line that a follower must acknowledge.
fn acknowledged(journal: &Path, line: &str, limit: &str) -> Result<String, String> {
    let wait = format!("--wait-follower={limit}");
    let output = feed(&["journal", "append", text(journal), &wait], line);
    match output.status.code() {
        Some(0) => Ok(printed(&output)),
        _ => Err(stderr(&output)),
    }
}

fn followers(args: &[&str]) -> Value {
    json(&millstream(
        &[&["journal", "followers", "--json"], args].concat(),
    ))
}

fn refused(args: &[&str], says: &str) {
    let output = millstream(&[&["journal", "followers"], args].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
}

fn stop(mut follower: Follower) {
    interrupt(&follower.child);
    assert_eq!(follower.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_leader_that_is_cut_off_does_not_acknowledge_with_a_follower_that_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let copy = path("copy");
    let late = path("late");
    printed(&feed(&["journal", "append", text(&orders)], "first\n"));
    let leader = Leader::start(":0", &[text(&orders)]);
    let follower = Follower::start(&leader.address, &copy, &["--as", "b"]);
    acknowledged(&orders, "one\n", "60s").unwrap();

    // The other machine cannot reach this one, and its copy is promoted.
    stop(follower);
    printed(&millstream(&["journal", "promote", text(&copy)]));
    let new = Leader::start(":0", &[&format!("orders={}", text(&copy))]);
    let _of_new = Follower::start(&new.address, &path("d"), &["--as", "d"]);
    acknowledged(&copy, "of the new leader\n", "60s").unwrap();

    // The old leader does not know it, and gets a follower, also after a restart.
    drop(leader);
    let leader = Leader::start(":0", &[text(&orders)]);
    let c = Follower::start(&leader.address, &late, &["--as", "c"]);
    let error = acknowledged(&orders, "of the old leader\n", "300ms").unwrap_err();
    let path_of = text(&orders);
    let remedy = format!(
        "; 'c' does not count: `millstream journal followers {path_of}` says why, `--admit NAME` lets it count"
    );
    until("the copy", || next(&late) == next(&orders));
    assert!(error.contains("but 0 of 1 follower(s)"), "{error}");
    let again = acknowledged(&orders, "once more\n", "300ms").unwrap_err();
    assert!(again.trim_end().ends_with(&remedy), "{again}");
    until("a warning", || {
        let warning = "'c' does not count as a follower of 'orders': 'b' has not answered; `millstream journal followers ";
        leader.said().contains(warning)
    });
    let found = followers(&[path_of]);
    let state = |at: usize| ["name", "counts", "connected"].map(|key| found[at][key].clone());
    assert_eq!(
        state(0),
        ["b".into(), Value::Bool(true), Value::Bool(false)]
    );
    assert_eq!(
        state(1),
        ["c".into(), Value::Bool(false), Value::Bool(true)]
    );
    let why = "it is new, and counts once it is connected together with the copies that were admitted as b";
    assert_eq!(found[1]["why"], why);
    until("the positions", || {
        let info = printed(&millstream(&["journal", "info", path_of]));
        info.contains("follower.c at 4, 0 behind, does not count")
            && info.contains("follower.b at 2, 2 behind\n")
    });

    // An operator knows that the other machine is lost for good, and follows the advice.
    followers(&[path_of, "--admit", "c"]);
    assert_eq!(acknowledged(&orders, "now\n", "60s").unwrap(), "4\n");
    assert_eq!(records(&late), records(&orders));
    refused(
        &[path_of, "--forget", "c"],
        "the follower 'c' is connected, or was a moment ago; stop it",
    );
    let left = followers(&[path_of, "--forget", "b"]);
    assert_eq!(
        (left.as_array().unwrap().len(), &left[0]["name"]),
        (1, &"c".into())
    );
    stop(c);
    // It is known, and counts again at once.
    let _c = Follower::start(&leader.address, &late, &["--as", "c"]);
    assert_eq!(acknowledged(&orders, "later\n", "60s").unwrap(), "5\n");
}

#[test]
fn a_follower_that_comes_while_all_others_are_connected_counts_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let b = path("b");
    let c = path("c");
    printed(&feed(&["journal", "append", text(&orders)], "first\n"));
    let leader = Leader::start(":0", &[text(&orders)]);
    let counts = |name: &str| {
        let found = followers(&[text(&orders)]);
        let found = found.as_array().unwrap().iter();
        let mut found = found.filter(|one| one["name"] == name);
        found.next().is_some_and(|one| one["counts"] == true)
    };
    let _b = Follower::start(&leader.address, &b, &["--as", "b"]);
    until("the first follower", || counts("b"));
    let second = Follower::start(&leader.address, &c, &["--as", "c"]);
    until("the second follower", || counts("c"));
    stop(second);

    // Its copy is deleted and begun anew: the name does not vouch for it.
    std::fs::remove_dir_all(&c).unwrap();
    let second = Follower::start(&leader.address, &c, &["--as", "c"]);
    until("a warning", || {
        let warning = "'c' does not count as a follower of 'orders': 'c' has not answered";
        leader.said().contains(warning)
    });
    assert!(!counts("c"));
    let listed = printed(&millstream(&["journal", "followers", text(&orders)]));
    let line = "c at 1, 0 behind, connected, does not count: its copy is another one than the copy that was admitted as c";
    assert!(listed.contains(line), "{listed}");
    stop(second);
    until("the end of the connection", || {
        followers(&[text(&orders)])[1]["connected"] == false
    });
    // In all journals of a directory that have this follower.
    followers(&[text(folder.path()), "--forget", "c"]);
    let _second = Follower::start(&leader.address, &c, &["--as", "c"]);
    until("the new copy", || counts("c"));
}

#[test]
fn bad_usage_of_followers() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    printed(&feed(&["journal", "append", text(&orders)], "first\n"));
    let orders = text(&orders);
    assert_eq!(
        printed(&millstream(&["journal", "followers", orders])),
        "no followers\n"
    );
    refused(
        &[orders, "--admit", "b"],
        "there is no follower 'b'; it has none",
    );
    refused(&[text(&path("none"))], "there is no journal here");
    let both = [
        "journal",
        "followers",
        orders,
        "--admit",
        "b",
        "--forget",
        "c",
    ];
    assert_eq!(millstream(&both).status.code(), Some(2));
}
