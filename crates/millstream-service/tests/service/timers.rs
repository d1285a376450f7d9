//! Timers over restarts, one-off timers, and times of records from the future.

use std::time::Duration;

use millstream_journal::{Journal, Options};
use millstream_service::testing::Trial;
use millstream_service::{
    Clock, Missed, Outcome, Runner, Service, ServiceError, Settings, Timers, When, publisher,
};
use millstream_wire::{Cause, pack};

use crate::desk::{Desk, Folder, Limits, Order, Orders, Replies, calls};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_NS: i64 = 3_600_000_000_000;

/// Each order must be paid within an hour.
struct Payments<R> {
    replies: R,
    timers: Timers,
    expired: u64,
}

impl<R: Replies> Orders for Payments<R> {
    fn place(&mut self, order: &Order<'_>) -> Result<(), Cause> {
        let name = order.id.to_string();
        match order.quantity {
            0 => drop(self.timers.cancel("expire", &name)?),
            _ => self.timers.start(
                "expire",
                &name,
                Duration::from_millis(u64::from(order.quantity)),
            )?,
        }
        self.replies.accepted(order.id, 0);
        Ok(())
    }
}

impl<R: Replies> Payments<R> {
    fn expire(&mut self, name: &str, at_ns: i64) -> Result<(), Cause> {
        self.expired += 1;
        self.replies
            .rejected(name.parse()?, &self.expired.to_string(), at_ns);
        Ok(())
    }
}

