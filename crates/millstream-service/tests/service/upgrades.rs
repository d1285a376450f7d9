//! Another version of a component takes over: what is recorded stays, nothing of a finished input is recorded again,
//! and what differs is an error with both calls.

use millstream_journal::{Journal, Options};
use millstream_service::{
    Clock, OnDifference, OnError, Runner, Service, ServiceError, Settings, Snapshot, publisher,
};
use millstream_wire::{Call, Cause, packed, unpacked};

use crate::desk::{Folder, Rebuild, calls};

#[millstream_wire::interface]
trait Steps {
    fn step(&mut self, n: u64) -> Result<(), Cause>;
}

#[millstream_wire::interface]
trait Sums {
    fn a(&mut self, sum: u64) -> Result<(), Cause>;
    fn b(&mut self, sum: u64) -> Result<(), Cause>;
}

/// Adds up its steps, and makes the calls of its plan for each; one letter is one call.
struct Adder<R> {
    sums: R,
    plan: &'static str,
    book: Book,
    /// Whether it adds up; without a state it repeats each step.
    keeps: bool,
}

/// The state, and how it is rebuilt from outputs.
struct Book(u64);

impl Sums for Book {
    fn a(&mut self, sum: u64) -> Result<(), Cause> {
        self.0 = sum;
        Ok(())
    }

    fn b(&mut self, sum: u64) -> Result<(), Cause> {
        self.a(sum)
    }
}

impl<R: Sums> Steps for Adder<R> {
    fn step(&mut self, n: u64) -> Result<(), Cause> {
        self.book.0 = if self.keeps { self.book.0 + n } else { n };
        for call in self.plan.chars() {
            match call {
                'a' => self.sums.a(self.book.0)?,
                'b' => self.sums.b(self.book.0)?,
                // A rule that is another one.
                '2' => self.sums.a(self.book.0 * 2)?,
                _ => return Err("it cannot be taken".into()),
            }
        }
        Ok(())
    }
}

