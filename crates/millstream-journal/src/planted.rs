//! Bugs that can be planted, to show that the simulation would find them. Without the feature `simulation`, outside of tests, there are none.
//!
//! A bug is planted for one thread, which is where a simulated world lives.

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    not(any(test, feature = "simulation")),
    allow(dead_code, reason = "named, and never planted")
)]
pub enum Bug {
    /// Checksums are not examined.
    NoChecksum,
    /// `append` does not wait for its sync.
    AcknowledgeBeforeSync,
    /// Recovery trusts the tail of the last segment, and scans nothing.
    TrustTail,
    /// The durable watermark is stored before the sync that makes it true.
    WatermarkBeforeSync,
    /// A new segment's name is not synced.
    NamesNotSynced,
    /// A torn end is not cleared.
    KeepTorn,
    /// A frame's first word is stored before its body.
    PublishFirst,
    /// A writer that takes the lock of a dead one repairs nothing.
    NoRepair,
    /// A sync that failed is forgotten.
    ForgetFailedSync,
    /// A segment's end frame is published before the next segment has begun.
    RollFirst,
    /// An append does not wait for a sync that is late.
    LateAppends,
}

#[cfg(feature = "simulation")]
impl Bug {
    /// All of them.
    pub const ALL: [Bug; 11] = [
        Bug::NoChecksum,
        Bug::AcknowledgeBeforeSync,
        Bug::TrustTail,
        Bug::WatermarkBeforeSync,
        Bug::NamesNotSynced,
        Bug::KeepTorn,
        Bug::PublishFirst,
        Bug::NoRepair,
        Bug::ForgetFailedSync,
        Bug::RollFirst,
        Bug::LateAppends,
    ];
}

#[cfg(any(test, feature = "simulation"))]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plant a bug in this thread, or none.
#[cfg(any(test, feature = "simulation"))]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted.
#[cfg(any(test, feature = "simulation"))]
#[inline]
pub(crate) fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted: no.
#[cfg(not(any(test, feature = "simulation")))]
#[inline(always)]
pub(crate) const fn has(_bug: Bug) -> bool {
    false
}
