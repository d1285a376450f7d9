//! Files that are compressed with gzip or zstd.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use millstream_flow::testing::{Collected, items};
use millstream_flow::{Compression, Flow, FlowError, Recovery, codec, csv, directory, files};

use super::support::{Random, failure, run};
use crate::recovery::{self, crash_everywhere};

const ENDINGS: [&str; 2] = ["gz", "zst"];

/// Compresses each part as a member or frame of its own.
fn compress(ending: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        if ending == "gz" {
            let mut encoder = flate2::write::GzEncoder::new(&mut out, flate2::Compression::fast());
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap();
        } else {
            let mut encoder = zstd::Encoder::new(&mut out, 3).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(part).unwrap();
            encoder.finish().unwrap();
        }
    }
    out
}

/// Decompresses a file that ends with the end of a member.
fn decompress(path: &Path) -> String {
    let file = std::io::BufReader::new(std::fs::File::open(path).unwrap());
    let mut text = String::new();
    if path.extension().unwrap() == "gz" {
        flate2::bufread::MultiGzDecoder::new(file).read_to_string(&mut text)
    } else {
        zstd::Decoder::new(file).unwrap().read_to_string(&mut text)
    }
    .unwrap();
    text
}

fn words(seed: u64, count: usize) -> Vec<String> {
    let mut random = Random::new(seed);
    let word = |n| format!("{n} {}", "x".repeat(random.below(60) as usize));
    (0..count).map(word).collect()
}

fn read(source: files::ReadFiles) -> Result<Vec<String>, String> {
    let flow = Flow::new("read");
    let seen = Collected::<String>::new();
    flow.source("in", codec::decode(source, codec::text))
        .sink("out", seen.sink());
    run(&flow, 1).map_err(|error| format!("{error:?}"))?;
    Ok(seen.take())
}

#[test]
fn members_are_read_as_one_text_from_any_position() {
    let dir = tempfile::tempdir().unwrap();
    let lines = words(1, 5000);
    let text = lines.join("\n");
    for ending in ENDINGS {
        let path = dir.path().join(format!("lines.{ending}"));
        // The members end within lines.
        let (first, rest) = text.as_bytes().split_at(100_001);
        let (second, third) = rest.split_at(7);
        let bytes = compress(ending, &[first, second, b"", third]);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(read(files::read([&path])).unwrap(), lines);
        let position = lines[..4000].iter().map(|line| line.len() as u64 + 1).sum();
        let from = files::read([&path]).from_position(position);
        assert_eq!(read(from).unwrap(), lines[4000..]);
        // The name does not matter if the compression is given.
        let other = dir.path().join("other");
        std::fs::write(&other, &bytes).unwrap();
        let compression = match ending {
            "gz" => Compression::Gzip,
            _ => Compression::Zstd,
        };
        let given = files::read([&other]).compression(compression);
        assert_eq!(read(given).unwrap(), lines);
        let raw = files::read([&path]).compression(Compression::Uncompressed);
        assert!(read(raw).is_err_and(|error| error.contains("utf-8")));
        std::fs::write(&path, b"").unwrap();
        assert_eq!(read(files::read([&path])).unwrap(), [""; 0]);
    }
}

#[test]
fn a_file_that_is_truncated_or_damaged_is_an_error_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let lines = words(2, 20);
    let text = lines.join("\n");
    for ending in ENDINGS {
        let path = dir.path().join(format!("damaged.{ending}"));
        let whole = compress(ending, &[text.as_bytes()]);
        for length in 1..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let error = read(files::read([&path])).unwrap_err();
            let named = error.contains(&path.display().to_string());
            assert!(
                named && error.contains("is it complete?"),
                "{length}: {error}"
            );
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            match read(files::read([&path])) {
                // The time and the operating system in the head of gzip are not checked.
                Ok(read) => assert!(read == lines, "byte {at}"),
                Err(error) => {
                    assert!(error.contains(&path.display().to_string()), "{error}");
                }
            }
        }
        let mut trailing = whole.clone();
        trailing.extend_from_slice(b"something else");
        std::fs::write(&path, &trailing).unwrap();
        let error = read(files::read([&path])).unwrap_err();
        assert!(error.contains("is damaged at or before byte"), "{error}");
    }
}

#[test]
fn a_line_without_end_is_refused_before_it_fills_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    for ending in ENDINGS {
        let path = dir.path().join(format!("bomb.{ending}"));
        std::fs::write(&path, compress(ending, &[&vec![b'x'; 8 << 20]])).unwrap();
        let error = read(files::read([&path])).unwrap_err();
        assert!(error.contains("1048576"), "{error}");
    }
}

