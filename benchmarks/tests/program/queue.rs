//! `millstream-bench queue`: the server over sockets, and queues in process.

use super::process::{bench, json, stderr};

#[test]
fn the_server_is_measured_over_loopback_and_over_a_unix_socket() {
    for socket in [&[][..], &["--unix"]] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let args = ["queue", "--runs", "1", "--seconds", "0.1", "--dir", path];
        let only = ["--only", "1 conn., 64 B", "--json"];
        let out = bench(&[&args[..], &only, socket].concat());
        assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
        let report = json(&out);
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "one for each --sync: {report}");
        for row in rows {
            assert!(row["measured"]["requests"].as_u64().unwrap() > 0, "{row}");
        }
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    }
}

#[test]
fn a_followed_server_is_measured_beside_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let args = ["queue", "--runs", "1", "--seconds", "0.1", "--dir", path];
    let only = ["--only", "10 conn., 4096 B", "--json", "--busy", "1"];
    let out = bench(&[&args[..], &only, &["--against", "follower"]].concat());
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    let report = json(&out);
    let rows = report["rows"].as_array().unwrap();
    let servers: Vec<_> = rows.iter().map(|row| &row["server"]).collect();
    assert_eq!(
        servers,
        ["millstream", "followed", "millstream", "followed"]
    );
    for row in rows {
        assert!(row["measured"]["requests"].as_u64().unwrap() > 0, "{row}");
    }
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}

#[test]
fn queues_in_process_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let args = ["--runs", "1", "--seconds", "0.1", "--only", "put, 1 thread"];
    let out = bench(
        &[
            &["queue", "--in-process", "--json", "--dir", path][..],
            &args,
        ]
        .concat(),
    );
    assert_eq!((out.status.code(), stderr(&out).as_str()), (Some(0), ""));
    assert!(!json(&out)["rows"].as_array().unwrap().is_empty());
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
}
