//! The files of a directory as a source.

use std::path::Path;
use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::directory::{self, ReadDirectory};
use millstream_flow::files::{self, ReadFiles};
use millstream_flow::testing::Collected;
use millstream_flow::{Flow, FlowError, Options, Recovery, codec};

use super::support::{failure, finish, run, wait};
use crate::recovery::{lines, run as run_saving};

fn read(source: ReadDirectory<ReadFiles>, workers: usize) -> Vec<String> {
    let flow = Flow::new("directory");
    let seen = Collected::new();
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", seen.sink());
    run(&flow, workers).unwrap();
    seen.take()
}

fn write(dir: &Path, name: &str, text: &str) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn copy(dir: &Path, source: ReadDirectory<ReadFiles>, out: &Path) -> Flow {
    let flow = Flow::new(&dir.display().to_string());
    let sink = codec::encode(files::write(out), codec::display::<String>);
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", sink);
    flow
}

#[test]
fn files_that_match_are_read_in_the_order_of_their_names() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        "c.log",
        "a.log",
        "b.txt",
        "b.log",
        ".d.log",
        "e/f.log",
        "e/g/h.log",
        "[x].log",
    ] {
        write(dir.path(), name, &format!("{name} 1\n{name} 2\n"));
    }
    write(dir.path(), "b2.log", "");
    std::fs::create_dir(dir.path().join("z.log")).unwrap();
    let names = |pattern: &str, partitions, workers| {
        let mut lines = read(
            directory::frames(dir.path(), pattern).partitions(partitions),
            workers,
        );
        if partitions > 1 {
            lines.sort();
        }
        lines.join(";")
    };
    let all = "[x].log 1;[x].log 2;a.log 1;a.log 2;b.log 1;b.log 2;c.log 1;c.log 2";
    for (partitions, workers) in [(1, 1), (1, 3), (3, 1), (5, 2)] {
        assert_eq!(names("*.log", partitions, workers), all);
    }
    assert_eq!(names("?.txt", 1, 1), "b.txt 1;b.txt 2");
    assert_eq!(names("e/*.log", 1, 1), "e/f.log 1;e/f.log 2");
    assert_eq!(
        names("e/**/*.log", 1, 1),
        "e/f.log 1;e/f.log 2;e/g/h.log 1;e/g/h.log 2"
    );
    assert_eq!(names("none*", 1, 1), "");
}

#[test]
fn a_directory_or_pattern_that_is_wrong_is_named() {
    let fails = |dir: &str, pattern: &str| {
        let flow = Flow::new("directory");
        let source = codec::decode(directory::frames(dir, pattern), codec::text);
        flow.source("in", source)
            .sink("out", Collected::<String>::new().sink());
        failure(&flow, 1)
    };
    let said = fails("/no/such", "*");
    assert!(
        said.ends_with("/no/such: No such file or directory (os error 2)"),
        "{said}"
    );
    let said = fails("/tmp", "[a");
    assert!(said.contains("the pattern \"[a\""), "{said}");
}

