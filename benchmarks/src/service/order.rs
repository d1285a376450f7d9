//! The calls of the benchmark: an order of 28 FIX fields, and a single integer.

use millstream_wire::{Wire, interface};
use serde::{Deserialize, Serialize};

/// FIX NewOrderSingle. Each name is that of the field; the tags are in the order of FIX 4.4.
#[derive(Debug, Wire)]
pub struct NewOrderSingle<'a> {
    pub sender_comp_id: &'a str,
    pub target_comp_id: &'a str,
    pub msg_seq_num: i64,
    pub sending_time: i64,
    pub poss_dup_flag: bool,
    pub cl_ord_id: &'a str,
    pub account: &'a str,
    pub settl_type: char,
    pub settl_date: i32,
    pub handl_inst: char,
    pub exec_inst: &'a str,
    pub min_qty: f64,
    pub max_floor: f64,
    pub ex_destination: &'a str,
    pub symbol: &'a str,
    pub security_id_source: char,
    pub security_id: &'a str,
    pub side: char,
    pub transact_time: i64,
    pub order_qty: f64,
    pub ord_type: char,
    pub price: f64,
    pub stop_px: f64,
    pub currency: &'a str,
    pub time_in_force: char,
    pub expire_time: i64,
    pub order_capacity: char,
    pub text: &'a str,
}

/// What the publisher calls.
#[interface]
pub trait Orders {
    /// An order, due at its sending time.
    fn new_order_single(&mut self, order: &NewOrderSingle<'_>);
    /// The smallest call: the time at which it was due.
    fn tick(&mut self, due_ns: i64);
    /// Nothing more comes.
    fn end(&mut self);
}

/// The method that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// The method with an order.
    Orders,
    /// The method with one integer.
    Ticks,
}

/// Makes the calls, with memory that is used again.
pub(super) struct Maker {
    what: What,
    id: [u8; 17],
    account: [u8; 10],
}

const SYMBOLS: [&str; 8] = [
    "VOD.L", "BP.L", "HSBA.L", "AZN.L", "SHEL.L", "ULVR.L", "GSK.L", "RIO.L",
];

impl Maker {
    pub(super) fn new(what: What) -> Self {
        Self {
            what,
            id: *b"20261121-00000000",
            account: *b"ACCT-00000",
        }
    }

    #[inline]
    pub(super) fn call(&mut self, out: &mut impl Orders, number: u64, due: u64) {
        if self.what == What::Ticks {
            return out.tick(due as i64);
        }
        write_digits(&mut self.id[9..], number);
        write_digits(&mut self.account[7..], number);
        out.new_order_single(&NewOrderSingle {
            sender_comp_id: "CLIENT01",
            target_comp_id: "EXCHANGE",
            msg_seq_num: number as i64,
            sending_time: due as i64,
            poss_dup_flag: false,
            cl_ord_id: std::str::from_utf8(&self.id).unwrap_or_default(),
            account: std::str::from_utf8(&self.account).unwrap_or_default(),
            settl_type: '0',
            settl_date: 20_261_123,
            handl_inst: '1',
            exec_inst: "G",
            min_qty: 100.0,
            max_floor: 500.0,
            ex_destination: "XLON",
            symbol: SYMBOLS[number as usize % SYMBOLS.len()],
            security_id_source: '4',
            security_id: "GB00BH4HKS39",
            side: if number.is_multiple_of(2) { '1' } else { '2' },
            transact_time: due as i64,
            order_qty: (100 + number % 900) as f64,
            ord_type: '2',
            price: 72.0 + (number % 100) as f64 / 100.0,
            stop_px: 0.0,
            currency: "GBP",
            time_in_force: '0',
            expire_time: due as i64 + 86_400_000_000_000,
            order_capacity: 'A',
            text: "algo=VWAP;parent=0000042",
        });
    }
}

/// Writes the last digits of a number. The formatting of the standard library takes as long as all the rest of a call.
#[inline]
fn write_digits(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}
