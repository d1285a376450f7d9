//! A flow that is killed after its last commit, before its sinks and sources were notified of it: the next
//! start notifies them, and does nothing else.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_flow::checkpoint::{Crash, Saved};
use millstream_flow::control::Control;
use millstream_flow::durable::recorded_input_dir;
use millstream_flow::error::Cause;
use millstream_flow::sink::{Sink, Token, Transactional, Writer};
use millstream_flow::testing::{Collected, items};
use millstream_flow::{Emit, Flow, FlowError, Recovery, SourceExt, codec, journals};
use millstream_journal::{CursorMode, Journal, Options as Opening};

use crate::recovery::run;

/// A table whose rows are visible once their epoch is committed, as in a database.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<Rows>>);

#[derive(Default)]
struct Rows {
    prepared: BTreeMap<String, Vec<String>>,
    visible: Vec<String>,
}

impl Rows {
    fn publish(&mut self, tokens: &[Token]) {
        for token in tokens {
            let rows = self.prepared.remove(&*String::from_utf8_lossy(token));
            self.visible.extend(rows.unwrap_or_default());
        }
    }
}

impl Sink<Vec<String>> for Table {
    fn describe(&self) -> String {
        "a table".to_owned()
    }
    fn open(&self, worker: usize, _: &Arc<Control>) -> Result<Box<dyn Writer<Vec<String>>>, Cause> {
        Ok(Box::new(TableWriter {
            table: self.clone(),
            worker,
            rows: Vec::new(),
        }))
    }
    fn transactional(&self) -> Option<&dyn Transactional> {
        Some(self)
    }
}

impl Transactional for Table {
    fn resume(&self, tokens: &[Token]) -> Result<Option<Token>, Cause> {
        let mut rows = self.0.lock().expect("nobody panicked");
        rows.publish(tokens);
        rows.prepared.clear();
        Ok(None)
    }
    fn commit(&self, _: u64, tokens: &[Token]) -> Result<(), Cause> {
        self.0.lock().expect("nobody panicked").publish(tokens);
        Ok(())
    }
}

struct TableWriter {
    table: Table,
    worker: usize,
    rows: Vec<String>,
}

impl Writer<Vec<String>> for TableWriter {
    fn write_batch(&mut self, batch: &mut Vec<String>) -> Result<(), Cause> {
        self.rows.append(batch);
        Ok(())
    }
    fn flush(&mut self) -> Result<(), Cause> {
        Ok(())
    }
    fn prepare(&mut self, epoch: u64) -> Result<Option<Token>, Cause> {
        let token = format!("{} {epoch}", self.worker);
        let rows = std::mem::take(&mut self.rows);
        let mut table = self.table.0.lock().expect("nobody panicked");
        table.prepared.insert(token.clone(), rows);
        Ok(Some(token.into_bytes()))
    }
}

/// Runs a flow with all its input in one commit, the last, and a crash around it.
fn crash(flow: &Flow, workers: usize, state: &Path, at: fn(u64) -> Crash) {
    let recovery = Recovery::new(state).epoch(Duration::from_secs(3600));
    let crashed = run(flow, workers, recovery.crash(at(1)));
    assert!(matches!(crashed, Err(FlowError::Crashed(_))), "{crashed:?}");
}

fn start_again(flow: &Flow, workers: usize, state: &Path) {
    run(flow, workers, Recovery::new(state)).expect("it has ended");
    let saved = Saved::open(state).expect("it has kept its state");
    let commit = saved.commit().expect("it has committed");
    assert!(commit.finished && !commit.notify_pending);
}

#[test]
fn a_sink_with_two_phases_publishes_its_last_epoch() {
    let expected: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    for workers in [1, 2] {
        for at in Crash::MOMENTS {
            let state = tempfile::tempdir().expect("a folder");
            let table = Table::default();
            let flow = Flow::new("rows");
            flow.source("in", items(0..40))
                .key_by(|n| *n)
                .count(Emit::End)
                .items()
                .map(|(n, _)| n.to_string())
                .sink("table", table.clone());
            crash(&flow, workers, state.path(), at);
            start_again(&flow, workers, state.path());
            let rows = || table.0.lock().expect("nobody panicked");
            let mut visible = rows().visible.clone();
            visible.sort_by_key(|row| row.parse::<u64>().ok());
            assert_eq!(visible, expected, "{}", at(1));
            // Rows that were shown are not shown again, and without new input the end is not emitted again.
            start_again(&flow, workers, state.path());
            assert_eq!(rows().visible.len(), expected.len());
        }
    }
}

fn cursor(path: &Path, name: &str) -> u64 {
    let journal = Journal::open(path, Opening::default()).expect("it is there");
    let cursor = journal.cursor(name, CursorMode::Exclusive);
    cursor
        .and_then(|cursor| cursor.position())
        .expect("it is a cursor")
}

#[test]
fn the_cursor_of_a_journal_reaches_its_end() {
    for at in Crash::MOMENTS {
        let folder = tempfile::tempdir().expect("a folder");
        let input = folder.path().join("in");
        let state = folder.path().join("state");
        let journal = Journal::open(&input, Opening::default()).expect("it is made");
        let numbers = (0..3000u64).map(|n| n.to_string());
        journal
            .writer()
            .and_then(|writer| writer.append_many(numbers))
            .expect("it is appended");
        let flow = Flow::new("read");
        let out = Collected::new();
        let source = journals::read(&input).cursor("reader");
        flow.source("in", codec::decode(source, codec::text))
            .sink("out", out.sink());
        crash(&flow, 1, &state, at);
        let crashed_at = cursor(&input, "reader");
        assert_eq!(crashed_at, if at(1) == Crash::After(1) { 3000 } else { 0 });
        start_again(&flow, 1, &state);
        assert_eq!(cursor(&input, "reader"), 3000, "{}", at(1));
        assert_eq!(out.take().len(), 3000);
    }
}

#[test]
fn the_recorded_input_of_a_durable_source_is_removed() {
    for at in Crash::MOMENTS {
        let state = tempfile::tempdir().expect("a folder");
        let flow = Flow::new("read");
        let out = Collected::new();
        let numbers = items((0..200u64).map(|n| n.to_string()));
        flow.source("in", numbers.durable()).sink("out", out.sink());
        crash(&flow, 1, state.path(), at);
        start_again(&flow, 1, state.path());
        let recorded = recorded_input_dir(state.path(), "in");
        let journal = Journal::open(&recorded, Opening::default()).expect("it is there");
        let next = journal.next().expect("it is sound");
        assert!(next > 20);
        drop(journal);
        // All records are removed but that of its end, from which it resumes.
        assert_eq!(cursor(&recorded, "needed"), next - 1, "{}", at(1));
        assert_eq!(out.take().len(), 200);
    }
}
