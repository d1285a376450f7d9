//! Files of a directory that were read and have since grown, or were renamed, removed, shortened or replaced.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::source::Source;
use millstream_flow::testing::Collected;
use millstream_flow::{Flow, FlowError, Recovery, codec, csv, directory, files};

use crate::recovery::{lines, run};
use crate::support::Random;

/// A directory, and a flow that copies its lines.
struct Copied {
    folder: tempfile::TempDir,
    partitions: usize,
}

impl Copied {
    fn new(partitions: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        Copied { folder, partitions }
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("in").join(name)
    }
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }
    /// Writes another file, and moves it to the name.
    fn replace(&self, name: &str, text: &str) {
        let next = self.path(".next");
        std::fs::write(&next, text).unwrap();
        std::fs::rename(next, self.path(name)).unwrap();
    }
    fn append(&self, name: &str, text: &str) {
        let path = self.path(name);
        let opened = OpenOptions::new().append(true).create(true).open(path);
        let mut file = opened.unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }
    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }
    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }
    fn run_as(&self, recovery: Recovery) -> Result<(), FlowError> {
        let flow = Flow::new("copy");
        let source = directory::frames(self.folder.path().join("in"), "*");
        let source = codec::decode(source.partitions(self.partitions), codec::text);
        let sink = codec::encode(files::write(self.out()), codec::display::<String>);
        flow.source("in", source).sink("out", sink);
        run(&flow, 1, recovery)
    }
    /// Runs to the end, and returns all lines so far.
    fn run(&self) -> Vec<String> {
        self.run_as(Recovery::new(self.state())).unwrap();
        lines(&self.out())
    }
    fn refused(&self) -> String {
        let outcome = self.run_as(Recovery::new(self.state()));
        format!("{:?}", outcome.unwrap_err())
    }
}

#[test]
fn new_and_grown_files_are_read_by_each_run_despite_kills() {
    for seed in 0..6 {
        let copied = Copied::new(1 + seed as usize % 3);
        let mut random = Random::new(seed);
        let mut due = Vec::new();
        let mut crashes = 0;
        for round in 0..4 {
            for _ in 0..5 {
                let name = format!("{}.log", random.below(12));
                let written = (0..random.below(3000)).map(|n| format!("{name} {round} {n}"));
                let written: Vec<String> = written.collect();
                copied.append(
                    &name,
                    &written
                        .iter()
                        .map(|line| format!("{line}\n"))
                        .collect::<String>(),
                );
                due.extend(written);
            }
            loop {
                let crash = Crash::MOMENTS[random.below(3) as usize](1 + random.below(4) as u64);
                let recovery = Recovery::new(copied.state()).epoch(Duration::ZERO);
                match copied.run_as(recovery.sync(false).crash(crash)) {
                    Err(FlowError::Crashed(_)) => crashes += 1,
                    ended => break ended.unwrap(),
                }
            }
            // If the crash was after the last commit, the files of this round were read before it.
            let mut found = copied.run();
            found.sort();
            due.sort();
            assert!(
                found == due,
                "seed {seed}, round {round}: {} of {}",
                found.len(),
                due.len()
            );
        }
        assert!(crashes > 0, "seed {seed}");
    }
}

#[test]
fn a_last_line_may_get_a_line_end_later_and_may_not_grow() {
    let copied = Copied::new(1);
    copied.write("a", "a1");
    assert_eq!(copied.run(), ["a1"]);
    copied.append("a", "\n");
    assert_eq!(copied.run(), ["a1"]);
    copied.append("a", "a2");
    assert_eq!(copied.run(), ["a1", "a2"]);
    copied.append("a", "\r\na3");
    assert_eq!(copied.run(), ["a1", "a2", "a3"]);
    copied.append("a", "3\n");
    let said = copied.refused();
    assert!(
        said.contains("in/a: the line before byte 9 was read without its end"),
        "{said}"
    );
}

#[test]
fn a_file_is_identified_by_its_name() {
    let copied = Copied::new(1);
    copied.write("a", "a1\na2\n");
    assert_eq!(copied.run().len(), 2);
    // A new name is a new file.
    std::fs::rename(copied.path("a"), copied.path("b")).unwrap();
    assert_eq!(copied.run(), ["a1", "a2", "a1", "a2"]);
    // A file that reappears is the one that was read, and so is one that was rewritten with more at its end.
    copied.write("a", "a1\na2\n");
    assert_eq!(copied.run().len(), 4);
    copied.replace("a", "a1\na2\na3\n");
    assert_eq!(copied.run()[4..], ["a3"]);
    std::fs::remove_file(copied.path("a")).unwrap();
    std::fs::remove_file(copied.path("b")).unwrap();
    assert_eq!(copied.run().len(), 5);
}

