//! The schedule of a service with several inputs or timers is as short as its starts allow, and a start without the
//! order is an error.

use std::time::Duration;

use millstream_journal::{Cursor, CursorMode, Journal, Options, Retention};
use millstream_service::{Runner, Service, ServiceError, Settings, publisher};
use millstream_wire::Call;

use crate::desk::{Folder, Rebuild, calls};

#[millstream_wire::interface]
trait Left {
    fn left(&mut self, number: u64);
}

#[millstream_wire::interface]
trait Right {
    fn right(&mut self, number: u64);
}

#[millstream_wire::interface]
trait States {
    fn state(&mut self, state: u64);
}

/// A state that depends on the order of all calls.
struct Mix<S> {
    states: S,
    state: u64,
}

impl<S: States> Mix<S> {
    fn mix(&mut self, number: u64) {
        self.state = self.state.wrapping_mul(31).wrapping_add(number);
        self.states.state(self.state);
    }
}

impl<S: States> Left for Mix<S> {
    fn left(&mut self, number: u64) {
        self.mix(number);
    }
}

impl<S: States> Right for Mix<S> {
    fn right(&mut self, number: u64) {
        self.mix(number << 20);
    }
}

/// Hears the own outputs.
impl<S> States for Mix<S> {
    fn state(&mut self, state: u64) {
        self.state = state;
    }
}

fn start(
    folder: &Folder,
    rebuild: Rebuild,
    settings: Settings,
) -> Result<Runner<impl Sized + use<>>, ServiceError> {
    // Small segments, so that few calls fill several.
    drop(folder.journal("out.schedule"));
    let service = Service::new(&folder.journal("out"))?;
    let mix = Mix {
        states: service.publisher::<dyn States>().unwrap(),
        state: 0,
    };
    let setup = service.component(mix);
    let setup = setup.input::<dyn Left>(&folder.journal("left"))?;
    let setup = setup.input::<dyn Right>(&folder.journal("right"))?;
    let setup = match rebuild {
        Rebuild::Snapshot => setup.snapshots_with(
            500,
            1,
            |mix| Ok(mix.state.to_le_bytes().to_vec()),
            |mix, state, _| {
                mix.state = u64::from_le_bytes(state.try_into().unwrap());
                Ok(())
            },
        ),
        Rebuild::Outputs => setup.rebuild_from::<dyn States, _>(|mix| mix)?,
        Rebuild::Inputs | Rebuild::Nothing => setup,
    };
    // It never fires here; with it there is an order also of one input.
    let setup = setup.every("beat", Duration::from_secs(1 << 30), |_, _| Ok(()));
    setup.start(Settings {
        rebuild: rebuild != Rebuild::Nothing,
        ..settings
    })
}

fn run(folder: &Folder, rebuild: Rebuild) {
    let runner = start(folder, rebuild, Settings::default());
    runner.unwrap().drain().unwrap();
}

/// Appends calls to both inputs; the state after them is the model's.
fn publish(folder: &Folder, model: &mut u64, count: u64) {
    let mut left = publisher::<dyn Left>(&folder.journal("left")).unwrap();
    let mut right = publisher::<dyn Right>(&folder.journal("right")).unwrap();
    for number in 0..count {
        let left_first = number % 3 == 0;
        let number = number + count;
        if left_first {
            left.left(number);
        } else {
            right.right(number);
        }
        let mixed = if left_first { number } else { number << 20 };
        *model = model.wrapping_mul(31).wrapping_add(mixed);
    }
}

fn states(folder: &Folder) -> Vec<u64> {
    let state = |(_, call): (_, Call)| match &call.arguments[..] {
        [(_, value)] => format!("{value:?}"),
        _ => unreachable!(),
    };
    let texts = calls(&folder.journal("out")).into_iter().map(state);
    let digits = |text: String| -> String { text.chars().filter(char::is_ascii_digit).collect() };
    texts.map(|text| digits(text).parse().unwrap()).collect()
}

