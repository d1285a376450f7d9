//! The names and passwords of clients.

use std::str::FromStr;
use std::sync::Arc;

use subtle::ConstantTimeEq;

/// Names and passwords. Copies are cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Credentials(Arc<[Credential]>);

/// One name with its password.
#[derive(Clone, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Credential {
    name: String,
    /// Name, space, password: the bytes that a client sends.
    secret: String,
}

impl std::fmt::Debug for Credential {
    /// Without the password, which must not end up in a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Credential({})", self.name)
    }
}

impl Credential {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Credentials {
    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Credential::name)
    }

    /// The entry of a client that sends `NAME PASSWORD`. The time of a comparison does not depend on the contents.
    pub(super) fn find(&self, said: &[u8]) -> Option<&Credential> {
        self.0
            .iter()
            .find(|known| known.secret.as_bytes().ct_eq(said).into())
    }

    /// The entry with the same name and password.
    pub(super) fn find_same(&self, known: &Credential) -> Option<&Credential> {
        self.find(known.secret.as_bytes())
    }
}

impl FromStr for Credentials {
    type Err = String;

    /// A line `NAME:PASSWORD` for each, as in memcached's file. Empty lines are skipped. The error names the line.
    fn from_str(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate();
        lines
            .filter(|(_, line)| !line.trim().is_empty())
            .map(|(at, line)| {
                let (name, password) = line
                    .split_once(':')
                    .ok_or_else(|| format!("line {}: a line is not name:password", at + 1))?;
                Ok(Credential {
                    name: name.to_owned(),
                    secret: format!("{name} {password}"),
                })
            })
            .collect::<Result<_, String>>()
            .map(Credentials)
    }
}
