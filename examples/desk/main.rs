//! An order desk and a client of it: the program of docs/guide/services.md.

use millstream::journal::{Journal, Options};
use millstream::service::{Service, Settings, Stop, publisher};
use millstream::wire::Cause;

#[derive(millstream::Wire)]
struct NewOrder<'a> {
    id: &'a str,
    quantity: f64,
    price: f64,
}

#[millstream::interface]
trait Orders {
    fn new_order(&mut self, order: &NewOrder<'_>);
}

#[millstream::interface]
trait Replies {
    fn accepted(&mut self, id: &str, total: f64);
    fn rejected(&mut self, id: &str, reason: &str);
}

struct Desk<R> {
    replies: R,
    total: f64,
}

impl<R: Replies> Orders for Desk<R> {
    fn new_order(&mut self, order: &NewOrder<'_>) {
        let value = order.quantity * order.price;
        if value > 1_000_000.0 {
            return self.replies.rejected(order.id, "too large");
        }
        self.total += value;
        self.replies.accepted(order.id, self.total);
    }
}

fn main() -> Result<(), Cause> {
    let orders = Journal::open("orders", Options::default())?;
    if std::env::args().nth(1).as_deref() == Some("place") {
        let mut desk = publisher::<dyn Orders>(&orders)?;
        for id in ["A-1", "A-2", "A-3"] {
            desk.new_order(&NewOrder {
                id,
                quantity: 10.0,
                price: 72.5,
            });
        }
        // Whether all of them are recorded: methods that return nothing cannot say so.
        return desk.check();
    }
    let replies = Journal::open("replies", Options::default())?;
    let service = Service::new(&replies)?;
    let desk = Desk {
        replies: service.publisher::<dyn Replies>()?,
        total: 0.0,
    };
    let mut runner = service
        .component(desk)
        .input::<dyn Orders>(&orders)?
        .start(Settings::default())?;
    // Another thread, or a signal handler, has a clone of this and calls `stop()`; `runner.drain()` ends by itself.
    runner.run(&Stop::default())?;
    Ok(())
}
