//! What a new user tries first: append in one shell, tail in a second, kill the first.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use super::journal::{fresh, raw};
use super::process::{command, interrupt, signal, stderr};

fn start(args: &[&str]) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command(args).stdin(Stdio::piped()).spawn().unwrap();
    let stdout = child.stdout.take().unwrap();
    (child, BufReader::new(stdout).lines())
}

#[test]
fn killed_while_it_appends_an_acknowledged_line_is_not_lost() {
    for (round, sync) in ["never", "100ms", "always"].into_iter().enumerate() {
        let (_folder, path) = fresh();
        let append = ["journal", "append", &path, "--sync", sync];
        let (mut writer, mut acknowledged) = start(&append);
        let mut stdin = writer.stdin.take().unwrap();
        stdin.write_all(b"line 0\n").unwrap();
        assert_eq!(acknowledged.next().unwrap().unwrap(), "0");

        let follow = ["journal", "tail", "-f", "-n", "1", "--body", "raw", &path];
        let (tail, mut seen) = start(&follow);
        assert_eq!(seen.next().unwrap().unwrap(), "line 0");

        // Lines without end, until the writer is gone.
        let feeder = std::thread::spawn(move || {
            (1..u64::MAX).find(|n| writeln!(stdin, "line {n}").is_err())
        });
        let told: u64 = 100 + 1_000 * round as u64;
        let mut last = 0;
        while last < told {
            last = acknowledged.next().unwrap().unwrap().parse().unwrap();
        }
        writer.kill().unwrap();
        writer.wait().unwrap();
        // What it had acknowledged and we had not read yet counts as well. A line that was cut in the pipe does not.
        for line in acknowledged.map_while(Result::ok) {
            last = line.parse::<u64>().map_or(last, |number| number.max(last));
        }
        assert!(feeder.join().unwrap().is_some());

        for n in 1..=last {
            assert_eq!(
                seen.next().unwrap().unwrap(),
                format!("line {n}"),
                "sync {sync}"
            );
        }
        interrupt(&tail);
        let output = tail.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
        let kept = raw(&["cat", &path]);
        for (n, line) in kept.lines().enumerate() {
            assert_eq!(line, format!("line {n}"));
        }
        assert!(kept.lines().count() as u64 > last);
    }
}

#[test]
fn a_stop_during_an_append_ends_well_and_loses_nothing() {
    use rustix::process::Signal;
    let cases =
        [Signal::INT, Signal::TERM].map(|kind| ["never", "always"].map(|sync| (kind, sync)));
    for (round, (kind, sync)) in cases.into_iter().flatten().enumerate() {
        let (_folder, path) = fresh();
        let (mut writer, mut acknowledged) = start(&["journal", "append", &path, "--sync", sync]);
        let mut stdin = writer.stdin.take().unwrap();
        let feeder = std::thread::spawn(move || {
            (0..u64::MAX).find(|n| writeln!(stdin, "line {n}").is_err())
        });
        let told = 1 + 700 * round;
        assert_eq!(acknowledged.by_ref().take(told).count(), told);
        let follow = [
            "journal", "tail", "-f", "--from", "0", "--body", "raw", &path,
        ];
        let (tail, mut seen) = start(&follow);
        assert_eq!(seen.next().unwrap().unwrap(), "line 0");
        // Both are busy: the one appends, the other follows.
        signal(&writer, kind);
        let told = told + acknowledged.map_while(Result::ok).count();
        let output = writer.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
        assert!(feeder.join().unwrap().is_some());
        signal(&tail, kind);
        for (n, line) in (1..).zip(seen) {
            assert_eq!(line.unwrap(), format!("line {n}"));
        }
        let output = tail.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(0), ""));
        let kept = raw(&["cat", &path]);
        for (n, line) in kept.lines().enumerate() {
            assert_eq!(line, format!("line {n}"));
        }
        assert!(kept.lines().count() >= told, "{told} were acknowledged");
    }
}

#[test]
fn a_tail_sees_lines_of_several_writers_across_segments() {
    let (_folder, path) = fresh();
    let append = ["journal", "append", &path, "--segment-bytes", "64KiB"];
    let writers: Vec<_> = (0..3).map(|_| start(&append)).collect();
    let follow = [
        "journal", "tail", "-f", "--from", "0", "--body", "raw", &path,
    ];
    // The journal is there as soon as one of them has opened it.
    let deadline = Instant::now() + Duration::from_secs(30);
    while !std::path::Path::new(&path)
        .join("segment-0000000000.log")
        .exists()
    {
        assert!(Instant::now() < deadline, "no writer has made the journal");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (tail, seen) = start(&follow);
    let each = 5_000;
    let mut threads = Vec::new();
    for (index, (mut writer, acknowledged)) in writers.into_iter().enumerate() {
        let mut stdin = writer.stdin.take().unwrap();
        threads.push(std::thread::spawn(move || {
            for n in 0..each {
                writeln!(stdin, "{index} {n}").unwrap();
            }
        }));
        threads.push(std::thread::spawn(move || {
            assert_eq!(acknowledged.count(), each);
            assert!(writer.wait().unwrap().success());
        }));
    }
    let mut next = [0; 3];
    for line in seen.take(3 * each) {
        let line = line.unwrap();
        let (index, n) = line.split_once(' ').unwrap();
        let (index, n): (usize, usize) = (index.parse().unwrap(), n.parse().unwrap());
        assert_eq!(n, next[index], "writer {index}");
        next[index] += 1;
    }
    assert_eq!(next, [each; 3]);
    interrupt(&tail);
    assert_eq!(tail.wait_with_output().unwrap().status.code(), Some(0));
    for thread in threads {
        thread.join().unwrap();
    }
}
