//! Messages of Kafka as objects.

mod encoder;
mod message;

pub(crate) use encoder::KafkaEncoder;
pub(crate) use message::KafkaMessage;
