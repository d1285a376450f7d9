//! Tests as data: compared, rewritten with their comments, agitated.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_service::Clock;
use millstream_service::testing::{Mode, Outcome, TestError, check, make};
use millstream_wire::{Call, Cause, Interface, Publisher, Recorder, Schema};

use crate::desk::{Desk, Orders, Replies};

fn schemas() -> (Vec<Schema>, Vec<Schema>) {
    let orders = <dyn Orders as Interface>::schema();
    let replies = <dyn Replies as Interface>::schema();
    (vec![orders.unwrap()], vec![replies.unwrap()])
}

fn run(setup: &[Call], input: &[Call]) -> Result<Vec<Call>, Cause> {
    let recorder = Recorder::default();
    let clock = Clock::of_test();
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
    // An order without a symbol is an error of the desk, and so of the test: it has no file.
    let failed = |outcome: &Outcome| -> Vec<String> {
        let failed = outcome.failed.iter();
        failed
            .map(|(path, failure)| {
                assert!(failure.contains("an order without a symbol"), "{failure}");
                path.file_stem().unwrap().to_str().unwrap().to_owned()
            })
            .collect()
    };
    let without_symbol = [
        "empty-place-order-symbol",
        "empty-place",
        "empty-place-2",
        "empty-place-order-symbol-2",
    ];
    assert_eq!(failed(&outcome), without_symbol);
    let mut names: Vec<_> = fs::read_dir(folder.path().join("agitated"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    // Order 6 has no reply, but its quantity is part of the total that the reply to order 7 has. A long symbol makes no
    // difference.
    let expected = [
        "doubled-1.yaml",
        "doubled-2.yaml",
        "empty-place-order-id-2.yaml",
        "empty-place-order-id.yaml",
        "empty-place-order-quantity-2.yaml",
        "empty-place-order-quantity.yaml",
        "largest-place-2.yaml",
        "largest-place-order-id-2.yaml",
        "largest-place-order-id.yaml",
        "largest-place-order-quantity-2.yaml",
        "largest-place-order-quantity.yaml",
        "largest-place.yaml",
        "missing-1.yaml",
        "missing-2.yaml",
        "swapped-1.yaml",
    ];
    assert_eq!(names, expected);
    assert_eq!(outcome.updated.len(), 1 + expected.len()); // `out.yaml` too
    assert_eq!(outcome.passed, 2); // `long-place-order-symbol` and the same with `-2`
    let again = test(
        folder.path(),
        Mode {
            update: false,
            agitate: true,
        },
    )
    .unwrap();
    assert_eq!(failed(&again), without_symbol);
    assert_eq!(again.updated, [] as [PathBuf; 0]);
    assert_eq!(again.passed, 1 + expected.len() + 2);
}

#[test]
fn a_bad_file_is_named_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("in.yaml");
    let error = format!("{:?}", test(folder.path(), UPDATE).unwrap_err());
    assert!(
        error.starts_with(&format!(
            "{}: cannot be read or written: No such file",
            file.display()
        )),
        "{error}"
    );
    fs::write(
        &file,
        "place: {id: 1, symbol: A, quantity: 5}\n---\nplace: {id: 1, symbol: A, quantity: many}\n",
    )
    .unwrap();
    let error = format!("{:?}", test(folder.path(), UPDATE).unwrap_err());
    let expected = format!(
        "{}: does not hold calls of the interface: line 3: place.order.quantity: expected u32, found \"many\"",
        file.display()
    );
    assert_eq!(error, expected);
}
