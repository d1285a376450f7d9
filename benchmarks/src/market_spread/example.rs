//! The messages and the state of `examples/market_spread`: what is measured is the code that users read.

#[path = "../../../examples/market_spread/market.rs"]
pub(super) mod market;
#[path = "../../../examples/market_spread/messages.rs"]
pub(super) mod messages;
