//! The component of the consumer: a digest of all fields, and the latency of each call.

use hdrhistogram::Histogram;
use millstream_journal::clock::monotonic_ns;
use millstream_wire::Cause;

use super::order::{NewOrderSingle, Orders};

/// The component of the consumer.
pub(super) struct Digest {
    measured_from: i64,
    pub(super) histogram: Histogram<u64>,
    /// Calls from the first one measured on.
    pub(super) calls: u64,
    last_due_ns: i64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) received: u64,
    pub(super) digest: u64,
    pub(super) ended: bool,
}

impl Digest {
    pub(super) fn new(measured_from: i64) -> Result<Self, Cause> {
        Ok(Digest {
            measured_from,
            histogram: Histogram::new_with_bounds(1, 100_000_000_000, 3)?,
            calls: 0,
            last_due_ns: 0,
            first_ns: 0,
            last_ns: 0,
            received: 0,
            digest: 0,
            ended: false,
        })
    }

    #[inline]
    fn add(&mut self, value: u64) {
        self.digest = self.digest.rotate_left(5) ^ value;
    }

    #[inline]
    fn add_str(&mut self, text: &str) {
        let ends = text.as_bytes().first().zip(text.as_bytes().last());
        let ends = ends.map_or(0, |(first, last)| u64::from(*first) << 8 | u64::from(*last));
        self.add(ends ^ (text.len() as u64) << 16);
    }

    #[inline]
    fn read(&mut self, due_ns: i64) {
        self.received += 1;
        if due_ns < self.measured_from {
            return;
        }
        self.calls += 1;
        if due_ns == self.last_due_ns {
            return;
        }
        self.last_due_ns = due_ns;
        let now = monotonic_ns();
        if self.first_ns == 0 {
            self.first_ns = now;
        }
        self.last_ns = now;
        self.histogram
            .saturating_record(now.saturating_sub(due_ns as u64));
    }
}

impl Orders for Digest {
    fn new_order_single(&mut self, order: &NewOrderSingle<'_>) {
        for text in [
            order.sender_comp_id,
            order.target_comp_id,
            order.cl_ord_id,
            order.account,
            order.exec_inst,
            order.ex_destination,
            order.symbol,
            order.security_id,
            order.currency,
            order.text,
        ] {
            self.add_str(text);
        }
        for char in [
            order.settl_type,
            order.handl_inst,
            order.security_id_source,
            order.side,
            order.ord_type,
            order.time_in_force,
            order.order_capacity,
        ] {
            self.add(char.into());
        }
        for number in [
            order.min_qty,
            order.max_floor,
            order.order_qty,
            order.price,
            order.stop_px,
        ] {
            self.add(number.to_bits());
        }
        for number in [
            order.msg_seq_num,
            order.sending_time,
            order.transact_time,
            order.expire_time,
        ] {
            self.add(number as u64);
        }
        self.add(order.settl_date as u64);
        self.add(order.poss_dup_flag.into());
        self.read(order.sending_time);
    }

    fn tick(&mut self, due_ns: i64) {
        self.add(due_ns as u64);
        self.read(due_ns);
    }

    fn end(&mut self) {
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::order::{Maker, What};

    #[test]
    fn the_digest_of_what_is_made_again_sees_each_field_of_each_call() {
        let of = |numbers: &[u64], due| {
            let mut digest = Digest::new(i64::MAX).unwrap();
            let mut maker = Maker::new(What::Orders);
            for number in numbers {
                maker.call(&mut digest, *number, due);
            }
            (digest.received, digest.digest)
        };
        assert_eq!(of(&[1, 2, 3], 5), of(&[1, 2, 3], 5));
        for other in [
            of(&[1, 2], 5),
            of(&[1, 3, 2], 5),
            of(&[1, 2, 4], 5),
            of(&[1, 2, 3], 6),
        ] {
            assert_ne!(of(&[1, 2, 3], 5), other);
        }
    }
}