#[test]
fn another_file_under_a_read_name_is_an_error() {
    for other in ["b1\nb2\n", "b1\nb2\nb3\n"] {
        let copied = Copied::new(1);
        copied.write("a", "a1\na2\n");
        copied.write("z", "z1\n");
        copied.run();
        copied.replace("a", other);
        let said = copied.refused();
        assert!(
            said.contains(
                "in/a: its first 6 bytes are not those of the file that was read under this name"
            ),
            "{said}"
        );
        // It is accepted under a name of its own.
        std::fs::rename(copied.path("a"), copied.path("c")).unwrap();
        let read: Vec<_> = other.lines().collect();
        assert_eq!(copied.run()[3..], read);
    }
    let copied = Copied::new(1);
    copied.write("a", "a1\na2\n");
    copied.run();
    copied.write("a", "a1\n");
    let said = copied.refused();
    assert!(
        said.contains("in/a: it has 3 bytes, fewer than the 6"),
        "{said}"
    );
}

/// A run that dies while it reads `a`, with a first part of it committed.
fn dies_within(copied: &Copied) {
    copied.write("a", &"a line of some length\n".repeat(90_000));
    let recovery = Recovery::new(copied.state()).epoch(Duration::ZERO);
    let died = copied.run_as(recovery.crash(Crash::After(3)));
    assert!(matches!(died, Err(FlowError::Crashed(_))), "{died:?}");
    let list = std::fs::read_to_string(copied.state().join("files/in")).unwrap();
    let last = list.lines().last().unwrap();
    assert!(!last.contains(" end "), "it had read all: {list}");
}

#[test]
fn a_file_that_was_being_read_is_the_same_after_a_crash() {
    let copied = Copied::new(1);
    dies_within(&copied);
    copied.append("a", "one more\n");
    assert_eq!(copied.run().len(), 90_001);

    let copied = Copied::new(1);
    dies_within(&copied);
    copied.replace("a", "a\n");
    let said = copied.refused();
    assert!(
        said.contains("in/a: its first 4096 bytes are not"),
        "{said}"
    );

    let copied = Copied::new(1);
    dies_within(&copied);
    let file = OpenOptions::new()
        .write(true)
        .open(copied.path("a"))
        .unwrap();
    file.set_len(4400).unwrap();
    let said = copied.refused();
    assert!(
        said.contains("in/a: it has 4400 bytes, fewer than the"),
        "{said}"
    );

    let copied = Copied::new(1);
    dies_within(&copied);
    std::fs::remove_file(copied.path("a")).unwrap();
    let said = copied.refused();
    assert!(said.contains("in/a: No such file"), "{said}");
}

#[test]
fn a_list_of_another_version_is_an_error() {
    let copied = Copied::new(1);
    copied.write("a", "a 1\n");
    copied.run();
    let list = copied.state().join("files/in");
    std::fs::write(&list, "millstream directory 2 1\n").unwrap();
    let said = copied.refused();
    assert!(
        said.contains("files/in: version 2, this program reads 1"),
        "{said}"
    );
}

/// Reads the first fields of CSV rows twice: unchanged, and with `more` appended.
fn rows_twice(source: &str, first: &str, more: &str) -> Result<Vec<String>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    std::fs::write(&path, first).unwrap();
    let out = Collected::new();
    let run_once = || {
        let flow = Flow::new("rows");
        let field = |row: csv::Row<'_>| row.text(0).map(str::to_owned);
        let rows: Box<dyn Source<Vec<String>>> = match source {
            "file" => Box::new(csv::read([&path]).header(csv::Header::None).decode(field)),
            _ => Box::new(
                directory::rows(folder.path(), "*.csv")
                    .header(csv::Header::None)
                    .decode(field),
            ),
        };
        flow.source("in", rows).sink("out", out.sink());
        run(&flow, 1, Recovery::new(folder.path().join("state")))
    };
    run_once().map_err(|error| format!("{error:?}"))?;
    match more {
        "cut" => std::fs::write(&path, &first[..first.len() / 2]).unwrap(),
        more => std::fs::write(&path, format!("{first}{more}")).unwrap(),
    }
    run_once().map_err(|error| format!("{error:?}"))?;
    Ok(out.take())
}

#[test]
fn rows_resume_at_their_end() {
    for source in ["file", "directory"] {
        let read = |first, more| rows_twice(source, first, more);
        for (first, more) in [
            ("a,1\n", "b,2\n"),
            ("a,1", "\nb,2"),
            ("a,1", "\r\nb,2"),
            ("a,1\r", "b,2\r"),
            ("a,1\r\n", "b,2"),
            ("\u{feff}a,1", "\nb,2"),
        ] {
            assert_eq!(read(first, more).unwrap(), ["a", "b"], "{first:?} {more:?}");
        }
        assert_eq!(read("\u{feff}", "a,1\n").unwrap(), ["a"]);
        assert_eq!(read("", "a,1\n").unwrap(), ["a"]);
        let said = read("a,1", "2\nb,3\n").unwrap_err();
        assert!(said.contains("rows.csv: the line before byte 3"), "{said}");
        let said = read("a,1\nb,2\n", "cut").unwrap_err();
        assert!(
            said.contains("rows.csv: it has 4 bytes, fewer than the 8"),
            "{said}"
        );
    }
}
