//! Files as sources and sinks.

use std::path::Path;

use millstream_flow::testing::{Collected, items};
use millstream_flow::{Flow, Framing, codec, files};

use super::support::{failure, framed, run};

fn read_lines(source: files::ReadFiles, workers: usize) -> Vec<String> {
    let flow = Flow::new("lines");
    let seen = Collected::<String>::new();
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", seen.sink());
    run(&flow, workers).unwrap();
    seen.take()
}

fn failing(source: files::ReadFiles) -> String {
    let flow = Flow::new("lines");
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", Collected::<String>::new().sink());
    failure(&flow, 1)
}

#[test]
fn lines_are_read_from_any_position() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lines");
    // More than two reads of 64 KiB, with lines of many lengths and no line end after the last.
    let lines: Vec<String> = (0..900)
        .map(|n| format!("{n}{}", "-".repeat(n % 400)))
        .collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    let mut position = 0;
    for (n, line) in lines.iter().enumerate() {
        if n % 60 == 0 {
            let read = read_lines(files::read([&path]).from_position(position), 1);
            assert!(read == lines[n..], "from line {n}");
        }
        position += line.len() as u64 + 1;
    }
    assert!(read_lines(files::read([&path]).from_position(position + 9), 1).is_empty());
}

#[test]
fn frames_of_every_kind_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let payloads: Vec<String> = (0..30_000).map(|n| format!("{n:05}")).collect();
    for name in ["u8", "u16", "u16le", "u32", "u32le", "fixed:5", "lines"] {
        let framing: Framing = name.parse().unwrap();
        let path = dir.path().join(name);
        let bytes = framed(&framing, &payloads);
        std::fs::write(&path, &bytes).unwrap();
        let source = files::read([&path]).framing(framing.clone());
        assert!(read_lines(source, 1) == payloads, "{name}");
        let from = (bytes.len() / payloads.len() * 17) as u64;
        let source = files::read([&path]).framing(framing).from_position(from);
        assert!(read_lines(source, 1) == payloads[17..], "{name}");
    }
}

#[test]
fn empty_files_and_empty_lines() {
    let dir = tempfile::tempdir().unwrap();
    for (text, due) in [
        ("", vec![]),
        ("\n", vec![""]),
        ("a\r\n\nb", vec!["a", "", "b"]),
        ("a\n", vec!["a"]),
    ] {
        let path = dir.path().join("small");
        std::fs::write(&path, text).unwrap();
        assert_eq!(read_lines(files::read([&path]), 2), due, "{text:?}");
    }
}

#[test]
fn several_files_are_spread_over_the_workers() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..5).map(|n| dir.path().join(n.to_string())).collect();
    for (n, path) in paths.iter().enumerate() {
        let lines: Vec<String> = (0..100).map(|line| format!("{n} {line:03}")).collect();
        std::fs::write(path, lines.join("\n")).unwrap();
    }
    for workers in 1..=3 {
        let mut lines = read_lines(files::read(&paths), workers);
        for n in 0..5 {
            let of_file: Vec<_> = lines
                .iter()
                .filter(|line| line.starts_with(&format!("{n} ")))
                .collect();
            assert!(of_file.is_sorted(), "the lines of a file keep their order");
        }
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), 500);
    }
}

#[test]
fn a_line_over_the_limit_is_named_with_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long");
    let shown = path.display();
    for text in [
        format!("one\ntwo\n{}\nfour\n", "x".repeat(101)),
        format!("one\ntwo\n{}", "x".repeat(200_000)),
    ] {
        std::fs::write(&path, text).unwrap();
        let said = failing(files::read([&path]).max_frame(100));
        let start = format!("step \"in\": {shown} (read from byte 0): the frame at offset 8 is ");
        assert!(said.starts_with(&start), "{said}");
        let said = failing(files::read([&path]).max_frame(100).from_position(4));
        let start = format!("step \"in\": {shown} (read from byte 4): the frame at offset 4 is ");
        assert!(said.starts_with(&start), "{said}");
    }
}

