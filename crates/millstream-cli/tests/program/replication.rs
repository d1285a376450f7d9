//! `millstream journal serve` and `follow`: copies that are the original, and how they come to be.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use millstream_journal::{Journal, Options};

use super::leader::{Follower, Leader, assert_same, next, until};
use super::process::{command, feed, interrupt, json, millstream, printed, stderr, text};

fn lines(from: u64, count: u64) -> String {
    (from..from + count)
        .map(|n| format!("line {n}\n"))
        .collect()
}

fn append(path: &Path, input: &str) {
    let args = [
        "journal",
        "append",
        text(path),
        "--quiet",
        "--segment-bytes",
        "64KiB",
    ];
    printed(&feed(&args, input));
}

fn refused(output: Output, says: &str) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(stderr(&output).contains(says), "{}", stderr(&output));
}

#[test]
fn a_copy_has_the_numbers_times_and_bodies_of_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let copy = folder.path().join("copy");
    append(&orders, &lines(0, 5_000));
    // What has been pruned before the follower came is not missed.
    let pruned = ["journal", "prune", text(&orders), "--bytes", "128KiB"];
    printed(&millstream(&pruned));
    let leader = Leader::start(":0", &[text(&orders)]);

    let once = [
        "journal",
        "follow",
        &leader.address,
        text(&copy),
        "--once",
        "--json",
    ];
    let first = json(&millstream(&once));
    assert_eq!(first["next"], 5_000);
    assert_eq!(first["acknowledged"], 5_000);
    assert!(first["records"].as_u64().unwrap() < 5_000);
    assert_same(&orders, &copy);

    append(&orders, &lines(5_000, 3_000));
    let named = format!("{}/orders", leader.address);
    let again = json(&millstream(&[
        "journal",
        "follow",
        &named,
        text(&copy),
        "--once",
        "--json",
    ]));
    assert_eq!(again["records"], 3_000);
    assert_same(&orders, &copy);
    let verified = millstream(&["journal", "verify", text(&copy)]);
    assert!(
        printed(&verified).contains(" sound records in "),
        "{verified:?}"
    );

    // The leader knows what was acknowledged, and keeps it for retention.
    let cursor = || {
        let info = json(&millstream(&["journal", "info", text(&orders), "--json"]));
        info["cursors"][0].clone()
    };
    until("the last acknowledgement", || cursor()["position"] == 8_000);
    let name = cursor()["name"].as_str().unwrap().to_owned();
    assert!(
        name.starts_with("follower.") && name.ends_with("-copy"),
        "{name}"
    );
}

#[test]
fn a_copy_that_was_thrown_away_is_made_anew_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let copy = folder.path().join("copy");
    append(&orders, &lines(0, 100));
    let leader = Leader::start(":0", &[text(&orders)]);
    for _ in 0..5 {
        let follow = ["journal", "follow", &leader.address, text(&copy), "--once"];
        printed(&millstream(&follow));
        assert_same(&orders, &copy);
        std::fs::remove_dir_all(&copy).unwrap();
    }
}

#[test]
fn a_live_copy_is_tailed_while_a_writer_waits_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let copy = folder.path().join("copy");
    append(&orders, "line 0\n");
    let mut leader = Leader::start(":0", &[text(&orders)]);
    for sync in ["never", "20ms", "always"] {
        let mut follower = Follower::start(&leader.address, &copy, &["--sync", sync]);
        until("the copy", || next(&copy) == next(&orders));
        let start = next(&orders);
        let from = start.to_string();
        let tail = ["journal", "tail", "-f", "--body", "raw", text(&copy)];
        let mut tail = command(&[&tail[..], &["--from", &from]].concat())
            .spawn()
            .unwrap();
        let mut seen = BufReader::new(tail.stdout.take().unwrap()).lines();

        let waiting = ["journal", "append", text(&orders), "--wait-follower=60s"];
        let acknowledged = printed(&feed(&waiting, lines(start, 500)));
        assert_eq!(acknowledged.lines().count(), 500);
        assert_eq!(next(&copy), start + 500, "sync {sync}");
        for n in start..start + 500 {
            assert_eq!(seen.next().unwrap().unwrap(), format!("line {n}"));
        }
        interrupt(&tail);
        tail.wait().unwrap();
        interrupt(&follower.child);
        assert_eq!(
            follower.child.wait().unwrap().code(),
            Some(0),
            "{}",
            follower.said()
        );
    }
    interrupt(&leader.child);
    assert_eq!(
        leader.child.wait().unwrap().code(),
        Some(0),
        "{}",
        leader.said()
    );
    assert_same(&orders, &copy);
}