impl<R> millstream_service::Snapshot for Payments<R> {
    fn snapshot(&self) -> Result<Vec<u8>, Cause> {
        Ok(self.expired.to_le_bytes().to_vec())
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Cause> {
        self.expired = u64::from_le_bytes(state.try_into()?);
        Ok(())
    }
}

fn payments(
    folder: &Folder,
    snapshots: bool,
    settings: Settings,
) -> Result<Runner<impl Orders>, ServiceError> {
    let service = Service::new(&folder.journal("replies"))?;
    let desk = Payments {
        replies: service.publisher::<dyn Replies>().unwrap(),
        timers: service.timers(),
        expired: 0,
    };
    let setup = service
        .component(desk)
        .input::<dyn Orders>(&folder.journal("orders"))?
        .one_off("expire", Payments::expire);
    if snapshots {
        setup.snapshots(1).start(settings)
    } else {
        setup.start(settings)
    }
}

fn order(folder: &Folder, id: u64, quantity: u32) {
    let order = Order {
        id,
        symbol: "VOD.L",
        quantity,
    };
    let mut orders = publisher::<dyn Orders>(&folder.journal("orders")).unwrap();
    orders.place(&order).unwrap();
}

/// The ids that expired, with the count that the component had.
fn expired(folder: &Folder) -> Vec<String> {
    let calls = calls(&folder.journal("replies"));
    let expired = calls.iter().filter(|(_, call)| call.method == "rejected");
    expired
        .map(|(_, call)| {
            let text = call.to_text();
            let words: Vec<&str> = text.split_whitespace().collect();
            format!("{} {}", words[2], words[4].trim_matches(['\'', '"']))
        })
        .collect()
}

#[test]
fn one_off_timers_survive_a_crash_and_are_called_once() {
    for snapshots in [false, true] {
        let folder = Folder::new();
        let start = || payments(&folder, snapshots, Settings::default()).unwrap();
        order(&folder, 1, 1);
        order(&folder, 2, 3_600_000);
        order(&folder, 3, 3_600_000);
        order(&folder, 3, 0);
        let mut runner = start();
        while runner.report().ticks == 0 || runner.turn().unwrap() != Outcome::Nothing {
            runner.turn().unwrap();
        }
        assert_eq!(expired(&folder), ["1 1"]);
        drop(runner); // killed: nothing is written at the end
        let mut runner = start();
        assert_eq!(runner.turn().unwrap(), Outcome::Nothing);
        // The second one is restarted with less time.
        order(&folder, 2, 1);
        let ticks = runner.report().ticks;
        while runner.report().ticks == ticks {
            runner.turn().unwrap();
        }
        assert_eq!(expired(&folder), ["1 1", "2 2"], "{snapshots}");
        drop(runner);
        assert_eq!(start().turn().unwrap(), Outcome::Nothing);
    }
}

#[test]
fn a_state_that_does_not_come_from_calls_has_no_one_off_timers() {
    let folder = Folder::new();
    order(&folder, 1, 1);
    let settings = Settings {
        rebuild: false,
        ..Settings::default()
    };
    let error = payments(&folder, false, settings).err().unwrap();
    assert!(
        matches!(error, ServiceError::ForgetsTimers { .. }),
        "{error}"
    );
    let timers = Clock::of_test().timers();
    let error = timers.start("expire", "1", HOUR).unwrap_err();
    assert!(matches!(error, ServiceError::NoTimer { .. }), "{error}");
}

fn now_ns() -> i64 {
    millstream_journal::Host::real().time_ns() as i64
}

/// A service with a timer at each full hour, for which the schedule says that `next` is its next occurrence.
fn hourly(folder: &Folder, missed: Missed, next_ns: Option<i64>) -> Vec<i64> {
    if let Some(next_ns) = next_ns {
        let path = folder.path("replies.schedule");
        let schedule = Journal::open(path, Options::default()).unwrap();
        let body = pack(256, |out| {
            out.nil()?;
            out.array(8)?;
            out.uint(0)?;
            out.str("order")?;
            out.uint(1)?;
            out.uint(0)?;
            out.nil()?;
            out.array(0)?;
            out.array(0)?;
            out.array(1)?;
            out.array(2)?;
            out.str("hourly")?;
            out.int(next_ns)
        });
        schedule.writer().unwrap().append(&body.unwrap()).unwrap();
    }
    let service = Service::new(&folder.journal("replies")).unwrap();
    let setup = service.component(Vec::new());
    let setup = setup.timer(
        "hourly",
        When::every(HOUR).missed(missed),
        |seen: &mut Vec<i64>, at| {
            seen.push(at);
            Ok(())
        },
    );
    let mut runner = setup.start(Settings::default()).unwrap();
    runner.drain().unwrap();
    std::mem::take(runner.component())
}

#[test]
fn what_is_missed_while_a_service_is_down_follows_the_rule() {
    let hour = |ago: i64| (now_ns() / HOUR_NS - ago) * HOUR_NS;
    for (missed, ago) in [
        (Missed::Once, &[2][..]),
        (Missed::Skip, &[]),
        (Missed::All, &[2, 1, 0]),
    ] {
        let folder = Folder::new();
        let begun = hour(0);
        let seen = hourly(&folder, missed, Some(hour(2)));
        let again = hourly(&folder, missed, None);
        if hour(0) != begun {
            continue; // an hour has ended meanwhile
        }
        let times: Vec<i64> = ago.iter().map(|ago| hour(*ago)).collect();
        assert_eq!(seen, times, "{missed:?}");
        // The second start repeats them, and misses none.
        assert_eq!(again, times, "{missed:?}");
    }
    // A schedule that was written while the clock was ahead does not hold the timer up, and a new timer has missed
    // nothing.
    let folder = Folder::new();
    assert!(hourly(&folder, Missed::All, Some(hour(-1000))).is_empty());
    assert!(hourly(&Folder::new(), Missed::All, None).is_empty());
}

#[test]
fn a_trial_follows_the_same_rule() {
    for (missed, times) in [
        (Missed::Once, &[2][..]),
        (Missed::Skip, &[]),
        (Missed::All, &[2, 3, 4]),
    ] {
        let when = When::every(HOUR).missed(missed);
        let mut trial = Trial::new(Vec::new(), Clock::of_test()).timer(when, |seen, at| {
            seen.push(at / HOUR_NS);
            Ok(())
        });
        trial.advance(HOUR).unwrap();
        assert_eq!(std::mem::take(trial.component()), [1]);
        trial.pause(HOUR * 3 + HOUR / 2).unwrap();
        assert_eq!(std::mem::take(trial.component()), times, "{missed:?}");
        trial.advance(HOUR).unwrap();
        assert_eq!(*trial.component(), [5]);
    }
}

#[test]
fn a_timer_that_starts_itself_without_end_is_an_error_of_a_trial() {
    let clock = Clock::of_test();
    let timers = clock.timers();
    let again = timers.clone();
    let mut trial = Trial::new((), clock).one_off("again", move |(), name, _| {
        Ok(again.start("again", name, Duration::from_nanos(1))?)
    });
    trial.advance(HOUR).unwrap();
    timers.start("again", "a", HOUR).unwrap();
    let error = trial.advance(HOUR * 2).unwrap_err().to_string();
    assert!(
        error.starts_with("timers would be called 100001 times"),
        "{error}"
    );
}

/// Appends the last record of a journal again, as if it had been written an hour later.
fn from_the_future(journal: &Journal) {
    let mut reader = journal.reader().unwrap();
    let body = reader
        .read(journal.next().unwrap() - 1)
        .unwrap()
        .body
        .to_vec();
    let writer = journal.writer().unwrap();
    writer
        .append_at((now_ns() + HOUR_NS) as u64, &body)
        .unwrap();
}

#[test]
fn a_record_from_the_future_holds_up_neither_itself_nor_the_clock() {
    let folder = Folder::new();
    let limits = folder.journal("limits");
    publisher::<dyn Limits>(&limits).unwrap().limit(0);
    folder.orders(0..1);
    from_the_future(&limits);
    from_the_future(&limits);
    let service = Service::new(&folder.journal("replies")).unwrap();
    let clock = service.clock();
    let desk = Desk::new(service.publisher::<dyn Replies>().unwrap(), service.clock());
    let setup = service
        .component(desk)
        .input::<dyn Limits>(&limits)
        .unwrap()
        .input::<dyn Orders>(&folder.journal("orders"))
        .unwrap();
    let mut runner = setup.start(Settings::default()).unwrap();
    let mut take = || {
        while runner.turn().unwrap() == Outcome::Note {}
        (
            clock.record().unwrap().1,
            clock.now_ns() > now_ns() + HOUR_NS / 2,
        )
    };
    assert_eq!(take(), (1, false)); // the limit
    assert_eq!(take(), (1, false)); // the order
    // Orders after that are later than the time at which the other limits were seen.
    folder.orders(1..3);
    assert_eq!(take(), (2, true));
    assert_eq!(take(), (3, true));
    assert_eq!(take(), (3, false));
    assert_eq!(take(), (4, false));
}
