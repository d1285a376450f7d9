//! Kafka: messages as objects, topics as sources and sinks.

mod message;
mod read;
mod write;

pub(crate) use message::KafkaMessage;
pub(crate) use read::kafka_read;
pub(crate) use write::{KafkaEncoder, kafka_write};
