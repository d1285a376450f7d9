//! The log of a program of services on standard error.
//!
//! The program is this test program again: `child` runs as one.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use millstream_service::system::Program;
use serde_json::json;

const ROLE: &str = "MILLSTREAM_SERVICE_TEST_ROLE";

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    if role == "has a subscriber" {
        let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
        log.with_ansi(false)
            .without_time()
            .with_target(false)
            .init();
    }
    let program = Program::new()
        .register("broken", |_| Err("there is no paper left".into()))
        .register("panics", |_| panic!("out of ink"))
        .run();
    let code = program == std::process::ExitCode::SUCCESS;
    assert!(!code, "the program has failed");
    println!("the program has ended");
}

/// Runs a program with one service of this component; with none, without an order.
fn run(role: &str, component: Option<&str>) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["programs::child", "--exact", "--nocapture"])
        .env(ROLE, role)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    if let Some(component) = component {
        let service = json!({
            "name": "printer", "component": component, "inputs": [], "out": null, "wait": "block", "cores": [],
            "rebuild": "nothing", "snapshot_every": 1000, "on_error": "fail", "on_difference": "fail", "accept_differences": 0, "dead_letters": null, "sync": "never",
            "wait_follower": 0, "retain_bytes": null, "retain_age_s": null, "retain_for_cursors": false,
        });
        let order = json!({"state": folder.path(), "stop_s": 5.0, "services": [service]});
        writeln!(stdin, "{order}").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("the program has ended"), "{output:?}");
    output
}

fn said(role: &str, component: Option<&str>) -> String {
    String::from_utf8(run(role, component).stderr).unwrap()
}

#[test]
fn an_error_is_its_words_on_a_line() {
    assert_eq!(
        said("plain", Some("broken")),
        "service printer: there is no paper left\n"
    );
    assert_eq!(
        said("plain", None),
        "this program is started by `millstream service up`\n"
    );
    assert_eq!(
        said("plain", Some("missing")),
        "service printer: this program has no component missing, but broken, panics\n"
    );
    let panicked = said("plain", Some("panics"));
    let last = panicked.lines().last();
    assert_eq!(last, Some("service printer: the component panicked"));
}

#[test]
fn a_program_with_a_subscriber_of_its_own_gets_the_events() {
    assert_eq!(
        said("has a subscriber", Some("broken")),
        "ERROR service printer: there is no paper left\n"
    );
}