#[test]
fn without_a_follower_a_waiting_writer_says_which_record_waits() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let output = feed(
        &["journal", "append", text(&orders), "--wait-follower=100ms"],
        "line\n",
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stdout, b"");
    assert!(
        stderr(&output).ends_with(
            "record 0 is in the journal, but 0 of 1 follower(s) had acknowledged it after 100ms\n"
        ),
        "{}",
        stderr(&output)
    );
    assert_eq!(next(&orders), 1);
}

#[test]
fn secrets_are_asked_for_and_proved_by_both() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let copy = folder.path().join("copy");
    append(&orders, &lines(0, 10));
    let file = |name: &str, content: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        text(&path).to_owned()
    };
    let right = file("right", "correct horse battery\n");
    let wrong = file("wrong", "incorrect horse staple");
    let leader = Leader::start(":0", &[text(&orders), "--secret-file", &right]);
    let open = Leader::start(":0", &[text(&orders)]);
    let follow = |address: &str, secret: &[&str]| {
        millstream(&[&["journal", "follow", address, text(&copy)], secret].concat())
    };
    for (address, secret, says) in [
        (
            &leader.address,
            &["--secret-file", wrong.as_str()][..],
            "the leader refuses: the secrets of leader and follower differ",
        ),
        (
            &leader.address,
            &[],
            "the leader refuses: the leader asks for a secret: give the one that it has",
        ),
        (
            &open.address,
            &["--secret-file", right.as_str()],
            "the leader does not know the secret, or was started without one",
        ),
    ] {
        let output = follow(address, secret);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert!(!copy.exists(), "nothing is made before both are known");
    }
    printed(&follow(
        &leader.address,
        &["--once", "--secret-file", &right],
    ));
    assert_same(&orders, &copy);
    let short = file("short", "12345");
    let output = follow(&leader.address, &["--secret-file", &short]);
    assert!(
        stderr(&output).contains("a secret has at least 16 bytes, this one 5"),
        "{output:?}"
    );
}

#[test]
fn a_copy_of_another_journal_is_refused_and_so_is_one_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let fills = path("fills");
    let copy = path("copy");
    append(&orders, &lines(0, 1_000));
    append(&fills, &lines(0, 1_000));
    let leader = Leader::start(":0", &[text(&orders), &format!("filled={}", text(&fills))]);
    let follow = |name: &str, dir: &Path, more: &[&str]| {
        let from = format!("{}{name}", leader.address);
        millstream(&[&["journal", "follow", &from, text(dir), "--once"], more].concat())
    };
    refused(
        follow("", &copy, &[]),
        "it serves several journals; name one: orders, filled",
    );
    refused(
        follow("/fills", &copy, &[]),
        "it serves no journal 'fills'; there are: orders, filled",
    );
    printed(&follow("/filled", &copy, &[]));
    assert_same(&fills, &copy);
    refused(
        follow("/orders", &copy, &[]),
        "the copy is one of another journal than 'orders'",
    );

    // No process appends to a copy that is not promoted.
    refused(
        feed(&["journal", "append", text(&copy)], "stranger\n"),
        "the journal is a copy, to which only its follower appends; `millstream journal promote` makes it a leader",
    );
    // Without its mark a copy can be appended to.
    std::fs::remove_file(copy.join("is-copy")).unwrap();
    append(&copy, "stranger\n");
    refused(
        follow("/filled", &copy, &[]),
        "the copy's record 1000 is not that of 'filled'",
    );
    append(&fills, &lines(1_000, 500));
    refused(
        follow("/filled", &copy, &[]),
        "the copy's record 1000 is not that of 'filled'",
    );
    refused(
        follow("/filled", &path("named"), &["--as", "../x"]),
        "is no name for a follower",
    );
}

