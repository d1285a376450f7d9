//! After a crash anywhere the outputs are those of an uninterrupted run.

use millstream_journal::{Journal, Options};
use millstream_service::{OnDifference, Outcome, Service, ServiceError, Settings, publisher};
use millstream_wire::{Call, Cause};

use crate::desk::{Desk, Folder, Limits, Order, Orders, Replies, calls};

/// The outputs without their lineage: its numbers depend on the notes that restarts add.
fn outputs(journal: &Journal) -> Vec<Call> {
    calls(journal).into_iter().map(|(_, call)| call).collect()
}

fn cut(folder: &Folder, name: &str, sequence: u64) {
    let options = Options {
        exclusive: true,
        ..Options::default()
    };
    Journal::open(folder.path(name), options)
        .unwrap()
        .cut(sequence)
        .unwrap();
}

#[test]
fn a_service_resumes_after_its_last_output_wherever_that_is() {
    let whole = Folder::new();
    whole.orders(0..150);
    whole
        .start("replies", Settings::default())
        .unwrap()
        .drain()
        .unwrap();
    let expected = outputs(&whole.journal("replies"));
    let end = whole.journal("replies").next().unwrap();
    for crash in (0..end).step_by(7) {
        // The crash lost only the records after `crash`, which may be one of two replies.
        let folder = Folder::new();
        folder.orders(0..150);
        folder
            .start("replies", Settings::default())
            .unwrap()
            .drain()
            .unwrap();
        cut(&folder, "replies", crash);
        folder
            .start("replies", Settings::default())
            .unwrap()
            .drain()
            .unwrap();
        let found = outputs(&folder.journal("replies"));
        assert!(
            found
                .iter()
                .map(without_time)
                .eq(expected.iter().map(without_time)),
            "cut at {crash}"
        );
    }
}

#[test]
fn without_rebuilding_it_repeats_the_last_input_only_if_its_outputs_may_be_missing() {
    let folder = Folder::new();
    folder.orders(0..9);
    folder
        .start("replies", Settings::default())
        .unwrap()
        .drain()
        .unwrap();
    folder.orders(9..12);
    let settings = Settings {
        rebuild: false,
        ..Settings::default()
    };
    let mut runner = folder.start("replies", settings.clone()).unwrap();
    // The stop has said that the inputs before have had all their effects.
    assert_eq!(runner.report().calls, 0);
    while runner.turn().unwrap() != Outcome::Nothing {}
    drop(runner);
    // This one has not said so. A desk has a state, which is missed here: its totals differ.
    let settings = Settings {
        on_difference: OnDifference::Recorded,
        ..settings
    };
    assert_eq!(folder.start("replies", settings).unwrap().report().calls, 1);
}

/// The two folders were written at different times.
fn without_time(call: &Call) -> Call {
    let mut call = call.clone();
    call.arguments.retain(|(name, _)| name != "at");
    call
}

#[test]
fn several_inputs_are_taken_in_the_recorded_order_again() {
    let folder = Folder::new();
    let start = || {
        let service = Service::new(&folder.journal("replies")).unwrap();
        let desk = Desk::new(service.publisher::<dyn Replies>().unwrap(), service.clock());
        let setup = service
            .component(desk)
            .input::<dyn Limits>(&folder.journal("limits"))
            .unwrap();
        let setup = setup
            .input::<dyn Orders>(&folder.journal("orders"))
            .unwrap();
        setup.start(Settings::default()).unwrap()
    };
    // The limit comes in between, but is written, and so is taken, after all orders that were there.
    folder.orders(0..40);
    start().drain().unwrap();
    publisher::<dyn Limits>(&folder.journal("limits"))
        .unwrap()
        .limit(100);
    start().drain().unwrap();
    folder.orders(40..50);
    start().drain().unwrap();
    let expected = outputs(&folder.journal("replies"));
    assert!(expected.iter().any(|call| call.method == "rejected"));
    for left in (0..expected.len() as u64).rev().step_by(3) {
        cut(&folder, "replies", left);
        start().drain().unwrap();
        assert_eq!(
            outputs(&folder.journal("replies")),
            expected,
            "cut at {left}"
        );
    }
}

/// Answers a different number of times in each life.
struct Fickle<R> {
    replies: R,
    times: u64,
}

impl<R: Replies> Orders for Fickle<R> {
    fn place(&mut self, order: &Order<'_>) -> Result<(), Cause> {
        for time in 0..self.times {
            self.replies.accepted(order.id, time);
        }
        Ok(())
    }
}

#[test]
fn a_component_that_diverges_from_its_output_is_an_error() {
    let folder = Folder::new();
    folder.orders(0..1);
    let start = |times| {
        let service = Service::new(&folder.journal("replies")).unwrap();
        let replies = service.publisher::<dyn Replies>().unwrap();
        let setup = service.component(Fickle { replies, times });
        setup
            .input::<dyn Orders>(&folder.journal("orders"))
            .unwrap()
            .start(Settings::default())
    };
    start(3).unwrap().drain().unwrap();
    let error = start(1).err().unwrap();
    assert!(
        matches!(error, ServiceError::Differs { sequence: 1, .. }),
        "{error}"
    );
}

#[test]
fn pruned_inputs_are_missed() {
    let folder = Folder::new();
    folder.orders(0..20_000);
    folder
        .start("replies", Settings::default())
        .unwrap()
        .drain()
        .unwrap();
    let retention = millstream_journal::Retention {
        bytes: Some(1 << 17),
        ..Default::default()
    };
    folder.journal("orders").prune(&retention).unwrap();
    let error = folder.start("replies", Settings::default()).err().unwrap();
    assert!(matches!(error, ServiceError::Pruned { .. }), "{error}");
    let settings = Settings {
        rebuild: false,
        ..Settings::default()
    };
    assert_eq!(
        folder
            .start("replies", settings)
            .unwrap()
            .drain()
            .unwrap()
            .calls,
        0
    );

    // It was stopped, so all that it took has had its effects, and it may be given another input.
    let others = || {
        let service = Service::new(&folder.journal("replies")).unwrap();
        let desk = Desk::new(service.publisher::<dyn Replies>().unwrap(), service.clock());
        let setup = service.component(desk);
        let setup = setup
            .input::<dyn Orders>(&folder.journal("others"))
            .unwrap();
        setup.start(Settings::default())
    };
    others().unwrap();
    let settings = Settings {
        rebuild: false,
        ..Settings::default()
    };
    let mut broken = folder.start("replies", settings).unwrap();
    folder.orders(20_000..20_001);
    while broken.turn().unwrap() != Outcome::Call {}
    drop(broken);
    let error = others().err().unwrap();
    assert!(matches!(error, ServiceError::Unfinished { .. }), "{error}");
}
