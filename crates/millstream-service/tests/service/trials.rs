//! Time and timers in tests of components; inputs that are refused; a replay of what was recorded.

use std::time::Duration;

use millstream_service::testing::{TestError, Trial, check_variant, variant_names};
use millstream_service::{Clock, OnError, Service, ServiceError, Settings, publisher};
use millstream_wire::{Call, CallError, Interface, Publisher, Recorder};

use crate::desk::{Desk, Folder, Limits, Orders, Replies, calls, on_error};

type Tested = Trial<Desk<Publisher<dyn Replies, Recorder>>>;

const SECOND: Duration = Duration::from_secs(1);

fn trial() -> (Tested, Recorder) {
    let recorder = Recorder::default();
    let clock = Clock::of_test();
    let replies = Publisher::<dyn Replies, _>::new(recorder.clone()).unwrap();
    let desk = Desk::new(replies, clock.clone());
    let trial = Trial::new(desk, clock).every(SECOND, |desk, at| {
        assert_eq!(at, desk.clock.now_ns());
        desk.replies.summary(desk.accepted, at);
        Ok(())
    });
    (trial, recorder)
}

fn times(recorder: &Recorder) -> Vec<String> {
    let calls = recorder.take();
    calls
        .iter()
        .map(|call| call.to_text().split_whitespace().last().unwrap().to_owned())
        .collect()
}

#[test]
fn timers_fire_between_the_calls_of_a_trial() {
    let (mut trial, recorder) = trial();
    let at = |at| Call {
        at: Some(at),
        method: String::new(),
        arguments: Vec::new(),
    };
    trial.call::<dyn Orders>(&at(10_500_000_000)).unwrap();
    assert_eq!(
        (trial.now_ns(), times(&recorder).len()),
        (10_500_000_000, 0)
    );
    trial.call::<dyn Orders>(&at(12_000_000_000)).unwrap();
    assert_eq!(times(&recorder), ["11000000000", "12000000000"]);
    trial.advance(SECOND / 2).unwrap();
    assert!(times(&recorder).is_empty());
    trial.pause(SECOND * 9).unwrap();
    assert_eq!(times(&recorder), ["13000000000"]);
    trial.advance(SECOND).unwrap();
    assert_eq!(times(&recorder), ["22000000000"]);
    let error = trial.advance(SECOND * 200_000).unwrap_err().to_string();
    assert!(
        error.starts_with("timers would be called 200000 times from 1970-01-01T00:00:22.5Z"),
        "{error}"
    );
}

#[test]
fn a_variant_is_run_alone() {
    let folder = tempfile::tempdir().unwrap();
    let place = "place: {id: 1, symbol: A, quantity: 5}\n";
    std::fs::write(folder.path().join("in.yaml"), place).unwrap();
    let inputs = [<dyn Orders as Interface>::schema().unwrap()];
    let outputs = [<dyn Replies as Interface>::schema().unwrap()];
    let names = variant_names(folder.path(), &inputs).unwrap();
    for name in ["missing-1", "largest-place-order-quantity", "largest-place"] {
        assert!(names.iter().any(|known| known == name), "{names:?}");
    }
    let run = |name: &str, update| {
        check_variant(
            folder.path(),
            &inputs,
            &outputs,
            name,
            update,
            |_, input| {
                let (mut trial, recorder) = trial();
                for call in input {
                    trial.call::<dyn Orders>(call)?;
                }
                Ok(recorder.take())
            },
        )
    };
    assert_eq!(run("missing-1", true).unwrap().updated.len(), 1);
    assert_eq!(run("missing-1", false).unwrap().passed, 1);
    let error = run("missing-2", false).unwrap_err();
    assert!(matches!(error, TestError::NoVariant { .. }), "{error}");
}

