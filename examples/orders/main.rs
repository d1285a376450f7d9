//! An order desk in Rust: the same calls, the same answers and the same tests as `desk.py`.
//!
//! Run: `orders run ORDERS REPLIES` takes all orders that are there, `orders test FOLDER` runs a test, and `orders
//! count REPLIES` counts the answers of a desk: a flow that reads the output journal of a service. `orders system` is
//! what `millstream service up` runs.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use millstream::flow::{self, Emit, Flow, codec, journals, stdout};
use millstream::journal::{Journal, Options};
use millstream::service::system::Program;
use millstream::service::testing::{self, Mode, Trial};
use millstream::service::{Clock, Service, Settings, Snapshot};
use millstream::wire::{
    Call, CallError, Cause, Dispatch, Interface, Publisher, Record, Recorder, Timestamp, packed,
    unpacked,
};

#[derive(millstream::Wire)]
struct NewOrder<'a> {
    id: &'a str,
    account: &'a str,
    symbol: &'a str,
    side: char,
    quantity: f64,
    price: f64,
}

/// The requests to a desk.
#[millstream::interface]
trait Orders {
    fn new_order(&mut self, order: &NewOrder<'_>);
    fn cancel(&mut self, id: &str);
    fn set_limit(&mut self, account: &str, value: f64);
    fn end_of_day(&mut self);
}

/// What a desk answers.
#[millstream::interface]
trait Replies {
    fn accepted(&mut self, id: &str, exposure: f64, at: Timestamp);
    fn rejected(&mut self, id: &str, reason: &str, at: Timestamp);
    fn canceled(&mut self, id: &str, exposure: f64);
}

/// Keeps for each account what its open orders are worth, and never lets it pass the account's limit.
struct Desk<R> {
    replies: R,
    clock: Clock,
    state: State,
}

#[derive(Default, millstream::Wire)]
struct State {
    limits: BTreeMap<String, f64>,
    exposures: BTreeMap<String, f64>,
    open: BTreeMap<String, Open>,
}

#[derive(millstream::Wire)]
struct Open {
    account: String,
    value: f64,
}

impl<R> Desk<R> {
    fn new(replies: R, clock: Clock) -> Self {
        let state = State::default();
        Desk {
            replies,
            clock,
            state,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.clock.now_ns())
    }

    /// Why an order is refused.
    fn objection(&self, order: &NewOrder<'_>, exposure: f64) -> Option<String> {
        let limit = self.state.limits.get(order.account);
        let trades = order.quantity > 0.0 && order.price > 0.0;
        if order.id.is_empty() || self.state.open.contains_key(order.id) {
            Some("bad or known id".to_owned())
        } else if !matches!(order.side, '1' | '2') {
            Some(format!("side {}", order.side))
        } else if !trades {
            Some("nothing to trade".to_owned())
        } else if exposure > limit.copied().unwrap_or_default() {
            Some(format!("above the limit of account {}", order.account))
        } else {
            None
        }
    }
}

impl<R: Replies> Orders for Desk<R> {
    fn new_order(&mut self, order: &NewOrder<'_>) {
        let value = order.quantity * order.price;
        let before = self.state.exposures.get(order.account);
        let exposure = before.copied().unwrap_or_default() + value;
        let at = self.now();
        if let Some(reason) = self.objection(order, exposure) {
            return self.replies.rejected(order.id, &reason, at);
        }
        let account = order.account.to_owned();
        self.state.exposures.insert(account.clone(), exposure);
        self.state
            .open
            .insert(order.id.to_owned(), Open { account, value });
        self.replies.accepted(order.id, exposure, at);
    }

    fn cancel(&mut self, id: &str) {
        let Some(Open { account, value }) = self.state.open.remove(id) else {
            let at = self.now();
            return self.replies.rejected(id, "unknown id", at);
        };
        let exposure = self.state.exposures.entry(account).or_default();
        *exposure -= value;
        self.replies.canceled(id, *exposure);
    }

    fn set_limit(&mut self, account: &str, value: f64) {
        self.state.limits.insert(account.to_owned(), value);
    }

    fn end_of_day(&mut self) {
        self.state.exposures.clear();
        self.state.open.clear();
    }
}

impl<R> Snapshot for Desk<R> {
    fn snapshot(&self) -> Result<Vec<u8>, Cause> {
        Ok(packed(&self.state)?)
    }

