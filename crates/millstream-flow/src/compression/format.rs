//! What bytes may be compressed with.

/// A format of compressed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Gzip,
    Zstd,
}
