//! The leader epochs of records and of positions (KIP-320), which the crate `rdkafka` does not pass on.
//!
//! Each election of a leader of a partition begins an epoch, and each record has the epoch in which it was written. A
//! log that lost its end and grew again has other epochs at the same offsets. The client asks the broker for the end of
//! the epoch of the position at which it begins.

#![expect(
    unsafe_code,
    reason = "rdkafka 0.39 has no functions for leader epochs; those of librdkafka take its pointers"
)]

use std::ffi::CString;

use rdkafka::TopicPartitionList;
use rdkafka::bindings::{
    rd_kafka_message_leader_epoch, rd_kafka_topic_partition_list_find,
    rd_kafka_topic_partition_set_leader_epoch,
};
use rdkafka::message::BorrowedMessage;

use super::TopicPartition;

/// Returns the epoch in which a message was written; `None` if the broker does not say.
pub(super) fn of_message(message: &BorrowedMessage<'_>) -> Option<i32> {
    // SAFETY: the pointer is that of a message of a consumer, which `message` keeps alive during the call.
    let epoch = unsafe { rd_kafka_message_leader_epoch(message.ptr()) };
    (epoch >= 0).then_some(epoch)
}

/// Sets the epoch of the last record before the offset of a partition in a list: the client compares it before it
/// fetches.
pub(super) fn set(
    list: &mut TopicPartitionList,
    (topic, partition): TopicPartition<'_>,
    epoch: i32,
) {
    // A topic with a NUL in its name is in no list.
    let Ok(topic) = CString::new(topic) else {
        return;
    };
    // SAFETY: `list` is a valid list of the client, and `topic` ends with a NUL; the function returns an element of the
    // list or NULL.
    let found =
        unsafe { rd_kafka_topic_partition_list_find(list.ptr(), topic.as_ptr(), partition) };
    if !found.is_null() {
        // SAFETY: `found` is an element of `list`, which is borrowed mutably, so that nothing else uses it.
        unsafe { rd_kafka_topic_partition_set_leader_epoch(found, epoch) };
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::Offset;

    use super::*;

    #[test]
    fn an_epoch_is_set_for_a_partition_of_the_list_only() {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("t", 3, Offset::Offset(7))
            .unwrap();
        set(&mut list, ("t", 3), 5);
        set(&mut list, ("t", 4), 5);
        set(&mut list, ("a\0b", 3), 5);
        assert_eq!(list.count(), 1);
    }
}