    fn restore(&mut self, state: &[u8]) -> Result<(), Cause> {
        self.state = unpacked(state)?;
        Ok(())
    }
}

/// Takes all orders that are there, and keeps the state for the next start.
fn run(orders: &str, replies: &str) -> Result<(), Cause> {
    let orders = Journal::open(orders, Options::default())?;
    let replies = Journal::open(replies, Options::default())?;
    let service = Service::new(&replies)?;
    let desk = Desk::new(service.publisher::<dyn Replies>()?, service.clock());
    let setup = service.component(desk).snapshots(100_000);
    let mut runner = setup
        .input::<dyn Orders>(&orders)?
        .start(Settings::default())?;
    let report = runner.drain()?;
    println!("calls {}", report.calls);
    Ok(())
}

/// The desk as a part of a system of services: `rust.toml` says on which journals.
fn system() -> ExitCode {
    let program = Program::new().register("desk", |part| {
        let desk = Desk::new(part.publisher::<dyn Replies>()?, part.clock());
        let desk = part.component(desk).snapshots();
        desk.input::<dyn Orders>()?.run()
    });
    program.run()
}

/// Runs a test folder with all its variants.
fn test(folder: &str) -> Result<(), Cause> {
    let inputs = [<dyn Orders>::schema()?];
    let outputs = [<dyn Replies>::schema()?];
    let mode = Mode {
        agitate: true,
        ..Mode::default()
    };
    let outcome = testing::check(Path::new(folder), &inputs, &outputs, mode, calls)?;
    for (file, difference) in &outcome.failed {
        println!("{}:\n{difference}", file.display());
    }
    println!("passed {}, failed {}", outcome.passed, outcome.failed.len());
    match outcome.failed.len() {
        0 => Ok(()),
        failed => Err(format!("{failed} files differ").into()),
    }
}

/// What a new desk answers to calls, once others have brought it into a state.
fn calls(setup: &[Call], input: &[Call]) -> Result<Vec<Call>, Cause> {
    let answers = Recorder::default();
    let clock = Clock::of_test();
    let replies = Publisher::<dyn Replies, _>::new(answers.clone())?;
    let mut desk = Trial::new(Desk::new(replies, clock.clone()), clock);
    for call in setup {
        desk.call::<dyn Orders>(call)?;
    }
    answers.take();
    for call in input {
        desk.call::<dyn Orders>(call)?;
    }
    Ok(answers.take())
}

/// The answers of a record in words.
#[derive(Default)]
struct Words(Vec<String>);

impl Replies for Words {
    fn accepted(&mut self, _: &str, _: f64, _: Timestamp) {
        self.0.push("accepted".to_owned());
    }

    fn rejected(&mut self, _: &str, reason: &str, _: Timestamp) {
        self.0.push(format!("rejected, {reason}"));
    }

    fn canceled(&mut self, _: &str, _: f64) {
        self.0.push("canceled".to_owned());
    }
}

/// Counts the answers in the output journal of a desk. What is no call of `Replies`, such as the notes of names, says
/// nothing.
fn count(replies: &str) -> Result<(), Cause> {
    let schema = <dyn Replies>::schema()?.id();
    let words = move |record: &[u8]| -> Result<Vec<String>, CallError> {
        let mut words = Words::default();
        if let Record::Call(_, head, arguments) = Record::read(record)?
            && head.schema == schema
        {
            <dyn Replies>::dispatch(&mut words, head.method, arguments)?;
        }
        Ok(words.0)
    };
    let flow = Flow::new("answers");
    flow.source("replies", codec::decode(journals::read(replies), words))
        .flat_map(|words| words)
        .key_by(|word| word.clone())
        .count(Emit::End)
        .items()
        .map(|(word, count)| format!("{count} {word}"))
        .sink("out", stdout::stdout());
    flow.run(flow::Options::default())?;
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["run", orders, replies] => run(orders, replies),
        ["test", folder] => test(folder),
        ["count", replies] => count(replies),
        ["system"] => return system(),
        _ => {
            eprintln!(
                "usage: orders run ORDERS REPLIES | orders test FOLDER | orders count REPLIES | orders system"
            );
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orders: {}", millstream::journal::chain(&*error));
            ExitCode::FAILURE
        }
    }
}
