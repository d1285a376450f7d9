//! The file system of a path, by its number in statfs(2).

use std::path::Path;

/// A file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its usual name; ext2, ext3 and ext4 have one number.
    pub name: &'static str,
    /// What its files are.
    pub kind: Kind,
}

/// What the files of a file system are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Preallocated blocks are written in place: a full disk is met when a segment is made.
    InPlace,
    /// Blocks are copied when they are written, which needs room.
    Copied,
    /// In memory: nothing survives the machine.
    Memory,
    /// Made by a process: its inodes may be others at each look.
    User,
    /// Of one machine; nothing else is known of it.
    Local,
    /// Maybe shared by machines.
    Shared,
}

#[cfg(target_os = "linux")]
const KNOWN: [(u64, &str, Kind); 19] = [
    (0xef53, "ext4", Kind::InPlace),
    (0x5846_5342, "XFS", Kind::InPlace),
    (0x9123_683e, "btrfs", Kind::Copied),
    (0x0102_1994, "tmpfs", Kind::Memory),
    (0x8584_58f6, "ramfs", Kind::Memory),
    (0x794c_7630, "overlay", Kind::Local),
    (0x2fc1_2fc1, "ZFS", Kind::Copied),
    (0xf2f5_2010, "F2FS", Kind::Local),
    (0xca45_1a4e, "bcachefs", Kind::Copied),
    (0x3153_464a, "JFS", Kind::Local),
    (0x5265_4973, "ReiserFS", Kind::Local),
    (0x4d44, "FAT", Kind::Local),
    (0x2011_bab0, "exFAT", Kind::Local),
    (0x6573_5546, "FUSE", Kind::User),
    (0x6969, "NFS", Kind::Shared),
    (0xfe53_4d42, "SMB", Kind::Shared),
    (0xff53_4d42, "CIFS", Kind::Shared),
    (0x0102_1997, "9p", Kind::Shared),
    (0x00c3_6400, "Ceph", Kind::Shared),
];

const UNKNOWN: FileSystem = FileSystem {
    name: "an unknown file system",
    kind: Kind::Shared,
};

impl FileSystem {
    /// The file system of a file or directory; one that is not known, or cannot be asked for, may be shared by
    /// machines.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn of(path: &Path) -> Self {
        let number = rustix::fs::statfs(path).map(|found| found.f_type as u64 & 0xffff_ffff);
        let known = KNOWN.iter().find(|known| number == Ok(known.0));
        known.map_or(UNKNOWN, |&(_, name, kind)| FileSystem { name, kind })
    }

    /// The file system is not known here.
    #[must_use]
    #[cfg(not(target_os = "linux"))]
    pub fn of(_path: &Path) -> Self {
        UNKNOWN
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{FileSystem, Kind, UNKNOWN};
    use std::path::Path;

    #[test]
    fn file_systems_are_known_by_their_numbers() {
        let memory = FileSystem::of(Path::new("/dev/shm"));
        assert_eq!((memory.name, memory.kind), ("tmpfs", Kind::Memory));
        assert_eq!(FileSystem::of(Path::new("/no/such/path")), UNKNOWN);
    }
}
