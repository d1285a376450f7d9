//! Appending: the append lock, frames placed at the tail, the roll to the next segment, and the work in the background
//! that prepares it.

pub(crate) mod appender;
pub(crate) mod background;
pub(crate) mod grow;
pub(crate) mod lock;
pub(crate) mod stamp;
pub(crate) mod writer;
