//! The address of a leader, the journals to follow, and how both sides authenticate: for the verbs that connect to one.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use millstream_observe::host_and_port;
use millstream_replication::{FollowerTls, ReplicationError, Secret, with_companions};

/// Where the leader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) journal: String,
}

/// `HOST:PORT[/NAME]`.
pub(super) fn parse(text: &str) -> Result<Leader, String> {
    let (at, journal) = text.split_once('/').unwrap_or((text, ""));
    let (host, port) = host_and_port(at)?;
    Ok(Leader {
        host: host.to_owned(),
        port,
        journal: journal.to_owned(),
    })
}

/// `HOST:PORT`.
pub(crate) fn parse_address(text: &str) -> Result<(String, u16), String> {
    let (host, port) = host_and_port(text)?;
    Ok((host.to_owned(), port))
}

impl Leader {
    /// The journals that are meant, by name and directory: the one in `dir`, or those of a set, each under its name
    /// there, with what services keep beside them.
    pub(super) fn journals(
        &self,
        dir: &Path,
        set: &[String],
    ) -> Result<Vec<(String, PathBuf)>, Failure> {
        if set.is_empty() {
            return Ok(vec![(self.journal.clone(), dir.to_owned())]);
        }
        if !self.journal.is_empty() {
            let name = &self.journal;
            return Err(Failure::usage(format!(
                "--set names the journals: leave '/{name}' out of the leader's address"
            )));
        }
        let mut journals: Vec<(String, PathBuf)> = Vec::new();
        for name in set {
            let plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
            if !plain || journals.iter().any(|(other, _)| other == name) {
                return Err(Failure::usage(format!(
                    "--set: '{name}' is no name of a journal, or is there twice"
                )));
            }
            journals.push((name.clone(), dir.join(name)));
        }
        let all = with_companions(&journals).into_iter();
        Ok(all.map(|(name, dir, _)| (name, dir)).collect())
    }
}

/// How this machine and a leader authenticate each other.
#[derive(clap::Args, Debug)]
pub(crate) struct Trust {
    /// A file with the secret of the leader, which both sides prove to each other over TLS.
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Accept only a leader with a certificate that one of those in this PEM file vouches for.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// The name in the leader's certificate [default: the host of its address].
    #[arg(long, value_name = "NAME", requires = "tls_ca")]
    tls_name: Option<String>,
    /// The certificate of this machine, in PEM, for a leader that asks for one (--tls-client-ca).
    #[arg(long, value_name = "FILE", requires_all = ["tls_key", "tls_ca"])]
    tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}

impl Trust {
    /// The secret, and the certificates.
    ///
    /// # Errors
    /// The file of the secret cannot be read.
    pub(crate) fn read(self) -> Result<(Option<Secret>, Option<FollowerTls>), ReplicationError> {
        let secret = self.secret_file.as_deref().map(Secret::read).transpose()?;
        let certificate = self.tls_cert.zip(self.tls_key);
        let tls = self.tls_ca.map(|authorities| FollowerTls {
            authorities,
            name: self.tls_name,
            certificate,
        });
        Ok((secret, tls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_is_an_address_and_perhaps_a_journal() {
        let leader = |host: &str, port, journal: &str| {
            Ok(Leader {
                host: host.to_owned(),
                port,
                journal: journal.to_owned(),
            })
        };
        assert_eq!(
            parse("a.example:7600/orders"),
            leader("a.example", 7600, "orders")
        );
        assert_eq!(parse(":7600"), leader("127.0.0.1", 7600, ""));
        assert_eq!(parse("[::1]:7600/o"), leader("::1", 7600, "o"));
        assert!(parse("a.example/orders").is_err());
    }
}
