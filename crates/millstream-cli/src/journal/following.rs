//! What followers have in common; those of a state and of queues copy all that a leader has, at one address.

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_journal::Sync;
use millstream_replication::{FollowOptions, ReplicationError};

use super::leader::{Trust, parse_address};
use crate::moment;

/// How a copy is kept of all that a leader has, at one address.
#[derive(clap::Args, Debug)]
pub(crate) struct Following {
    /// Where the leader serves its followers.
    #[arg(value_name = "HOST:PORT", value_parser = parse_address)]
    leader: (String, u16),
    /// The directory of the copy, as the leader has the original; made when there is none.
    pub(crate) dir: PathBuf,
    #[command(flatten)]
    keeping: Keeping,
    /// The longest pause before another try.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = moment::parse_duration)]
    retry_max: Duration,
}

/// How a copy is kept.
#[derive(clap::Args, Debug)]
pub(super) struct Keeping {
    /// The follower's name, which no other follower of the leader has [default: this host's name and the directory's].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// When records are acknowledged: never, always, or a time like 100ms.
    #[arg(long, value_name = "WHEN", default_value = "always")]
    sync: Sync,
    #[command(flatten)]
    trust: Trust,
    /// End when the copy has all that the leader had when it was met. Do not try again after a failure.
    #[arg(long)]
    once: bool,
}

impl Keeping {
    /// As options of the follower of this leader into `dir`.
    ///
    /// # Errors
    /// The file of the secret cannot be read.
    pub(super) fn options(
        self,
        (host, port): (&str, u16),
        dir: &Path,
    ) -> Result<FollowOptions, ReplicationError> {
        let (secret, tls) = self.trust.read()?;
        Ok(FollowOptions {
            name: self.name.unwrap_or_else(|| own_name(dir)),
            sync: self.sync,
            secret,
            tls,
            once: self.once,
            ..FollowOptions::new(host, port, dir)
        })
    }
}

impl Following {
    /// As options of the follower, without what it follows.
    ///
    /// # Errors
    /// The file of the secret cannot be read.
    pub(crate) fn options(self) -> Result<FollowOptions, ReplicationError> {
        let (host, port) = &self.leader;
        Ok(FollowOptions {
            retry_max: self.retry_max,
            ..self.keeping.options((host, *port), &self.dir)?
        })
    }
}

/// The host's name and the directory's, as far as a cursor's name may have their letters.
pub(crate) fn own_name(dir: &Path) -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    // `.` and `x/..` have a name only as the whole path.
    let full = match dir.file_name() {
        Some(_) => None,
        None => dir.canonicalize().ok(),
    };
    let dir = full.as_deref().unwrap_or(dir);
    let dir = dir.file_name().unwrap_or(dir.as_os_str());
    let name = format!("{host}-{}", dir.to_string_lossy());
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || "-_.".contains(c) {
            c
        } else {
            '-'
        }
    };
    name.chars().map(fit).take(90).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_name_is_one_for_a_cursor() {
        let name = own_name(Path::new("/data/orders copy"));
        assert!(name.ends_with("-orders-copy") && name.len() <= 90, "{name}");
    }

    #[test]
    fn an_own_name_is_the_same_by_each_spelling_of_the_path() {
        let here = own_name(&std::env::current_dir().unwrap());
        for spelling in [".", "./", "src/.."] {
            assert_eq!(own_name(Path::new(spelling)), here, "{spelling}");
        }
    }
}