fn first(folder: &Folder, name: &str) -> u64 {
    folder.journal(name).first().unwrap()
}

#[test]
fn the_schedule_is_pruned_with_what_no_start_needs() {
    for rebuild in [Rebuild::Snapshot, Rebuild::Outputs, Rebuild::Nothing] {
        let folder = Folder::new();
        let mut model = 0;
        let mut bytes_max = 0;
        for round in 0..20 {
            publish(&folder, &mut model, 1_000);
            run(&folder, rebuild);
            if rebuild != Rebuild::Nothing {
                assert_eq!(states(&folder).last(), Some(&model), "{rebuild:?} {round}");
            }
            bytes_max = bytes_max.max(folder.journal("out.schedule").info().unwrap().bytes);
        }
        assert_eq!(states(&folder).len(), 20_000, "{rebuild:?}");
        assert!(first(&folder, "out.schedule") > 15_000, "{rebuild:?}");
        assert!(bytes_max <= 8 << 16, "{rebuild:?}: {bytes_max}");
    }
    let folder = Folder::new();
    let mut model = 0;
    for _ in 0..5 {
        publish(&folder, &mut model, 1_000);
        run(&folder, Rebuild::Inputs);
        assert_eq!(states(&folder).last(), Some(&model));
    }
    assert_eq!(first(&folder, "out.schedule"), 0, "all inputs are needed");
}

#[test]
fn a_start_after_a_loss_of_outputs_has_the_order_after_the_last_snapshot_but_one() {
    let folder = Folder::new();
    let mut model = 0;
    publish(&folder, &mut model, 7_300);
    run(&folder, Rebuild::Snapshot);
    let expected = states(&folder);
    assert!(first(&folder, "out.schedule") > 1_000);
    let end = folder.journal("out").next().unwrap();
    // The last snapshot is at the end, the one before 300 calls earlier.
    for lost in [1, 2, 150, 299, 300] {
        let options = Options {
            exclusive: true,
            ..Options::default()
        };
        let output = Journal::open(folder.path("out"), options).unwrap();
        output.cut(end - lost).unwrap();
        drop(output);
        run(&folder, Rebuild::Snapshot);
        assert_eq!(states(&folder), expected, "{lost}");
    }
}

/// Removes the oldest records of the schedule, which no cursor of the service allows.
fn prune_by_hand(folder: &Folder) {
    let schedule = folder.journal("out.schedule");
    let everything = Retention {
        bytes: Some(1 << 16),
        ..Retention::default()
    };
    schedule.prune(&everything).unwrap();
    assert!(schedule.first().unwrap() > 0);
}

