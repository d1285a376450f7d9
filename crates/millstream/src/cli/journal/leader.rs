//! Where a leader is, and which of its journals are meant: for the verbs that ask one.

use std::path::{Path, PathBuf};

use super::super::{Failure, address};

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
    let (host, port) = address::parts(at)?;
    Ok(Leader {
        host: host.to_owned(),
        port,
        journal: journal.to_owned(),
    })
}

/// `HOST:PORT`.
pub(super) fn parse_address(text: &str) -> Result<(String, u16), String> {
    let (host, port) = address::parts(text)?;
    Ok((host.to_owned(), port))
}

impl Leader {
    /// The journals that are meant, by name and directory: the one in `dir`, or those of a set, each under its name there.
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
        Ok(journals)
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