#[test]
fn a_truncated_last_frame_is_named_with_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut");
    let bytes = framed(&Framing::U32, ["one", "two"]);
    std::fs::write(&path, &bytes[..12]).unwrap();
    let said = failing(files::read([&path]).framing(Framing::U32));
    let due = format!(
        "step \"in\": {} (read from byte 0): the stream ended inside the frame at offset 7: 5 of 7 bytes arrived",
        path.display()
    );
    assert_eq!(said, due);
}

#[test]
fn the_frames_before_a_broken_one_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut");
    let whole = framed(&Framing::U32, ["one", "two"]);
    let mut long = whole.clone();
    long.extend(framed(&Framing::U32, ["x".repeat(101)]));
    for bytes in [&whole[..12], &long[..]] {
        std::fs::write(&path, bytes).unwrap();
        let flow = Flow::new("lines");
        let seen = Collected::<String>::new();
        let source = files::read([&path]).framing(Framing::U32).max_frame(100);
        flow.source("in", codec::decode(source, codec::text))
            .sink("out", seen.sink());
        failure(&flow, 1);
        assert_eq!(seen.take()[0], "one");
    }
}

#[test]
fn a_missing_file_is_named() {
    let said = failing(files::read(["/no/such/file"]));
    assert_eq!(
        said,
        "source \"in\" (file /no/such/file, lines): /no/such/file: No such file or directory (os error 2)"
    );
    let said = failing(files::read(["/"]));
    assert!(said.contains("/: Is a directory"), "{said}");
}

fn write_numbers(path: &Path, count: u64, framing: Framing) -> Flow {
    let flow = Flow::new("write");
    let sink = codec::encode(files::write(path).framing(framing), codec::display::<u64>);
    flow.source("n", items(0..count))
        .key_by(|n| *n)
        .stateful("state", |_| (), |(), _, n| [n])
        .values()
        .sink("out", sink);
    flow
}

#[test]
fn written_frames_are_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    for framing in [Framing::Lines, Framing::U16] {
        for (workers, count) in [(1, 20_000), (3, 20_000), (3, 7), (1, 0)] {
            // The file is created anew: nothing of a longer run remains.
            run(&write_numbers(&path, count, framing.clone()), workers).unwrap();
            let read = read_lines(files::read([&path]).framing(framing.clone()), 1);
            let mut numbers: Vec<u64> = read.iter().map(|line| line.parse().unwrap()).collect();
            if workers > 1 {
                numbers.sort_unstable();
            }
            assert!(
                numbers.into_iter().eq(0..count),
                "{workers} workers, {count}"
            );
        }
    }
}

#[test]
fn a_second_run_replaces_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let flow = write_numbers(&path, 100, Framing::Lines);
    for workers in [3, 1, 2] {
        run(&flow, workers).unwrap();
        assert_eq!(read_lines(files::read([&path]), 1).len(), 100);
    }
}

#[test]
fn a_worker_without_input_does_not_damage_the_file() {
    // No exchange: one worker does all the work, and may end before the others have begun.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let flow = Flow::new("direct");
    let sink = codec::encode(files::write(&path), codec::display::<u64>);
    flow.source("n", items(0..3u64)).sink("out", sink);
    for _ in 0..30 {
        run(&flow, 3).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "0\n1\n2\n");
    }
}

#[test]
fn a_file_that_cannot_be_created_or_written_is_named() {
    let text = failure(
        &write_numbers(Path::new("/dev/null/out"), 1, Framing::Lines),
        2,
    );
    assert_eq!(
        text,
        "sink \"out\" (file /dev/null/out, lines): /dev/null/out: Not a directory (os error 20)"
    );
    let text = failure(&write_numbers(Path::new("/dev/full"), 1, Framing::Lines), 1);
    assert_eq!(
        text,
        "step \"out\": /dev/full: No space left on device (os error 28)"
    );
}

#[test]
fn an_item_with_a_line_end_is_not_written_as_a_line() {
    let dir = tempfile::tempdir().unwrap();
    let flow = Flow::new("lines");
    let sink = files::write(dir.path().join("out"));
    flow.source("in", items(["two\nlines".to_owned()]))
        .sink("out", codec::encode(sink, codec::display::<String>));
    assert_eq!(
        failure(&flow, 1),
        "step \"out\": a frame with a line end at byte 3 cannot be written as a line"
    );
}
