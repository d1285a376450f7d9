//! What libFuzzer feeds, one function for each format that unknown programs may write. The programs in `fuzz/` call
//! these, and a test replays their seeds.

pub mod frame;
pub mod framing;
pub mod memcache;
pub mod recover;
pub mod wire;
