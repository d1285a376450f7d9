//! The only part that knows the client library: a consumer, a producer, their settings and their errors.
//!
//! The rest of the crate uses the traits [`Consumer`] and [`Queue`], so that another client can take its place and
//! tests can simulate one.

mod consumer;
pub(crate) mod context;
mod header_names;
mod leader_epoch;
pub(crate) mod producer;
mod rights;
pub(crate) mod settings;
pub(crate) mod tokens;

use std::sync::Arc;

use millstream_flow::poller::Wake;

use crate::error::Error;

pub(crate) use consumer::{connect, connect_for_questions};

/// A topic and the number of a partition of it.
pub(crate) type TopicPartition<'a> = (&'a str, i32);

/// Where a partition ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The offset after the last message that may be read.
    pub(crate) stable: i64,
    /// The offset after the last message; later than that where a transaction is open.
    pub(crate) high: i64,
}

/// The last record before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LastRecord {
    /// The offset after it.
    pub(crate) end: i64,
    /// The leader epoch in which it was written.
    pub(crate) epoch: i32,
}

/// What the brokers say of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    /// The number of its partitions.
    pub(crate) partitions: usize,
    /// A partition that has no leader at present.
    pub(crate) leaderless: Option<i32>,
    /// Its identity, which differs from that of any other topic that has or had its name; unknown with brokers before
    /// 2.8.
    pub(crate) id: Option<String>,
}

/// Access to topics for reading. Calls wait for the broker, within the timeout of the settings.
pub(crate) trait Consumer: Send + Sync {
    /// Returns what the brokers say of a topic.
    fn topic(&self, name: &str) -> Result<Topic, Error>;
    /// Returns the offset of the oldest message and the offset at which the messages that may be read end: with
    /// `read_committed` that of the first message of an open transaction.
    fn bounds(&self, of: TopicPartition<'_>) -> Result<(i64, i64), Error>;
    /// Returns the offset of the first message of this time or later, if there is one.
    fn offset_at(&self, of: TopicPartition<'_>, time_ms: i64) -> Result<Option<i64>, Error>;
    /// Returns the offset that the group has committed.
    fn group_offset(&self, of: TopicPartition<'_>) -> Result<Option<i64>, Error>;
    /// Commits offsets for the group.
    fn commit(&self, offsets: &[(String, i32, i64)]) -> Result<(), Error>;
    /// Takes what the client reports on its own: logs, errors, statistics. Any thread may call this.
    fn serve(&self);
    /// Returns where a partition that is fetched ends, as of the last statistics.
    fn end_of(&self, of: TopicPartition<'_>) -> Option<Ends>;
    /// Returns the offset of the first message that a partition has now after those that it had when this record was
    /// its last: before the end of the record if that is gone. `None` if that is not known in time.
    fn kept_before(&self, of: TopicPartition<'_>, last: LastRecord) -> Result<Option<i64>, Error>;
    /// Begins to fetch a partition: at `offset`, if its record before that is of the leader epoch `epoch`. `wake` is
    /// called when the queue is no longer empty.
    fn open(
        self: Arc<Self>,
        of: TopicPartition<'_>,
        at: (i64, Option<i32>),
        wake: Wake,
    ) -> Result<Box<dyn Queue>, Error>;
}

/// The fetched messages of one partition.
pub(crate) trait Queue {
    /// Passes the next message to `take`. Never waits.
    fn poll(&mut self, take: &mut dyn FnMut(&Incoming<'_>)) -> Polled;
    /// Returns the offset before which the partition is known to have no further messages than those that were polled
    /// before the queue was last found empty: transactions leave gaps at the end of a partition.
    fn ended_before(&self) -> Option<i64>;
    /// Commits an offset of the partition for the group: in the background, or waits for the answer.
    fn commit(&self, offset: i64, waits: bool) -> Result<(), Error>;
    /// Takes what the client has reported about the connection since the last call.
    fn notices(&self) -> Vec<Notice>;
}

/// The result of a poll.
pub(crate) enum Polled {
    /// A message was passed.
    Message,
    /// Nothing is there now.
    Empty,
    /// The end of what may be read at present was reached.
    AtEnd,
    /// The partition cannot be read: the error of the client. The kind says why.
    Failed(Trouble, String),
}

/// Why a partition cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The client tries again.
    Passing,
    /// The offset does not exist, or the partition has lost the messages before it.
    NoOffset,
    /// The topic or the partition does not exist.
    NoTopic,
    /// Anything else, which does not pass by itself.
    Lasting,
}

/// What the client reports about its connections.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// It tries again.
    Passing(String),
    /// It does not succeed without a change of settings: a wrong password, an unknown certificate.
    Refused(String),
}

/// A message in the memory of the client.
pub(crate) struct Incoming<'a> {
    pub(crate) offset: i64,
    /// The leader epoch in which it was written, if the broker says.
    pub(crate) epoch: Option<i32>,
    pub(crate) time_ms: Option<i64>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    /// Calls its argument for each header, and returns how many cannot be read.
    pub(crate) headers: &'a EachHeader<'a>,
}

/// A function that calls its argument for each header, and returns how many cannot be read because their names are not
/// UTF-8.
pub(crate) type EachHeader<'a> = dyn Fn(&mut dyn FnMut(&str, Option<&[u8]>)) -> usize + 'a;