impl<R> Snapshot for Adder<R> {
    fn snapshot(&self) -> Result<Vec<u8>, Cause> {
        Ok(packed(&self.book.0)?)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Cause> {
        self.book.0 = unpacked(state)?;
        Ok(())
    }
}

fn steps(folder: &Folder, steps: &[u64]) {
    let mut out = publisher::<dyn Steps>(&folder.journal("steps")).unwrap();
    steps.iter().for_each(|n| out.step(*n).unwrap());
}

fn start(
    folder: &Folder,
    plan: &'static str,
    way: Rebuild,
    settings: Settings,
) -> Result<Runner<impl Steps + use<>>, ServiceError> {
    let service = Service::new(&folder.journal("sums"))?;
    let sums = service.publisher::<dyn Sums>().unwrap();
    let adder = Adder {
        sums,
        plan,
        book: Book(0),
        keeps: way != Rebuild::Nothing,
    };
    let mut setup = service.component(adder);
    match way {
        Rebuild::Snapshot => setup = setup.snapshots(1_000),
        Rebuild::Outputs => setup = setup.rebuild_from::<dyn Sums, _>(|adder| &mut adder.book)?,
        Rebuild::Inputs | Rebuild::Nothing => {}
    }
    let rebuild = way != Rebuild::Nothing;
    setup
        .input::<dyn Steps>(&folder.journal("steps"))?
        .start(Settings {
            rebuild,
            ..settings
        })
}

fn accepting(accept_differences: u64) -> Settings {
    Settings {
        accept_differences,
        ..Settings::default()
    }
}

/// The recorded calls: `a1 b1`.
fn recorded(folder: &Folder) -> String {
    let calls = calls(&folder.journal("sums")).into_iter();
    let text = |(_, call): (_, Call)| call.to_line().replace("(sum=", "").replace(')', "");
    let texts: Vec<String> = calls.map(text).collect();
    texts.join(" ")
}

/// Takes all steps, and dies without a last word.
fn die<C>(mut runner: Runner<C>, calls: u64) {
    let end = runner.report().calls + calls;
    while runner.report().calls < end {
        runner.turn().unwrap();
    }
}

/// Removes the last outputs, as a crash between two of them does.
fn cut(folder: &Folder, left: usize) {
    let mut sequences = Vec::new();
    let journal = folder.journal("sums");
    let mut reader = journal.reader().unwrap();
    while let Some(record) = reader.next().unwrap() {
        let read = millstream_wire::Record::read(record.body).unwrap();
        if matches!(read, millstream_wire::Record::Call(..)) {
            sequences.push(record.sequence);
        }
    }
    drop((reader, journal));
    let options = Options {
        exclusive: true,
        ..Options::default()
    };
    let journal = Journal::open(folder.path("sums"), options).unwrap();
    journal.cut(sequences[left]).unwrap();
}

/// What two versions record, one for three steps of 1, the other for a step after them with the sum `last`.
fn expected(old: &str, new: &str, keeps: bool, last: u64) -> (String, String) {
    let of = |plan: &str, sum: u64| {
        let texts = plan.chars().map(move |call| match call {
            '2' => format!("a{}", sum * 2),
            call => format!("{call}{sum}"),
        });
        texts.collect::<Vec<_>>()
    };
    let sums = [1, if keeps { 2 } else { 1 }, if keeps { 3 } else { 1 }];
    let before: Vec<String> = sums.into_iter().flat_map(|sum| of(old, sum)).collect();
    let after: Vec<String> = before.iter().cloned().chain(of(new, last)).collect();
    (before.join(" "), after.join(" "))
}

/// The record at which a start has found a difference.
fn differing(error: &ServiceError) -> Option<u64> {
    match error {
        ServiceError::Differs { sequence, .. } => Some(*sequence),
        _ => None,
    }
}

#[test]
fn after_a_clean_stop_nothing_of_earlier_inputs_is_recorded_or_missed() {
    // Added, removed, changed, in another order; all of them added and removed.
    let changes = [
        ("a", "ab"),
        ("ab", "a"),
        ("a", "2"),
        ("ab", "ba"),
        ("", "a"),
        ("a", ""),
    ];
    for (old, new) in changes {
        for way in Rebuild::ALL {
            let folder = Folder::new();
            steps(&folder, &[1, 1, 1]);
            start(&folder, old, way, Settings::default())
                .unwrap()
                .drain()
                .unwrap();
            let last = match way {
                Rebuild::Outputs if old.is_empty() => 10,
                Rebuild::Nothing => 10,
                _ => 13,
            };
            let (before, after) = expected(old, new, way != Rebuild::Nothing, last);
            assert_eq!(recorded(&folder), before);
            let mut settings = Settings::default();
            if way == Rebuild::Inputs {
                // It is called again with all three.
                let error = start(&folder, new, way, accepting(2)).err().unwrap();
                assert!(
                    matches!(error, ServiceError::Differs { sequence: 3, .. }),
                    "{error}"
                );
                settings = accepting(3);
            }
            let mut runner = start(&folder, new, way, settings).unwrap();
            assert_eq!(runner.warnings().len(), usize::from(way == Rebuild::Inputs));
            assert_eq!(recorded(&folder), before, "{old} to {new} by {way:?}");
            steps(&folder, &[10]);
            runner.drain().unwrap();
            drop(runner);
            assert_eq!(recorded(&folder), after, "{old} to {new} by {way:?}");
        }
    }
}

#[test]
fn in_the_middle_of_an_input_the_missing_calls_are_recorded_and_others_are_errors() {
    // The version before, how many of its calls were recorded, the version after, and what it adds or the error says.
    let cases = [
        ("ab", 5, "ab", Ok(" b3")),
        ("ab", 6, "ab", Ok("")),
        ("a", 3, "ab", Ok(" b3")),
        ("ab", 5, "a", Ok("")),
        ("ab", 6, "a", Err("is b(sum=3), and it makes no call")),
        ("ab", 5, "ba", Err("is a(sum=3), and it makes b(sum=3)")),
        ("ab", 5, "2", Err("is a(sum=3), and it makes a(sum=6)")),
    ];
    for (old, left, new, outcome) in cases {
        for way in Rebuild::ALL {
            let repeats_all = matches!(way, Rebuild::Inputs | Rebuild::Snapshot);
            if repeats_all && old != new {
                continue; // the inputs before it differ, too
            }
            let folder = Folder::new();
            match way {
                Rebuild::Nothing => steps(&folder, &[1, 2, 3]),
                _ => steps(&folder, &[1, 1, 1]),
            }
            die(start(&folder, old, way, Settings::default()).unwrap(), 3);
            if left < old.len() * 3 {
                cut(&folder, left);
            }
            let before = recorded(&folder);
            let started = start(&folder, new, way, Settings::default());
            match outcome {
                Ok(more) => {
                    started.unwrap();
                    let expected = format!("{before}{more}");
                    assert_eq!(recorded(&folder), expected, "{old} to {new} by {way:?}");
                }
                Err(text) => {
                    let error = started.err().unwrap();
                    assert!(error.to_string().contains(text), "{error}");
                    assert_eq!(differing(&error), Some(3), "{error}");
                    assert_eq!(recorded(&folder), before);
                }
            }
        }
    }
}

#[test]
fn a_repaired_rule_for_the_last_input_is_accepted_or_set_aside() {
    // The third step made a wrong call, and failed.
    let broken = || {
        let folder = Folder::new();
        steps(&folder, &[1, 1]);
        let mut runner = start(&folder, "a", Rebuild::Outputs, Settings::default()).unwrap();
        runner.drain().unwrap();
        drop(runner);
        steps(&folder, &[1]);
        let mut runner = start(&folder, "2!", Rebuild::Outputs, Settings::default()).unwrap();
        runner.drain().unwrap_err();
        drop(runner);
        assert_eq!(recorded(&folder), "a1 a2 a6");
        folder
    };
    let folder = broken();
    let error = start(&folder, "a", Rebuild::Outputs, Settings::default())
        .err()
        .unwrap();
    let advice = "(--accept-differences N)";
    assert!(error.to_string().contains(advice), "{error}");
    let mut runner = start(&folder, "a", Rebuild::Outputs, accepting(1)).unwrap();
    assert_eq!(runner.warnings().len(), 1);
    steps(&folder, &[1]);
    runner.drain().unwrap();
    drop(runner);
    assert_eq!(recorded(&folder), "a1 a2 a6 a3 a4");

    let folder = broken();
    let letters = folder.journal("letters");
    let settings = Settings {
        on_error: OnError::DeadLetter(letters.clone()),
        ..Settings::default()
    };
    for _ in 0..2 {
        let mut runner = start(&folder, "a", Rebuild::Outputs, settings.clone()).unwrap();
        runner.drain().unwrap();
    }
    assert_eq!(recorded(&folder), "a1 a2 a6");
    let mut reader = letters.reader().unwrap();
    let letter = reader.next().unwrap().unwrap();
    let text = String::from_utf8_lossy(letter.body).into_owned();
    assert!(
        text.contains("is a(sum=6), and it makes a(sum=3)"),
        "{text}"
    );
    assert!(reader.next().unwrap().is_none());
}

#[test]
fn a_changed_rule_is_reported_with_the_first_record_that_differs() {
    let folder = Folder::new();
    steps(&folder, &[0, 0, 5, 5]);
    start(&folder, "a", Rebuild::Inputs, Settings::default())
        .unwrap()
        .drain()
        .unwrap();
    let error = start(&folder, "2", Rebuild::Inputs, Settings::default())
        .err()
        .unwrap();
    let text = format!(
        "{}, record 3: the component makes other calls than are recorded in {}: record 4 is a(sum=5), and it makes a(sum=10); it must depend \
         on its inputs only. If its rule has changed, or an input or timer is gone, accept_differences (--accept-differences N) accepts \
         this for N inputs: what is recorded stays",
        folder.path("steps").display(),
        folder.path("sums").display()
    );
    assert_eq!(error.to_string(), text);
    for (on_difference, warnings) in [(OnDifference::Warn, 1), (OnDifference::Recorded, 0)] {
        let settings = Settings {
            on_difference,
            ..Settings::default()
        };
        let mut runner = start(&folder, "2", Rebuild::Inputs, settings).unwrap();
        assert_eq!(runner.warnings().len(), warnings);
        if let [warning] = runner.warnings() {
            assert!(
                warning.contains("for 2 input(s) than are recorded"),
                "{warning}"
            );
        }
        runner.drain().unwrap();
    }
    assert_eq!(recorded(&folder), "a0 a0 a5 a10");
}

mod next {
    use super::Cause;

