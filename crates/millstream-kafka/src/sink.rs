//! A placeholder.

/// A placeholder.
pub struct WriteKafka;
/// A placeholder.
pub fn write() -> WriteKafka { WriteKafka }