#[test]
fn a_copy_that_was_made_by_other_means_can_be_adopted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    append(&orders, &lines(0, 1_000));
    let leader = Leader::start(":0", &[text(&orders)]);
    let follow = |name: &str, dir: &Path, more: &[&str]| {
        let from = format!("{}{name}", leader.address);
        millstream(&[&["journal", "follow", &from, text(dir), "--once"], more].concat())
    };
    // A journal of another lineage is no copy, unless the follower has the option for it.
    let stranger = path("stranger");
    let taken = path("taken");
    append(&stranger, &lines(0, 3));
    refused(
        follow("/orders", &stranger, &[]),
        "the copy is one of another journal than 'orders'",
    );
    refused(
        follow("/orders", &stranger, &["--adopt"]),
        "the copy's record 2 is not that of 'orders'",
    );
    printed(&millstream(&[
        "journal",
        "copy",
        text(&orders),
        text(&taken),
        "-n",
        "600",
    ]));
    // A copy by other means, such as export and import, has a lineage of its own.
    std::fs::copy(stranger.join("identity"), taken.join("identity")).unwrap();
    refused(
        follow("/orders", &taken, &[]),
        "or adopt it, if it was copied",
    );
    let adopted = json(&follow("/orders", &taken, &["--adopt", "--json"]));
    assert_eq!(adopted["records"], 400);
    assert_same(&orders, &taken);
    printed(&follow("/orders", &taken, &[]));
    // A copy by `journal copy` is known for one.
    let copied = path("copied");
    printed(&millstream(&[
        "journal",
        "copy",
        text(&orders),
        text(&copied),
    ]));
    printed(&follow("/orders", &copied, &[]));
}

#[test]
fn a_reader_of_a_copy_may_start_before_its_follower() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let copy = folder.path().join("copy");
    append(&orders, &lines(0, 1_000));
    let leader = Leader::start(":0", &[text(&orders)]);
    let journal = Journal::open(&copy, Options::default()).unwrap();
    let mut reader = journal.reader().unwrap();
    assert!(reader.next().unwrap().is_none());
    let follow = ["journal", "follow", &leader.address, text(&copy), "--once"];
    printed(&millstream(&follow));
    let mut lines = 0;
    while let Some(record) = reader.next().unwrap() {
        assert_eq!(record.body, format!("line {lines}").as_bytes());
        lines += 1;
    }
    assert_eq!(lines, 1_000);
    assert_same(&orders, &copy);
}

#[test]
fn what_was_pruned_before_it_was_copied_is_an_error_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let copy = folder.path().join("copy");
    append(&orders, &lines(0, 100));
    let leader = Leader::start(":0", &[text(&orders)]);
    let follow = ["journal", "follow", &leader.address, text(&copy), "--once"];
    printed(&millstream(&follow));
    append(&orders, &lines(100, 20_000));
    // A retention that asks the cursors keeps what the follower has not got, another one does not.
    printed(&millstream(&[
        "journal",
        "prune",
        text(&orders),
        "--keep-for-cursors",
    ]));
    let first = Journal::open(&orders, Options::read_only())
        .unwrap()
        .first()
        .unwrap();
    assert!(first <= 100);
    printed(&millstream(&[
        "journal",
        "prune",
        text(&orders),
        "--bytes",
        "128KiB",
    ]));
    let output = millstream(&follow);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("record 100, which the copy needs next, has been pruned from 'orders'"),
        "{said}"
    );
    assert!(
        said.contains("follow into a new directory, and keep the old copy"),
        "{said}"
    );
}

#[test]
fn nothing_else_appends_to_a_copy_and_one_name_is_one_follower() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let copy = path("copy");
    let other = path("other");
    append(&orders, &lines(0, 10));
    let leader = Leader::start(":0", &[text(&orders)]);
    let follower = Follower::start(&leader.address, &copy, &["--as", "backup"]);
    until("the copy", || next(&copy) == 10);

    let output = feed(&["journal", "append", text(&copy)], "stranger\n");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("another process is the only one that appends to it"),
        "{output:?}"
    );
    let second = millstream(&[
        "journal",
        "follow",
        &leader.address,
        text(&copy),
        "--as",
        "backup",
    ]);
    assert!(
        stderr(&second).contains("there can be only one"),
        "{second:?}"
    );
    let named = millstream(&[
        "journal",
        "follow",
        &leader.address,
        text(&other),
        "--as",
        "backup",
        "--once",
    ]);
    assert_eq!(named.status.code(), Some(1));
    assert!(
        stderr(&named).contains(
            "another follower of 'orders' is connected as 'backup'; give this one another name"
        ),
        "{named:?}"
    );
    // A consumer of the copy keeps its own cursor in it.
    let consumer = Journal::open(&copy, Options::default()).unwrap();
    let cursor = consumer
        .cursor("consumer", millstream_journal::CursorMode::Exclusive)
        .unwrap();
    cursor.set(10).unwrap();
    append(&orders, &lines(10, 10));
    until("the copy", || next(&copy) == 20);
    assert_eq!(cursor.position().unwrap(), 10);
    drop(follower);
    assert_same(&orders, &copy);
}

