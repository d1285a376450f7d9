//! The errors of the connector.

use millstream_flow::named::DROP_STATE;
use thiserror::Error as ThisError;

/// An error of reading from Kafka or writing to it. `Debug` is the text of `Display`.
#[derive(Clone, PartialEq, Eq, ThisError)]
#[non_exhaustive]
pub enum Error {
    /// No broker answered in time.
    #[error("kafka {servers}: no broker answers: {reason}")]
    Unreachable {
        /// The addresses that were tried.
        servers: String,
        /// The last error of the client.
        reason: String,
    },
    /// The brokers do not accept the client: a wrong password, an unknown certificate.
    #[error("kafka {servers}: the broker refuses: {reason}")]
    Refused {
        /// The addresses.
        servers: String,
        /// The reason that the broker reports.
        reason: String,
    },
    /// The user of the client lacks a right.
    #[error(
        "kafka {servers}: the user lacks a right: {right} ({reason}). The guide lists the rights of each mode: docs/guide/kafka.md, \
         Rights"
    )]
    NoRight {
        /// The addresses.
        servers: String,
        /// The operation and the resource.
        right: String,
        /// The reason that the broker reports.
        reason: String,
    },
    /// A topic does not exist.
    #[error("kafka {servers}: there is no topic \"{topic}\"; create it first")]
    NoTopic {
        /// The addresses.
        servers: String,
        /// The name of the topic.
        topic: String,
    },
    /// A partition has no leader: the brokers that have it do not run.
    #[error("kafka {servers}: topic \"{topic}\", partition {partition}: it has no leader")]
    NoLeader {
        /// The addresses.
        servers: String,
        /// The name of the topic.
        topic: String,
        /// The number of the partition.
        partition: i32,
    },
    /// Messages were removed that the flow has not read.
    #[error(
        "topic \"{topic}\", partition {partition}: the flow continues at offset {offset}, and the oldest message is at {first}: the \
         messages between were removed before they were read. Start the source again at another position with {}, and give \
         the topic a longer retention",
        DROP_STATE
    )]
    Lost {
        /// The name of the topic.
        topic: String,
        /// The number of the partition.
        partition: i32,
        /// The position of the flow.
        offset: i64,
        /// The offset of the oldest message.
        first: i64,
    },
    /// A partition ends before the position of the flow.
    #[error(
        "topic \"{topic}\", partition {partition}: the flow continues at offset {offset}, and the partition ends at {end}: the topic \
         was created anew, or the cluster has lost messages.{} Start the source again with {} to read the new topic",
        grown_from(*.kept),
        DROP_STATE
    )]
    Shrunk {
        /// The name of the topic.
        topic: String,
        /// The number of the partition.
        partition: i32,
        /// The position of the flow.
        offset: i64,
        /// The offset after the last message.
        end: i64,
        /// The offset from which on it has other messages than those that the flow has read, if there are some and it
        /// is known.
        kept: Option<i64>,
    },
    /// A partition has lost what followed the last message that the flow has read: messages of transactions that were
    /// aborted, or open.
    #[error(
        "topic \"{topic}\", partition {partition}: the flow continues at offset {offset}, and the partition has lost what followed offset \
         {end}. The flow has read no message of that: start it again, and it continues there"
    )]
    Unread {
        /// The name of the topic.
        topic: String,
        /// The number of the partition.
        partition: i32,
        /// The position of the flow.
        offset: i64,
        /// The offset after the last message that the flow has read.
        end: i64,
    },
    /// A partition has lost messages that the flow has read, and has others at their offsets.
    #[error(
        "topic \"{topic}\", partition {partition}: the flow continues at offset {offset}, and the partition has lost messages before \
         that: the last one that the flow has read, of leader epoch {epoch}, is gone, and others were written since. {} After an \
         election of a leader that did not have all messages (unclean.leader.election.enable), or a topic that was created anew, what \
         the flow has made of the lost messages remains. Start the source again with {}, with offsets of all partitions as start",
        lost_from(*.kept),
        DROP_STATE
    )]
    Truncated {
        /// The name of the topic.
        topic: String,
        /// The number of the partition.
        partition: i32,
        /// The position of the flow.
        offset: i64,
        /// The leader epoch of the last message that the flow has read.
        epoch: i32,
        /// The offset up to which the partition has the messages that the flow has read, if it is known.
        kept: Option<i64>,
    },
    /// A partition that the flow has read is gone.
    #[error(
        "topic \"{topic}\" has {found} partitions, and the flow has read partition {partition}: the topic was created anew. Start the \
         source again with {} to read the new topic",
        DROP_STATE
    )]
    NoPartition {
        /// The name of the topic.
        topic: String,
        /// The number of the partition.
        partition: i32,
        /// The number of partitions.
        found: usize,
    },
    /// A topic was deleted, and another one has its name.
    #[error(
        "topic \"{topic}\" was created anew: its identity is {found}, and the flow has read {known}. Start the source again with \
         {} to read the new topic",
        DROP_STATE
    )]
    Recreated {
        /// The name of the topic.
        topic: String,
        /// The identity of the topic that the flow has read.
        known: String,
        /// The identity of the topic that has its name now.
        found: String,
    },
    /// A partition cannot be read.
    #[error("topic \"{topic}\", partition {partition}, offset {offset}: {reason}")]
    Read {
        /// The name of the topic.
        topic: String,
        /// The number of the partition.
        partition: i32,
        /// The offset of the next message.
        offset: i64,
        /// The error of the client.
        reason: String,
    },
    /// The name of a header is not UTF-8.
    #[error(
        "topic \"{topic}\", partition {partition}, offset {offset}: the name of a header is not UTF-8, and the client library does not \
         pass such a header on: key, value and the other headers can be read. Read with values or a decoder, which need no headers, or \
         handle the message by on_error"
    )]
    HeaderName {
        /// The name of the topic.
        topic: String,
        /// The number of the partition.
        partition: i32,
        /// The offset of the message.
        offset: i64,
    },
    /// A message was not accepted.
    #[error("topic \"{topic}\": a message of {bytes} bytes with {key} is refused: {reason}")]
    Message {
        /// The name of the topic.
        topic: String,
        /// The key, as text.
        key: String,
        /// The size of key and value.
        bytes: usize,
        /// The reason that the client or the broker reports.
        reason: String,
    },
    /// Another producer with the same transactional id has taken over.
    #[error(
        "another producer has taken over the transactional id \"{id}\": another copy of the state directory delivers; stop one of them \
         ({reason})"
    )]
    Fenced {
        /// The transactional id.
        id: String,
        /// The reason that the broker reports.
        reason: String,
    },
    /// A transaction failed.
    #[error("kafka {servers}: the transaction failed: {reason}")]
    Transaction {
        /// The addresses.
        servers: String,
        /// The reason that the client reports.
        reason: String,
    },
    /// A setting of librdkafka is unknown or has a wrong value.
    #[error("kafka setting \"{name}\": {reason}")]
    Setting {
        /// The name.
        name: String,
        /// The reason that the client reports.
        reason: String,
    },
    /// A stored message is damaged, or of a newer version.
    #[error("a stored message cannot be read: {0}")]
    Format(&'static str),
    /// Any other error of the client.
    #[error("kafka {servers}: {reason}")]
    Client {
        /// The addresses.
        servers: String,
        /// The reason that the client reports.
        reason: String,
    },
}

millstream_flow::debug_as_chain!(Error);

/// What a partition has that lost its end and grew again, but not to the position of the flow.
fn grown_from(kept: Option<i64>) -> String {
    match kept {
        Some(kept) => {
            format!(" It has other messages from offset {kept} on, which the flow has not read.")
        }
        None => String::new(),
    }
}

/// What is known of the messages that a partition has lost.
fn lost_from(kept: Option<i64>) -> String {
    match kept {
        Some(kept) => {
            format!("It has other messages from offset {kept} on, which the flow has not read.")
        }
        None => "Where the others begin is not known.".to_owned(),
    }
}