#[test]
fn a_service_does_not_read_what_it_writes() {
    let folder = Folder::new();
    folder.orders(0..1);
    std::os::unix::fs::symlink(folder.path("orders"), folder.path("link")).unwrap();
    let start = |input: &str, output: &str, settings| {
        let service = Service::new(&folder.journal(output)).unwrap();
        let replies = service.publisher::<dyn Replies>().unwrap();
        let desk = Desk::new(replies, service.clock());
        let setup = service.component(desk);
        setup
            .input::<dyn Orders>(&folder.journal(input))?
            .start(settings)
    };
    for input in ["orders", "link"] {
        let error = start(input, "orders", Settings::default()).err().unwrap();
        assert!(matches!(error, ServiceError::SameJournal { .. }), "{error}");
        let dead = on_error(OnError::DeadLetter(folder.journal("orders")));
        let error = start(input, "replies", dead).err().unwrap();
        assert!(matches!(error, ServiceError::SameJournal { .. }), "{error}");
    }
    assert!(start("link", "replies", Settings::default()).is_ok());
}

#[test]
fn a_journal_with_calls_of_others_only_is_refused() {
    let folder = Folder::new();
    publisher::<dyn Limits>(&folder.journal("orders"))
        .unwrap()
        .limit(1);
    let error = folder.start("replies", Settings::default()).err().unwrap();
    let text = "orders: holds calls of Limits only; the component is called through Orders";
    assert!(error.to_string().ends_with(text), "{error}");
    folder.orders(0..1);
    assert!(folder.start("replies", Settings::default()).is_ok());
}

#[test]
fn what_interrupts_a_component_is_no_bad_record() {
    let folder = Folder::new();
    folder.orders(0..1);
    let service = Service::new(&folder.journal("replies")).unwrap();
    let schema = <dyn Orders as Interface>::schema().unwrap();
    let setup = service
        .component(())
        .input_with(&folder.journal("orders"), schema, |(), _, _| {
            let cause = "stopped".into();
            Err(CallError::Interrupted { cause })
        });
    let mut runner = setup.unwrap().start(on_error(OnError::Skip)).unwrap();
    let error = runner.drain().unwrap_err();
    assert!(
        matches!(error, ServiceError::Input { sequence: 1, .. }),
        "{error}"
    );
    assert_eq!(runner.report().skipped, 0);
}

#[test]
fn a_replay_follows_the_recorded_order() {
    let folder = Folder::new();
    folder.orders(0..5);
    publisher::<dyn Limits>(&folder.journal("limits"))
        .unwrap()
        .limit(250);
    let production = Service::new(&folder.journal("replies")).unwrap();
    let replies = production.publisher::<dyn Replies>().unwrap();
    let desk = Desk::new(replies, production.clock());
    // The orders are taken before the limit is there.
    let setup = production
        .component(desk)
        .input::<dyn Orders>(&folder.journal("orders"))
        .unwrap()
        .input::<dyn Limits>(&folder.journal("limits"))
        .unwrap()
        .every("beat", Duration::from_millis(1), |desk, at| {
            desk.replies.summary(desk.accepted, at);
            Ok(())
        });
    let mut runner = setup.start(Settings::default()).unwrap();
    while runner.report().ticks < 3 {
        runner.turn().unwrap();
    }
    folder.orders(5..8);
    runner.drain().unwrap();
    drop(runner);

    let replay = Service::replaying(Some(&folder.path("replies"))).unwrap();
    assert!(replay.is_recorded());
    let recorder = Recorder::default();
    let replies = Publisher::<dyn Replies, _>::new(recorder.clone()).unwrap();
    let desk = Desk::new(replies, replay.clock());
    let setup = replay
        .component(desk)
        .input::<dyn Limits>(&folder.journal("limits"))
        .unwrap()
        .input::<dyn Orders>(&folder.journal("orders"))
        .unwrap()
        .every("beat", Duration::from_millis(1), |desk, at| {
            desk.replies.summary(desk.accepted, at);
            Ok(())
        });
    setup.start(Settings::default()).unwrap().drain().unwrap();
    let expected = calls(&folder.journal("replies"));
    let expected: Vec<Call> = expected.into_iter().map(|(_, call)| call).collect();
    assert_eq!(recorder.take(), expected);
}
