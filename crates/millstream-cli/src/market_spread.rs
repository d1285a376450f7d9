//! Market Spread, the reference application: reject orders for symbols whose last quote had too wide a spread.
//!
//! Two streams come in, quotes (NBBO: the national best bid and offer) and orders. Both meet in one state per symbol.
//! An order for a symbol whose spread is too wide, or that was never quoted, gives a result; all else gives nothing.

pub mod flow;
pub mod generate;
pub mod messages;
pub mod rig;