#[test]
fn errors_in_rows_name_the_line_of_the_contents() {
    let dir = tempfile::tempdir().unwrap();
    for ending in ENDINGS {
        let path = dir.path().join(format!("rows.csv.{ending}"));
        let parts: [&[u8]; 2] = [b"name,price\ntea,3\nmi", b"lk,free\n"];
        std::fs::write(&path, compress(ending, &parts)).unwrap();
        let flow = Flow::new("rows");
        let source = csv::read([&path]).decode(|row| row.parse::<u32>("price"));
        flow.source("in", source)
            .sink("out", Collected::<u32>::new().sink());
        let error = failure(&flow, 1);
        assert!(
            error.contains("line 3, column 6: the field price"),
            "{error}"
        );
    }
}

/// Copies the lines of a directory to a file.
fn copy(from: &Path, to: &Path) -> Flow {
    let flow = Flow::new("copy");
    let source = codec::decode(directory::frames(from, "*"), codec::text);
    let sink = codec::encode(files::write(to), codec::display::<String>);
    flow.source("in", source).sink("out", sink);
    flow
}

#[test]
fn a_crash_at_every_commit_changes_no_line() {
    for ending in ENDINGS {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("in");
        std::fs::create_dir(&from).unwrap();
        let mut due = Vec::new();
        for n in 0..3 {
            let lines = words(n, 4000);
            let text = format!("{}\n", lines.join("\n"));
            let (first, second) = text.as_bytes().split_at(50_000);
            let path = from.join(format!("{n}.{ending}"));
            std::fs::write(path, compress(ending, &[first, second])).unwrap();
            due.extend(lines);
        }
        for commits in [1, 2] {
            let to = dir.path().join(format!("out{commits}.{ending}"));
            let state = dir.path().join(format!("state{commits}"));
            let crashes = crash_everywhere(&copy(&from, &to), &state, commits, || 1);
            assert!(crashes > 3, "{crashes}");
            assert!(decompress(&to).lines().eq(&due), "{ending}, {commits}");
        }
    }
}

#[test]
fn what_is_written_is_read_by_others_after_each_commit() {
    for ending in ENDINGS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(format!("rows.csv.{ending}"));
        let flow = Flow::new("write");
        let sink = codec::encode(csv::write(&path, &["n"]), |n: &u32, out: &mut Vec<u8>| {
            csv::append_row([n.to_string()], out);
        });
        flow.source("in", items((0..5000).collect::<Vec<u32>>()))
            .sink("out", sink);
        let state = dir.path().join("state");
        let mut last = 0;
        loop {
            let recovery = Recovery::new(&state).epoch(std::time::Duration::ZERO);
            match recovery::run(&flow, 1, recovery.sync(false).crash_after(2)) {
                Err(FlowError::Crashed(_)) => {}
                ended => break ended.unwrap(),
            }
            let size = std::fs::metadata(&path).unwrap().len();
            assert!(size >= last, "a commit was truncated");
            last = size;
        }
        let text = decompress(&path);
        let due = (0..5000).map(|n| n.to_string());
        assert!(text.lines().skip(1).eq(due), "{text}");
        assert!(text.starts_with("n\n"));
    }
}

#[test]
fn members_that_are_appended_are_read_and_other_changes_refused() {
    for ending in ENDINGS {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("in");
        let to = dir.path().join("out");
        std::fs::create_dir(&from).unwrap();
        let path: PathBuf = from.join(format!("a.{ending}"));
        let state = dir.path().join("state");
        let run = || {
            recovery::run(&copy(&from, &to), 1, Recovery::new(&state))
                .map(|()| std::fs::read_to_string(&to).unwrap())
                .map_err(|error| format!("{error:?}"))
        };
        let first = compress(ending, &[b"one\ntwo\n"]);
        let both = [first.clone(), compress(ending, &[b"three\n"])].concat();
        std::fs::write(&path, &first).unwrap();
        assert_eq!(run().unwrap(), "one\ntwo\n");
        assert_eq!(run().unwrap(), "one\ntwo\n");
        std::fs::write(&path, &both[..both.len() - 1]).unwrap();
        assert!(run().unwrap_err().contains("is it complete?"));
        std::fs::write(&path, &both).unwrap();
        assert_eq!(run().unwrap(), "one\ntwo\nthree\n");
        std::fs::write(&path, &first).unwrap();
        let error = run().unwrap_err();
        assert!(
            error.contains("a new file needs a name of its own"),
            "{error}"
        );
        std::fs::write(&path, compress(ending, &[&[b'x'; 5000], b"\n"])).unwrap();
        let error = run().unwrap_err();
        assert!(
            error.contains("a new file needs a name of its own"),
            "{error}"
        );
    }
}