/// An authority `ca`, certificates of it for a leader and a follower, and another authority.
fn make_certificates(folder: &Path) {
    let script = "
        new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2'
        sign='openssl x509 -req -CA ca.pem -CAkey ca.key -CAcreateserial -days 2'
        $new -x509 -subj /CN=authority -keyout ca.key -out ca.pem
        $new -x509 -subj /CN=other -keyout other.key -out other.pem
        $new -subj /CN=leader -keyout key.pem -out request.pem
        printf 'subjectAltName=DNS:leader.example,IP:127.0.0.1' > names
        $sign -in request.pem -extfile names -out cert.pem
        $new -subj /CN=follower -keyout follower.key -out request.pem
        printf 'subjectAltName=DNS:follower.example' > names
        $sign -in request.pem -extfile names -out follower.pem";
    let made = Command::new("sh")
        .args(["-ec", script])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn over_tls_a_leader_authenticates() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let copy = path("copy");
    append(&orders, &lines(0, 20_000));
    make_certificates(folder.path());
    let cert = path("cert.pem");
    let key = path("key.pem");
    let leader = Leader::start(
        ":0",
        &[
            text(&orders),
            "--tls-cert",
            text(&cert),
            "--tls-key",
            text(&key),
        ],
    );
    let follow = |more: &[&str]| {
        millstream(
            &[
                &["journal", "follow", &leader.address, text(&copy), "--once"],
                more,
            ]
            .concat(),
        )
    };
    let ca = path("ca.pem");
    let other = path("other.pem");
    for (args, says) in [
        (
            &["--tls-ca", text(&other)][..],
            "TLS: the leader's certificate is refused: none of the certificates in --tls-ca vouches for it",
        ),
        (
            &["--tls-ca", text(&ca), "--tls-name", "wrong.example"],
            "TLS: the leader's certificate is refused: it does not name the host",
        ),
        (&["--tls-ca", text(&key)], "no certificate in this file"),
        (&[], "the leader refuses: the leader speaks TLS (--tls-ca)"),
    ] {
        let output = follow(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            stderr(&output).contains(says),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    printed(&follow(&["--tls-ca", text(&ca)]));
    assert_same(&orders, &copy);
    append(&orders, &lines(20_000, 5));
    printed(&follow(&[
        "--tls-ca",
        text(&ca),
        "--tls-name",
        "leader.example",
    ]));
    assert_same(&orders, &copy);
}

#[test]
fn over_mutual_tls_a_follower_shows_a_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let copy = path("copy");
    append(&orders, &lines(0, 100));
    make_certificates(folder.path());
    std::fs::write(path("secret"), "correct horse battery").unwrap();
    let file = |name: &str| path(name).to_str().unwrap().to_owned();
    let serve = [
        text(&orders),
        "--tls-cert",
        &file("cert.pem"),
        "--tls-key",
        &file("key.pem"),
        "--tls-client-ca",
        &file("ca.pem"),
    ];
    // With it a leader may be reached from other machines, without a secret.
    let leader = Leader::start("0.0.0.0:0", &serve);
    let port = leader.address.rsplit(':').next().unwrap();
    let address = format!("127.0.0.1:{port}");
    let follow = |more: &[&str]| {
        let own = ["journal", "follow", &address, text(&copy), "--once"];
        millstream(&[&own[..], more].concat())
    };
    let secret = file("secret");
    let ca = &file("ca.pem");
    let other = [&file("other.pem"), &file("other.key")];
    let own = [&file("follower.pem"), &file("follower.key")];
    let wanted = "TLS: the leader asks for a certificate of the follower (--tls-cert, --tls-key)";
    for (args, says) in [
        (&["--tls-ca", ca][..], wanted),
        (&["--secret-file", &secret], wanted),
        (
            &[
                "--tls-ca",
                ca,
                "--tls-cert",
                other[0],
                "--tls-key",
                other[1],
            ],
            "TLS: the leader refuses the follower's certificate",
        ),
        (&[], "the leader refuses: the leader speaks TLS (--tls-ca)"),
    ] {
        let output = follow(args);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = stderr(&output);
        assert!(said.contains(says), "{args:?}: {said}");
    }
    assert!(!copy.exists());
    printed(&follow(&[
        "--tls-ca",
        ca,
        "--tls-cert",
        own[0],
        "--tls-key",
        own[1],
    ]));
    assert_same(&orders, &copy);
    assert!(
        leader
            .said()
            .contains("the follower shows no certificate (--tls-cert, --tls-key)"),
        "{}",
        leader.said()
    );
}

#[test]
fn a_leader_with_secret_and_certificate_serves_followers_with_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let orders = path("orders");
    let copy = path("copy");
    append(&orders, &lines(0, 100));
    make_certificates(folder.path());
    std::fs::write(path("secret"), "correct horse battery").unwrap();
    let cert = path("cert.pem");
    let key = path("key.pem");
    let ca = path("ca.pem");
    let secret = path("secret");
    let with_secret = ["--secret-file", text(&secret)];
    let certificate = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
    let serve = [&[text(&orders)], &with_secret[..], &certificate].concat();
    let leader = Leader::start(":0", &serve);
    let follow = |leader: &Leader, more: &[&str]| {
        let own = ["journal", "follow", &leader.address, text(&copy), "--once"];
        millstream(&[&own[..], more].concat())
    };
    printed(&follow(&leader, &with_secret));
    let both = [&with_secret[..], &["--tls-ca", text(&ca)]].concat();
    printed(&follow(&leader, &both));
    assert_same(&orders, &copy);
    refused(
        follow(&leader, &["--tls-ca", text(&ca)]),
        "the leader refuses: the leader asks for a secret: give the one that it has",
    );
    // A leader without a certificate cannot show one.
    let plain = Leader::start(":0", &[&[text(&orders)], &with_secret[..]].concat());
    refused(
        follow(&plain, &both),
        "TLS: the leader has no certificate (it was started without --tls-cert)",
    );
}