    #[millstream_wire::interface]
    pub trait Sums {
        fn c(&mut self) -> Result<(), Cause>;
        #[wire(alias = "a")]
        fn total(
            &mut self,
            #[wire(default = 0)] at: i64,
            #[wire(alias = "sum")] total: u64,
        ) -> Result<(), Cause>;
    }
}

struct Later<R> {
    sums: R,
    sum: u64,
    /// Added to each total.
    more: u64,
}

impl<R: next::Sums> Steps for Later<R> {
    fn step(&mut self, n: u64) -> Result<(), Cause> {
        self.sum += n;
        self.sums.total(7, self.sum + self.more)
    }
}

#[test]
fn outputs_are_compared_by_name_where_their_interface_has_changed() {
    let folder = Folder::new();
    steps(&folder, &[1, 1, 1]);
    start(&folder, "a", Rebuild::Inputs, Settings::default())
        .unwrap()
        .drain()
        .unwrap();
    let later = |more| {
        let service = Service::new(&folder.journal("sums"))?;
        let sums = service.publisher::<dyn next::Sums>().unwrap();
        let setup = service.component(Later { sums, sum: 0, more });
        let setup = setup.input::<dyn Steps>(&folder.journal("steps"))?;
        setup.start(Settings::default())
    };
    let error = later(1).err().unwrap().to_string();
    assert!(
        error.contains("is a(sum=1), and it makes total(at=7, total=2)"),
        "{error}"
    );
    later(0).unwrap();
}

#[test]
fn outputs_that_have_been_pruned_are_not_compared() {
    let folder = Folder::new();
    steps(&folder, &[1; 9_000]);
    start(&folder, "ab", Rebuild::Inputs, Settings::default())
        .unwrap()
        .drain()
        .unwrap();
    let retention = millstream_journal::Retention {
        bytes: Some(1 << 17),
        ..Default::default()
    };
    folder.journal("sums").prune(&retention).unwrap();
    let sums = folder.journal("sums");
    assert!(sums.first().unwrap() > 1_000);
    let end = sums.next().unwrap();
    start(&folder, "ab", Rebuild::Inputs, Settings::default()).unwrap();
    assert_eq!(sums.next().unwrap(), end);
    let error = start(&folder, "a", Rebuild::Inputs, Settings::default())
        .err()
        .unwrap();
    assert!(
        differing(&error) > Some(sums.first().unwrap() / 2 - 10),
        "{error}"
    );
}

#[test]
fn a_component_publishes_in_its_calls_only() {
    let folder = Folder::new();
    steps(&folder, &[1]);
    // Before the start.
    let service = Service::new(&folder.journal("sums")).unwrap();
    let mut sums = service.publisher::<dyn Sums>().unwrap();
    let error = sums.a(1).unwrap_err().to_string();
    assert!(error.contains("not in its constructor"), "{error}");
    let setup = service.component(Adder {
        sums,
        plan: "a",
        book: Book(0),
        keeps: true,
    });
    let setup = setup.input::<dyn Steps>(&folder.journal("steps")).unwrap();
    let error = setup.start(Settings::default()).err().unwrap();
    assert!(matches!(error, ServiceError::OutsideCall { .. }), "{error}");

    // When its state is saved, and on a thread of its own.
    for thread in [false, true] {
        let folder = Folder::new();
        steps(&folder, &[1]);
        let service = Service::new(&folder.journal("sums")).unwrap();
        let sums = service.publisher::<dyn Sums>().unwrap();
        let mut other = service.publisher::<dyn Sums>().unwrap();
        let adder = Adder {
            sums,
            plan: "a",
            book: Book(0),
            keeps: true,
        };
        let setup = service.component(adder).snapshots_with(
            1,
            1,
            move |_| {
                let error = if thread {
                    std::thread::scope(|scope| scope.spawn(|| other.b(1)).join().unwrap())
                } else {
                    other.b(1)
                };
                assert!(error.is_err());
                Ok(Vec::new())
            },
            |_, _, _| Ok(()),
        );
        let setup = setup.input::<dyn Steps>(&folder.journal("steps")).unwrap();
        let error = setup
            .start(Settings::default())
            .unwrap()
            .drain()
            .unwrap_err();
        assert!(matches!(error, ServiceError::OutsideCall { .. }), "{error}");
        assert_eq!(recorded(&folder), "a1");
        start(&folder, "a", Rebuild::Snapshot, Settings::default()).unwrap();
    }
}

#[test]
fn a_component_that_fails_when_it_is_called_again_says_why() {
    let folder = Folder::new();
    steps(&folder, &[1, 1]);
    start(&folder, "ab", Rebuild::Inputs, Settings::default())
        .unwrap()
        .drain()
        .unwrap();
    let error = start(&folder, "a!", Rebuild::Inputs, accepting(9))
        .err()
        .unwrap();
    assert!(
        format!("{error:?}").contains("it cannot be taken"),
        "{error:?}"
    );
    // A record that is skipped now was not skipped before.
    let skipping = Settings {
        on_error: OnError::Skip,
        ..Settings::default()
    };
    let error = start(&folder, "a!", Rebuild::Inputs, skipping)
        .err()
        .unwrap();
    assert_eq!(differing(&error), Some(1), "{error}");
}

/// Tells the time twice.
struct Watch<R> {
    sums: R,
    clock: Clock,
}

impl<R: Sums> Steps for Watch<R> {
    fn step(&mut self, _n: u64) -> Result<(), Cause> {
        let now = self.clock.now_ns() as u64;
        self.sums.a(now)?;
        self.sums.b(now)
    }
}

#[test]
fn the_time_is_that_of_all_inputs_before_also_without_a_state() {
    let folder = Folder::new();
    // The input that is added later has the older record: it is taken at the time of the other one.
    for name in ["later", "steps"] {
        let mut out = publisher::<dyn Steps>(&folder.journal(name)).unwrap();
        out.step(1).unwrap();
    }
    let start = |inputs: &[&str]| {
        let service = Service::new(&folder.journal("sums")).unwrap();
        let sums = service.publisher::<dyn Sums>().unwrap();
        let clock = service.clock();
        let mut setup = service.component(Watch { sums, clock });
        for name in inputs {
            setup = setup.input::<dyn Steps>(&folder.journal(name)).unwrap();
        }
        setup.start(Settings {
            rebuild: false,
            ..Settings::default()
        })
    };
    die(start(&["steps"]).unwrap(), 1);
    die(start(&["steps", "later"]).unwrap(), 1);
    let whole = recorded(&folder);
    cut(&folder, 3);
    start(&["steps", "later"]).unwrap();
    assert_eq!(recorded(&folder), whole);
}
