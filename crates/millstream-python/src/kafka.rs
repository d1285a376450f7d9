//! Messages of Kafka as objects.

mod encoder;
mod login;
mod message;
mod time;

pub(crate) use encoder::KafkaEncoder;
pub(crate) use login::login;
pub(crate) use message::KafkaMessage;
pub(crate) use time::{ByMessageTime, kafka_message_time};
