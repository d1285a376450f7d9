//! The state of each symbol: its last quote, by which orders are rejected.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::messages::{Order, OrderResult, Quote};

/// A message of either stream.
#[derive(Clone, Debug)]
pub enum Event {
    /// From the stream of quotes.
    Quote(Quote),
    /// From the stream of orders.
    Order(Order),
}

/// What is known of a symbol. One that was never quoted rejects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Market {
    bid: f64,
    offer: f64,
    reject: bool,
}

impl Default for Market {
    fn default() -> Self {
        Market {
            bid: 0.0,
            offer: 0.0,
            reject: true,
        }
    }
}

impl Market {
    /// Takes a message in; returns the result of an order that is rejected.
    #[inline]
    pub fn handle(&mut self, event: Event) -> Option<OrderResult> {
        match event {
            Event::Quote(quote) => {
                self.quote(&quote);
                None
            }
            Event::Order(order) => self.order(&order),
        }
    }

    /// Takes a quote in; a spread of 5 cents or 5% rejects orders from now on.
    fn quote(&mut self, quote: &Quote) {
        let spread = quote.offer - quote.bid;
        let mid = (quote.bid + quote.offer) / 2.0;
        self.reject = spread >= 0.05 || spread / mid >= 0.05;
        (self.bid, self.offer) = (quote.bid, quote.offer);
    }

    /// The result that an order gives, if it is rejected.
    fn order(&self, order: &Order) -> Option<OrderResult> {
        self.reject.then(|| OrderResult {
            order: *order,
            last_bid: self.bid,
            last_offer: self.offer,
            timestamp: timestamp(),
        })
    }
}

/// Units of 10 us since the epoch.
fn timestamp() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "a result carries the wall time, as published"
    )]
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    (now.as_nanos() / 10_000) as u64
}

#[cfg(test)]
mod tests {
    use super::super::messages::tests::ORDER;
    use super::*;

    #[test]
    fn wide_spreads_and_unknown_symbols_reject() {
        let mut market = Market::default();
        assert!(market.handle(Event::Order(ORDER)).is_some());
        for (bid, offer, rejects) in [
            (10.0, 10.0, false),
            (10.0, 10.06, true),
            (0.5, 0.54, true),
            (10.0, 10.04, false),
        ] {
            let quote = Quote {
                symbol: ORDER.symbol,
                time: ORDER.time,
                bid,
                offer,
            };
            assert!(market.handle(Event::Quote(quote)).is_none());
            let result = market.handle(Event::Order(ORDER));
            assert_eq!(result.is_some(), rejects, "{bid} {offer}");
            assert!(
                result.is_none_or(|result| (result.last_bid, result.last_offer) == (bid, offer))
            );
        }
    }
}
