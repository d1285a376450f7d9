//! The rights of a client, by its name.
//!
//! The invariant: once one name has a table of rights, a name without a table may not use any queue.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use crate::name;

/// The rights of all names.
///
/// ```
/// use millstream_queue::session::{Right, Rights};
///
/// let rights: Rights = toml::from_str("
///     [anna]
///     write = ['orders', 'mails*']
/// ").map_err(|error| error.to_string())?;
/// assert!(rights.of("anna").is_some_and(|anna| anna.may(Right::Write, "mails.new")));
/// assert!(rights.of("bob").is_some_and(|bob| !bob.may(Right::Read, "orders")));
/// assert!(Rights::default().of("bob").is_none());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Rights(BTreeMap<String, Grants>);

/// The rights of one name: patterns of queue names, in which `*` matches any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Grants {
    read: Vec<String>,
    write: Vec<String>,
    admin: Vec<String>,
}

/// A kind of right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub enum Right {
    /// Take and peek at items.
    Read,
    /// Put items.
    Write,
    /// Delete and flush queues; with the pattern `*`, commands to the whole server.
    Admin,
}

impl Rights {
    /// The rights of this name; `None` if no name has limited rights.
    pub fn of(&self, name: &str) -> Option<Arc<Grants>> {
        if self.0.is_empty() {
            return None;
        }
        let grants = self.0.get(name).cloned().unwrap_or_default();
        Some(Arc::new(grants))
    }

    /// The names that have a table.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Finds patterns that match no valid name.
    ///
    /// # Errors
    /// The table, the key and the pattern.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (name, grants) in &self.0 {
            for (key, patterns) in [
                ("read", &grants.read),
                ("write", &grants.write),
                ("admin", &grants.admin),
            ] {
                for pattern in patterns {
                    let example = pattern.replace('*', "x");
                    name::check(example.as_bytes())
                        .map_err(|fault| format!("user.{name}.{key}: \"{pattern}\": {fault}"))?;
                }
            }
        }
        Ok(())
    }
}

impl Grants {
    /// Whether this right holds for a queue.
    pub fn may(&self, right: Right, queue: &str) -> bool {
        let patterns = match right {
            Right::Read => &self.read,
            Right::Write => &self.write,
            Right::Admin => &self.admin,
        };
        patterns.iter().any(|pattern| matches(pattern, queue))
    }

    /// Whether any right holds for a queue: then its statistics are visible.
    pub fn may_see(&self, queue: &str) -> bool {
        [Right::Read, Right::Write, Right::Admin]
            .into_iter()
            .any(|right| self.may(right, queue))
    }

    /// Whether commands to the whole server are allowed: `admin` has the pattern `*`.
    pub fn may_administer(&self) -> bool {
        self.admin.iter().any(|pattern| pattern == "*")
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Right::Read => "read",
            Right::Write => "write to",
            Right::Admin => "administer",
        })
    }
}

/// Whether a name matches a pattern, in which `*` matches any characters, or none.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(begin) else {
        return false;
    };
    let mut parts = rest.split('*').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return left.ends_with(part);
        }
        // The first match leaves the most for the following parts.
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("orders", "orders", true),
            ("orders", "orders+audit", false),
            ("*", "any", true),
            ("orders*", "orders", true),
            ("orders*", "my-orders", false),
            ("*audit", "orders+audit", true),
            ("*audit", "audits", false),
            ("a*b*c", "abc", true),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*a*", "bab", true),
            ("**", "x", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_that_nothing_can_match_is_named() {
        let rights: Rights = toml::from_str("[ann]\nread = ['a*']\nwrite = ['a b']").unwrap();
        let error = rights.check().unwrap_err();
        assert!(error.starts_with("user.ann.write: \"a b\": "), "{error}");
    }
}
