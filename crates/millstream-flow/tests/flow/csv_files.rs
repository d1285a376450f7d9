//! CSV files as sources and sinks.

use std::path::Path;
use std::time::Duration;

use millstream_flow::checkpoint::Crash;
use millstream_flow::csv::{self, Dialect, Header, ReadCsv, Row};
use millstream_flow::error::Cause;
use millstream_flow::testing::Collected;
use millstream_flow::{Flow, FlowError, OnError, Recovery, codec, files};

use super::support::{Random, failure, run};
use crate::recovery::run as run_saving;

fn fields(row: Row<'_>) -> Result<Vec<String>, Cause> {
    let field = |index| row.text(index).map(str::to_owned);
    (0..row.len()).map(field).collect()
}

fn read(source: ReadCsv, workers: usize) -> Vec<Vec<String>> {
    let flow = Flow::new("csv");
    let seen = Collected::new();
    flow.source("in", source.decode(fields))
        .sink("out", seen.sink());
    run(&flow, workers).unwrap();
    seen.take()
}

fn failing(source: ReadCsv) -> String {
    let flow = Flow::new("csv");
    let seen = Collected::<Vec<String>>::new();
    flow.source("in", source.decode(fields))
        .sink("out", seen.sink());
    failure(&flow, 1)
}

fn bare(path: &Path) -> ReadCsv {
    csv::read([path]).header(Header::None)
}

#[test]
fn fields_are_read_as_python_reads_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.csv");
    // The second members are the results of `csv.reader(open(path, newline=""))`, without empty lines.
    let cases: [(&str, &[&[&str]]); 14] = [
        ("", &[]),
        ("a,b\nc,d", &[&["a", "b"], &["c", "d"]]),
        ("a,b\r\nc,d\r\n", &[&["a", "b"], &["c", "d"]]),
        ("a\rb\r", &[&["a"], &["b"]]),
        ("\n\na,\n\r\n,\n", &[&["a", ""], &["", ""]]),
        ("\"a,b\",\"c\nd\"\n", &[&["a,b", "c\nd"]]),
        ("\"a\r\nb\"\n", &[&["a\r\nb"]]),
        ("\"say \"\"hi\"\"\",x\n", &[&["say \"hi\"", "x"]]),
        ("a\"b,c\"\n", &[&["a\"b", "c\""]]),
        ("\"a\"b,c\n", &[&["ab", "c"]]),
        (" \"a\",b\n", &[&[" \"a\"", "b"]]),
        ("\"\",\"\"\n", &[&["", ""]]),
        ("\"\"\n", &[&[""]]),
        ("\u{feff}a,b\n", &[&["a", "b"]]),
    ];
    for (text, due) in cases {
        std::fs::write(&path, text).unwrap();
        assert_eq!(read(bare(&path), 1), due, "{text:?}");
    }
    std::fs::write(&path, "a;'b;c';\"d\n").unwrap();
    let dialect = |quote| Dialect {
        delimiter: b';',
        quote,
    };
    assert_eq!(
        read(bare(&path).dialect(dialect(Some(b'\''))), 1),
        [["a", "b;c", "\"d"]]
    );
    assert_eq!(
        read(bare(&path).dialect(dialect(None)), 1),
        [["a", "'b", "c'", "\"d"]]
    );
}

#[test]
fn a_header_is_not_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b", "c"].map(|name| dir.path().join(name));
    std::fs::write(&paths[0], "name,n\nx,1\n").unwrap();
    std::fs::write(&paths[1], "name,n\n").unwrap();
    std::fs::write(&paths[2], "").unwrap();
    assert_eq!(read(csv::read(&paths), 2), [["x", "1"]]);
    let names = Header::Names(vec!["name".into(), "n".into()]);
    assert_eq!(
        read(csv::read([&paths[0]]).header(names), 1),
        [["name", "n"], ["x", "1"]]
    );
}

#[test]
fn errors_name_file_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.csv");
    let said = |text: &[u8], source: ReadCsv| {
        std::fs::write(&path, text).unwrap();
        failing(source).replace(&path.display().to_string(), "FILE")
    };
    let source = || csv::read([&path]);
    let good = "a,b\n\"1\n1\",2\n";
    for (bad, due) in [
        (
            "3\n",
            "FILE, line 4, column 2: the row has 1 fields, the header 2",
        ),
        (
            "ä,4,5\n",
            "FILE, line 4, column 5: the row has 3 fields, the header 2",
        ),
        (
            "3,\"4\n5,6\n",
            "FILE, line 4, column 3: the quote is not closed before the end of the file",
        ),
    ] {
        let found = said(format!("{good}{bad}").as_bytes(), source());
        assert!(found.ends_with(due), "{found}");
    }
    let found = said(b"a,b\n1,2\nx\xffy,\xff\n", source());
    assert!(
        found.ends_with("FILE, line 3, column 1: the field is not UTF-8"),
        "{found}"
    );
    let found = said(b"a,b,a\n", source());
    assert!(
        found.ends_with("FILE, line 1, column 5: two fields have the name \"a\""),
        "{found}"
    );
    let long = format!("a,b\n1,2\n1,\"{}\n", "x,y\n".repeat(1000));
    let found = said(long.as_bytes(), source().max_record(2000));
    let due =
        "FILE, line 3, column 3: the record is longer than 2000 bytes; is a quote not closed?";
    assert!(found.ends_with(due), "{found}");
}

