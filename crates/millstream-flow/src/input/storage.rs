//! Where a file is stored: the machine, the file system, the inode.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use millstream_journal::file_system::{FileSystem, Kind};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Where a file or directory is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// Identifies the running system; 0 if it is not known.
    machine: u64,
    device: u64,
    /// 0 if it does not identify the file.
    inode: u64,
    /// Whether other machines may have the file system, too.
    shared: bool,
}

impl Place {
    pub(super) fn of(path: &Path, about: &Metadata) -> Self {
        let (shared, has_inodes) = file_system(path);
        Place {
            machine: machine(),
            device: about.dev(),
            inode: if has_inodes { about.ino() } else { 0 },
            shared,
        }
    }

    /// Whether both are one file or directory of one machine.
    pub(super) fn is_same(&self, other: &Place) -> bool {
        self.machine != 0
            && self.inode != 0
            && (self.machine, self.device, self.inode) == (other.machine, other.device, other.inode)
    }

    /// Whether both are named as one file or directory on storage that two machines share.
    pub(super) fn is_shared(&self, other: &Place) -> bool {
        self.inode != 0 && self.may_be_shared(other)
    }

    /// Whether both may be one file or directory that two machines share.
    pub(super) fn may_be_shared(&self, other: &Place) -> bool {
        self.shared && other.shared && self.machine != other.machine && self.inode == other.inode
    }
}

/// Whether the file system may be one that machines share, and whether its inodes stay.
fn file_system(path: &Path) -> (bool, bool) {
    match FileSystem::of(path).kind {
        Kind::User => (true, false),
        kind => (kind == Kind::Shared, true),
    }
}

/// The id of the running system: another one after each start of the machine.
fn machine() -> u64 {
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(id) if !id.is_empty() => xxh3_64(&id).max(1),
        _ => 0,
    }
}