#[test]
fn a_start_without_the_order_is_an_error_and_the_way_on_leads_to_the_state_of_the_inputs() {
    let folder = Folder::new();
    let mut model = 0;
    publish(&folder, &mut model, 4_000);
    run(&folder, Rebuild::Inputs);
    let expected = states(&folder);
    prune_by_hand(&folder);
    let error = start(&folder, Rebuild::Inputs, Settings::default()).err();
    let error = error.unwrap();
    assert!(matches!(error, ServiceError::Unordered { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("out.schedule: its records before"), "{text}");
    let replay = replayed(&folder).unwrap_err();
    assert!(matches!(replay, ServiceError::Unordered { .. }), "{replay}");

    for name in ["out", "out.schedule"] {
        std::fs::rename(folder.path(name), folder.path(&format!("{name}.old"))).unwrap();
    }
    run(&folder, Rebuild::Inputs);
    assert_eq!(states(&folder), expected);
    replayed(&folder).unwrap();
}

/// Replays the service.
fn replayed(folder: &Folder) -> Result<(), ServiceError> {
    struct Quiet;
    impl Left for Quiet {
        fn left(&mut self, _: u64) {}
    }
    impl Right for Quiet {
        fn right(&mut self, _: u64) {}
    }
    let service = Service::replaying(Some(&folder.path("out")))?;
    let setup = service.component(Quiet);
    let setup = setup.input::<dyn Left>(&folder.journal("left"))?;
    let setup = setup.input::<dyn Right>(&folder.journal("right"))?;
    setup.start(Settings::default())?.drain().map(drop)
}

#[test]
fn removed_snapshots_of_a_pruned_schedule_are_an_error() {
    let folder = Folder::new();
    let mut model = 0;
    publish(&folder, &mut model, 5_000);
    run(&folder, Rebuild::Snapshot);
    std::fs::remove_dir_all(folder.path("out.snapshots")).unwrap();
    let error = start(&folder, Rebuild::Snapshot, Settings::default()).err();
    let error = error.unwrap();
    assert!(matches!(error, ServiceError::Unordered { .. }), "{error}");
}

#[test]
fn with_skip_pruned_the_state_is_that_of_the_calls_whose_order_is_left() {
    let folder = Folder::new();
    let mut model = 0;
    publish(&folder, &mut model, 3_000);
    run(&folder, Rebuild::Inputs);
    run(&folder, Rebuild::Inputs);
    prune_by_hand(&folder);
    let skipping = Settings {
        skip_pruned: true,
        ..Settings::default()
    };
    let count = states(&folder).len();
    let mut after = 0;
    publish(&folder, &mut after, 10);
    let mut runner = start(&folder, Rebuild::Inputs, skipping).unwrap();
    runner.drain().unwrap();
    let found = states(&folder);
    assert_eq!(found.len(), count + 10);
    assert_eq!(
        found.last(),
        Some(&after),
        "none of the earlier calls counts"
    );
}

#[test]
fn entries_that_were_removed_from_the_middle_are_missed() {
    let folder = Folder::new();
    let mut model = 0;
    publish(&folder, &mut model, 50);
    run(&folder, Rebuild::Inputs);
    publish(&folder, &mut model, 50);
    run(&folder, Rebuild::Inputs);
    // A schedule that lacks one entry: copied without it.
    let schedule = folder.journal("out.schedule");
    let copy = folder.journal("copy");
    let writer = copy.writer().unwrap();
    let mut reader = schedule.reader().unwrap();
    while let Some(record) = reader.next().unwrap() {
        if record.sequence != 60 {
            writer.append_at(record.time_ns, record.body).unwrap();
        }
    }
    copy.become_copy(schedule.lineage().unwrap()).unwrap();
    drop((writer, reader, schedule, copy));
    std::fs::remove_dir_all(folder.path("out.schedule")).unwrap();
    std::fs::rename(folder.path("copy"), folder.path("out.schedule")).unwrap();
    let error = start(&folder, Rebuild::Inputs, Settings::default()).err();
    let text = error.unwrap().to_string();
    // Without it the component may make other calls before the gap is seen.
    let is_missed = text.contains("the entry of record") || text.contains("makes other calls");
    assert!(is_missed, "{text}");
}

#[test]
fn an_order_that_nothing_needs_is_not_recorded() {
    let folder = Folder::new();
    folder.orders(0..500);
    let start = || folder.start("replies", Settings::default()).unwrap();
    start().drain().unwrap();
    folder.orders(500..900);
    start().drain().unwrap();
    // The announcements of two starts and of two ends.
    assert_eq!(folder.journal("replies.schedule").next().unwrap(), 4);
}

#[test]
fn the_cursor_of_the_schedule_is_the_one_of_the_service() {
    let folder = Folder::new();
    let mut model = 0;
    publish(&folder, &mut model, 100);
    run(&folder, Rebuild::Snapshot);
    let schedule = folder.journal("out.schedule");
    let needed: Cursor = schedule.cursor("needed", CursorMode::Exclusive).unwrap();
    assert!(needed.position().unwrap() <= schedule.next().unwrap());
}