#[test]
fn what_is_no_leader_or_no_follower_is_a_harmless_error() {
    let folder = tempfile::tempdir().unwrap();
    let orders = folder.path().join("orders");
    let copy = folder.path().join("copy");
    append(&orders, &lines(0, 10));
    let leader = Leader::start(":0", &[text(&orders), "--followers-max", "4"]);
    // Silent, talkative, and one that goes at once: as many as there may be, and more.
    let mut strangers = Vec::new();
    for said in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0; 4_096], &[255; 64]] {
        let mut stranger = std::net::TcpStream::connect(&leader.address).unwrap();
        stranger.write_all(said).unwrap();
        strangers.push(stranger);
    }
    let follower = Follower::start(&leader.address, &copy, &[]);
    until("the copy", || next(&copy) == 10);
    drop((strangers, follower));
    assert!(
        leader.said().contains(
            "the other side does not follow the protocol: bytes that are no frame: [47, 45, 54, 20,"
        ),
        "{}",
        leader.said()
    );

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut one, _) = listener.accept().unwrap();
        one.write_all(b"SSH-2.0-OpenSSH_9.6 some more to read\r\n")
            .unwrap();
        // It stays open until the other side goes.
        std::io::copy(&mut one, &mut std::io::sink())
    });
    let output = millstream(&["journal", "follow", &address, text(&copy), "--once"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("does not follow the protocol: bytes that are no frame"),
        "{output:?}"
    );
    let _gone = other.join().unwrap();
}

#[test]
fn bad_usage_of_serve_and_follow() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    append(&path("a"), "line\n");
    std::fs::create_dir(path("sub")).unwrap();
    append(&path("sub/a"), "line\n");
    let (a, b, none) = (path("a"), path("sub/a"), path("none"));
    for (args, code, says) in [
        (&["serve"][..], 2, "required"),
        (
            &["serve", text(&a), text(&b)],
            2,
            "two journals are called 'a'",
        ),
        (
            &["serve", text(&a), "--heartbeat", "1ms"],
            2,
            "a time from 10ms to 10m",
        ),
        (&["serve", text(&a), "--tls-cert", "x"], 2, "--tls-key"),
        (
            &["serve", text(&a), "--listen", "0.0.0.0:0"],
            2,
            "followers must prove a secret (--secret-file), or show a certificate",
        ),
        (
            &["follow", "192.0.2.1:7600", text(&none)],
            2,
            "following it takes a secret (--secret-file) or its certificate (--tls-ca)",
        ),
        (
            &["follow", "nowhere", "x"],
            2,
            "'nowhere' is no address like 8080, :8080 or 127.0.0.1:8080",
        ),
        (
            &["follow", "127.0.0.1:1", text(&none), "--once"],
            1,
            "cannot connect to 127.0.0.1:1: Connection refused",
        ),
        (
            &["append", text(&a), "--wait-follower=soon"],
            2,
            "a length of time",
        ),
    ] {
        let output = command(&[&["journal"], args].concat())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?} {output:?}");
        assert!(
            stderr(&output).contains(says),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    assert!(!none.exists());
}
