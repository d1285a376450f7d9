//! Real file systems of a small size, on loop devices: what only a disk that is full, or broken, can show.
//!
//! They need root, loop devices and the programs that make file systems. Where these are missing the tests fail and say
//! so; `MILLSTREAM_WITHOUT_DISKS=1` accepts that.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// A file system that is mounted as long as this lives.
pub struct Disk {
    pub image: PathBuf,
    pub root: PathBuf,
    _folder: TempDir,
}

/// How a file system is made: the command, and its size in MiB.
fn maker(kind: &str) -> (Vec<&'static str>, u64) {
    match kind {
        "ext4" => (vec!["mkfs.ext4", "-q", "-F", "-m", "0"], 48),
        "xfs" => (vec!["mkfs.xfs", "-q", "-f", "-m", "reflink=1"], 320),
        "exfat" => (vec!["mkfs.exfat"], 48),
        "btrfs" => (vec!["mkfs.btrfs", "-q", "-f", "-M"], 160),
        other => panic!("no way to make {other}"),
    }
}

impl Disk {
    /// A file system of that kind; `None` when the environment accepts that there are none.
    pub fn new(kind: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let root = folder.path().join("root");
        std::fs::create_dir(&root).unwrap();
        let made = match kind {
            "tmpfs" => run(
                "mount",
                &["-t", "tmpfs", "-o", "size=24m", "tmpfs", text(&root)],
            ),
            "overlay" => overlay(folder.path(), &root),
            _ => {
                let (command, mib) = maker(kind);
                let file = std::fs::File::create(&image).unwrap();
                file.set_len(mib << 20).unwrap();
                let arguments: Vec<_> =
                    command[1..].iter().copied().chain([text(&image)]).collect();
                run(command[0], &arguments).and_then(|()| match kind {
                    "exfat" => in_a_process(&image, &root),
                    _ => mount(&image, &root),
                })
            }
        };
        let disk = Disk {
            image,
            root,
            _folder: folder,
        };
        match made {
            Ok(()) => Some(disk),
            Err(error) if std::env::var_os("MILLSTREAM_WITHOUT_DISKS").is_some() => {
                eprintln!("NOT TESTED on {kind}: {error}");
                None
            }
            Err(error) => panic!(
                "{error}\nThis test needs root, loop devices and the programs that .ci/run installs; \
                 MILLSTREAM_WITHOUT_DISKS=1 goes without it."
            ),
        }
    }

    /// The journal's directory on it.
    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    /// Take all room but about this many bytes, and all of it for 0. Returns the file to remove.
    pub fn fill(&self, but: u64) -> PathBuf {
        let path = self.root.join(format!("ballast-{but}"));
        let free = rustix::fs::statvfs(&self.root).unwrap();
        let bytes = (free.f_bavail * free.f_frsize).saturating_sub(but);
        let piece = vec![7; if but > 0 { 1 << 18 } else { 4096 }];
        let pieces = if but > 0 { bytes >> 18 } else { u64::MAX };
        // A directory entry may be too much already.
        if let Ok(mut file) = std::fs::File::create(&path) {
            let mut written = 0;
            while written < pieces && std::io::Write::write_all(&mut file, &piece).is_ok() {
                written += 1;
            }
            let _full = file.sync_all();
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _gone = run("umount", &["-l", text(&self.root)]);
    }
}

/// An ext4 with a layer over it.
fn overlay(folder: &Path, root: &Path) -> Result<(), String> {
    let layers = folder.join("layers");
    std::fs::create_dir(&layers).map_err(|error| error.to_string())?;
    let size = ["-t", "tmpfs", "-o", "size=24m", "tmpfs", text(&layers)];
    run("mount", &size)?;
    for layer in ["lower", "upper", "work"] {
        std::fs::create_dir(layers.join(layer)).map_err(|error| error.to_string())?;
    }
    let at = layers.display();
    let options = format!("lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work");
    let mounted = run(
        "mount",
        &["-t", "overlay", "-o", &options, "overlay", text(root)],
    );
    // It lives on below the overlay.
    let _gone = run("umount", &["-l", text(&layers)]);
    mounted
}

/// Mount an image; the loop device goes with the mount.
pub fn mount(image: &Path, root: &Path) -> Result<(), String> {
    run("mount", &["-o", "loop", text(image), text(root)])
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Mount an exFAT by FUSE. The loop device is released with it.
fn in_a_process(image: &Path, root: &Path) -> Result<(), String> {
    let script = r#"device=$(losetup --find --show "$0") && mount.exfat-fuse "$device" "$1"; done=$?; losetup --detach "$device"; exit $done"#;
    run("sh", &["-c", script, text(image), text(root)])
}

/// Run a program.
pub fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let done = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    if done.status.success() {
        Ok(())
    } else {
        Err(format!(
            "{program} {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&done.stderr).trim()
        ))
    }
}