#[test]
fn a_row_that_cannot_be_decoded_is_handled_by_the_policy() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("in.csv");
    std::fs::write(&path, "n\n1\n2,2\nx\n4\n").unwrap();
    let flow = Flow::new("csv");
    let seen = Collected::new();
    let decode = |row: Row<'_>| -> Result<u32, Cause> {
        row.text(0)?
            .parse()
            .map_err(|_| row.wrong(0, "it is no number"))
    };
    let source = csv::read([&path]).decode(decode).on_error(OnError::Skip);
    flow.source("in", source).sink("out", seen.sink());
    let report = run(&flow, 1).unwrap();
    assert_eq!(seen.take(), [1, 4]);
    assert_eq!(report.steps()[0].skipped, 2);
}

/// Rows of all kinds of fields.
fn random_rows(seed: u64, count: usize) -> Vec<Vec<String>> {
    let mut random = Random::new(seed);
    let pieces = ["a", ",", "\"", "\n", "\r\n", " ", "ä", "", "long text "];
    let field = |random: &mut Random| -> String {
        let count = random.below(5);
        (0..count)
            .map(|_| pieces[random.below(pieces.len() as i64) as usize])
            .collect()
    };
    (0..count)
        .map(|n| vec![n.to_string(), field(&mut random), field(&mut random)])
        .collect()
}

#[test]
fn the_bytes_of_a_row_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    // Longer than a buffer, with records across its ends, blank lines, and one that is longer than a buffer.
    let mut file = String::from("\n\r\n");
    for number in 0..30_000 {
        let end = ["\n", "\r\n", "\n\n"][number % 3];
        let long = if number == 20_000 {
            200_000
        } else {
            number % 50
        };
        file += &format!("{number},\"a \"\"{}\n\"{end}", "x".repeat(long));
    }
    std::fs::write(&path, &file).unwrap();
    let raw = |row: Row<'_>| Ok::<_, Cause>((row.offset() as usize, row.raw().to_vec()));
    let flow = Flow::new("raw");
    let out = Collected::new();
    flow.source("rows", bare(&path).decode(raw))
        .sink("out", out.sink());
    run(&flow, 1).unwrap();
    let rows = out.take();
    assert_eq!(rows.len(), 30_000);
    let mut from = 0;
    for (offset, raw) in rows {
        assert!(
            file[from..offset]
                .bytes()
                .all(|byte| b"\r\n".contains(&byte))
        );
        from = offset + raw.len();
        assert_eq!(&file.as_bytes()[offset..from], raw);
    }
}

#[test]
fn a_crash_at_every_commit_does_not_change_the_results() {
    let dir = tempfile::tempdir().unwrap();
    let [input, output, state] = ["in", "out", "state"].map(|name| dir.path().join(name));
    let rows = random_rows(7, 12_000);
    let mut text = b"a,b,c\r\n".to_vec();
    for row in &rows {
        csv::append_row(row, &mut text);
    }
    std::fs::write(&input, &text).unwrap();
    assert_eq!(read(csv::read([&input]), 1), rows);
    let flow = Flow::new("csv");
    let encode = |row: &Vec<String>, out: &mut Vec<u8>| csv::append_row(row, out);
    let sink = codec::encode(csv::write(&output, &["a", "b, too", "c"]), encode);
    flow.source("in", csv::read([&input]).decode(fields))
        .sink("out", sink);
    let mut crashes = 0;
    for attempt in 0.. {
        let recovery = Recovery::new(&state).epoch(Duration::ZERO).sync(false);
        match run_saving(&flow, 1, recovery.crash(Crash::MOMENTS[attempt % 3](2))) {
            Err(FlowError::Crashed(_)) => crashes += 1,
            ended => {
                ended.unwrap();
                break;
            }
        }
    }
    assert!(crashes > 5, "{crashes}");
    let written = std::fs::read_to_string(&output).unwrap();
    assert!(
        written.starts_with("a,\"b, too\",c\n0,"),
        "{}",
        &written[..40]
    );
    assert_eq!(read(csv::read([&output]), 1), rows);
}

#[test]
fn a_sink_of_raw_frames_writes_what_lines_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out");
    let flow = Flow::new("raw");
    let sink = codec::encode(files::write(&path).raw(), codec::display::<String>);
    let items = millstream_flow::testing::items(["a\nb".to_owned(), "\n".to_owned()]);
    flow.source("in", items).sink("out", sink);
    run(&flow, 1).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\nb\n");
}