#[test]
fn each_file_resumes_and_new_files_are_read() {
    for (partitions, workers) in [(1, [1, 1]), (3, [2, 1])] {
        let folder = tempfile::tempdir().unwrap();
        let [dir, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
        let mut due = Vec::new();
        let mut add = |name: &str, count: usize| {
            let of_file = (0..count).map(|n| format!("{name} {n} {}", "-".repeat(n % 90)));
            let of_file: Vec<_> = of_file.collect();
            let text: String = of_file.iter().map(|line| format!("{line}\n")).collect();
            write(&dir, name, &text);
            due.extend(of_file);
        };
        for n in 0..8 {
            add(&format!("{n}.log"), n * 700);
        }
        let flow = copy(
            &dir,
            directory::frames(&dir, "*.log").partitions(partitions),
            &out,
        );
        let mut crashes = 0;
        for attempt in 0.. {
            let recovery = Recovery::new(&state)
                .epoch(Duration::ZERO)
                .sync(attempt % 3 == 0);
            let recovery = recovery.crash(Crash::MOMENTS[attempt % 3](2));
            match run_saving(&flow, workers[attempt % 2], recovery) {
                Err(FlowError::Crashed(_)) => crashes += 1,
                ended => {
                    ended.unwrap();
                    break;
                }
            }
            // Before the others, and among them.
            match crashes {
                2 => add("+.log", 900),
                4 => add("55.log", 1200),
                _ => {}
            }
        }
        assert!(crashes > 6, "{crashes}");
        let mut written = lines(&out);
        let of_file = |name: &str| -> Vec<_> {
            written
                .iter()
                .filter(|line| line.starts_with(name))
                .cloned()
                .collect()
        };
        let sixth = of_file("6.log ");
        assert!(
            sixth
                .iter()
                .eq(due.iter().filter(|line| line.starts_with("6.log ")))
        );
        written.sort();
        due.sort();
        assert!(written == due, "{} of {} lines", written.len(), due.len());
    }
}

#[test]
fn a_read_file_may_be_removed_and_a_grown_one_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let [dir, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
    write(&dir, "a", "a1\na2\n");
    write(&dir, "b", "b1\n");
    let source = || directory::frames(&dir, "*").follow(Duration::from_millis(5));
    let flow = copy(&dir, source(), &out);
    let run_until = |count: usize| {
        let mut options = Options::workers(1);
        options.recovery = Some(Recovery::new(&state).epoch(Duration::from_millis(5)));
        let running = flow.start(options).unwrap();
        for _ in 0..6000 {
            if std::fs::read_to_string(&out).is_ok_and(|text| text.lines().count() >= count) {
                break;
            }
            wait(10);
        }
        running.stop();
        finish(running).unwrap();
        lines(&out)
    };
    assert_eq!(run_until(3), ["a1", "a2", "b1"]);
    std::fs::remove_file(dir.join("a")).unwrap();
    std::fs::remove_file(dir.join("b")).unwrap();
    write(&dir, "c", "c1\n");
    assert_eq!(run_until(4).last().unwrap(), "c1");
    write(&dir, "c", "c1\nc2\n");
    write(&dir, "0", "new\n");
    // What comes first depends on where the run before was stopped, within "c" or after it.
    let mut written = run_until(6);
    written[4..].sort();
    assert_eq!(written, ["a1", "a2", "b1", "c1", "c2", "new"]);
    write(&dir, "c", "c1\n");
    let mut options = Options::workers(1);
    options.recovery = Some(Recovery::new(&state));
    let said = format!("{:?}", finish(flow.start(options).unwrap()).unwrap_err());
    assert!(
        said.contains("c: it has 3 bytes, fewer than the 6 that were read of it"),
        "{said}"
    );
}

#[test]
fn new_files_are_read_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let [dir, out] = ["in", "out"].map(|name| folder.path().join(name));
    write(&dir, "1", "1\n");
    let source = directory::frames(&dir, "*")
        .partitions(2)
        .follow(Duration::from_millis(2));
    let flow = copy(&dir, source, &out);
    let running = flow.start(Options::workers(2)).unwrap();
    for n in 2..20 {
        write(&dir, ".new", &format!("{n}\n"));
        std::fs::rename(dir.join(".new"), dir.join(n.to_string())).unwrap();
        let has = || {
            std::fs::read_to_string(&out)
                .unwrap_or_default()
                .lines()
                .count()
                == n
        };
        (0..6000)
            .find(|_| {
                has() || {
                    wait(10);
                    false
                }
            })
            .unwrap();
    }
    running.stop();
    finish(running).unwrap();
}

#[test]
fn another_number_of_partitions_and_a_lost_list_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let [dir, out, state] = ["in", "out", "state"].map(|name| folder.path().join(name));
    write(&dir, "a", &"line\n".repeat(90_000));
    let run = |partitions| {
        let flow = copy(
            &dir,
            directory::frames(&dir, "*").partitions(partitions),
            &out,
        );
        let recovery = Recovery::new(&state)
            .epoch(Duration::ZERO)
            .crash(Crash::After(2));
        format!("{:?}", run_saving(&flow, 1, recovery).unwrap_err())
    };
    run(2);
    let said = run(3);
    assert!(
        said.contains("was read in 2 partitions, and cannot resume with 3"),
        "{said}"
    );
    std::fs::remove_file(state.join("files/in")).unwrap();
    let said = run(2);
    assert!(said.contains("files/in: No such file"), "{said}");
}
