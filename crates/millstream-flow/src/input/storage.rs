//! Where a file is stored: the machine, the file system, the inode.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The types of file systems of one machine, by the numbers of statfs(2). Others may be shared by machines.
#[cfg(target_os = "linux")]
const OF_ONE_MACHINE: [u64; 13] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x2fc1_2fc1, // ZFS
    0xf2f5_2010, // F2FS
    0xca45_1a4e, // bcachefs
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x4d44,      // FAT
    0x2011_bab0, // exFAT
];
/// FUSE: its inodes may be others at each look.
#[cfg(target_os = "linux")]
const FUSE: u64 = 0x6573_5546;

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
#[cfg(target_os = "linux")]
fn file_system(path: &Path) -> (bool, bool) {
    match rustix::fs::statfs(path) {
        Ok(found) => {
            let kind = found.f_type as u64 & 0xffff_ffff;
            (!OF_ONE_MACHINE.contains(&kind), kind != FUSE)
        }
        Err(_) => (true, true),
    }
}

#[cfg(not(target_os = "linux"))]
fn file_system(_: &Path) -> (bool, bool) {
    (true, true)
}

/// The id of the running system: another one after each start of the machine.
fn machine() -> u64 {
    match std::fs::read("/proc/sys/kernel/random/boot_id") {
        Ok(id) if !id.is_empty() => xxh3_64(&id).max(1),
        _ => 0,
    }
}
