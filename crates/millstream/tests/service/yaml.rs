//! Tests as data: compared, rewritten with their comments, agitated.

use std::fs;
use std::path::Path;

use millstream::service::Clock;
use millstream::service::testing::{Mode, Outcome, TestError, check, make};
use millstream::wire::{Call, Cause, Interface, Publisher, Recorder, Schema};

use crate::desk::{Desk, Orders, Replies};

fn schemas() -> (Vec<Schema>, Vec<Schema>) {
    let (orders, replies) = (
        <dyn Orders as Interface>::schema(),
        <dyn Replies as Interface>::schema(),
    );
    (vec![orders.unwrap()], vec![replies.unwrap()])
}

fn run(setup: &[Call], input: &[Call]) -> Result<Vec<Call>, Cause> {
    let (recorder, clock) = (Recorder::default(), Clock::of_test());
    let replies = Publisher::<dyn Replies, _>::new(recorder.clone())?;
    let mut desk = Desk::new(replies, clock.clone());
    let mut call = |call: &Call| make::<dyn Orders, _>(&mut desk, &clock, call);
    setup.iter().try_for_each(&mut call)?;
    recorder.take();
    input.iter().try_for_each(&mut call)?;
    Ok(recorder.take())
}

fn test(folder: &Path, mode: Mode) -> Result<Outcome, TestError> {
    let (inputs, outputs) = schemas();
    check(folder, &inputs, &outputs, mode, run)
}

const UPDATE: Mode = Mode {
    update: true,
    agitate: false,
};

#[test]
fn a_difference_is_shown_and_taken_over_with_the_comments() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(
        path("setup.yaml"),
        "place: {id: 1, symbol: A, quantity: 9000}\n",
    )
    .unwrap();
    fs::write(
        path("in.yaml"),
        "place: {id: 2, symbol: A, quantity: 500}\n---\nat: 1970-01-01T00:00:00.000000007Z\nplace: {id: 3, symbol: B, quantity: 600}\n",
    )
    .unwrap();
    let old = "# What the desk says.\naccepted: {id: 2, total: 9500} # below the limit\n---\nrejected:\n  id: 3\n  # why\n  reason: size\n  at: 7\n";
    fs::write(path("out.yaml"), old).unwrap();

    let outcome = test(folder.path(), Mode::default()).unwrap();
    assert_eq!((outcome.passed, outcome.failed.len()), (0, 1));
    let (file, difference) = &outcome.failed[0];
    assert_eq!(*file, path("out.yaml"));
    assert!(
        difference.contains("-  reason: size\n+  reason: limit\n"),
        "{difference}"
    );

    let outcome = test(folder.path(), UPDATE).unwrap();
    assert_eq!(outcome.updated, [path("out.yaml")]);
    let new = fs::read_to_string(path("out.yaml")).unwrap();
    assert_eq!(new, old.replace("size", "limit"));
    assert_eq!(test(folder.path(), Mode::default()).unwrap().passed, 1);
}

#[test]
fn variants_have_files_of_their_own_where_they_differ() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.yaml");
    fs::write(
        &file,
        "place: {id: 6, symbol: A, quantity: 5}\n---\nplace: {id: 7, symbol: B, quantity: 6}\n",
    )
    .unwrap();
    let agitate = Mode {
        update: true,
        agitate: true,
    };
    let outcome = test(folder.path(), agitate).unwrap();
    // An order without a symbol is an error of the desk, and so of the test.
    assert_eq!(outcome.failed.len(), 1);
    assert!(
        outcome.failed[0].1.contains("an order without a symbol"),
        "{:?}",
        outcome.failed
    );
    let mut names: Vec<_> = fs::read_dir(folder.path().join("agitated"))
        .unwrap()
        .map(|file| file.unwrap().file_name())
        .collect();
    names.sort();
    // Order 6 has no reply, so that it makes no difference in which place it comes or what quantity it has after.
    assert!(
        names.contains(&"missing-2.yaml".into()) && names.contains(&"doubled-2.yaml".into()),
        "{names:?}"
    );
    let again = test(
        folder.path(),
        Mode {
            update: false,
            agitate: true,
        },
    )
    .unwrap();
    assert_eq!((again.failed.len(), again.updated.len()), (1, 0));
}

#[test]
fn a_bad_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.yaml");
    let error = test(folder.path(), UPDATE).unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{}: No such file", file.display())),
        "{error}"
    );
    fs::write(
        &file,
        "place: {id: 1, symbol: A, quantity: 5}\n---\nplace: {id: 1, symbol: A, quantity: many}\n",
    )
    .unwrap();
    let error = test(folder.path(), UPDATE).unwrap_err().to_string();
    let expected = format!(
        "{}: line 3: place.order.quantity: expected u32, found \"many\"",
        file.display()
    );
    assert_eq!(error, expected);
}
