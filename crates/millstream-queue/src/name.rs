//! The names of queues: which are valid, and how `parent+child` is divided.
//!
//! The invariant: a valid name is safe as the name of a directory, whatever a client sends.
//!
//! ```
//! use millstream_queue::name;
//!
//! assert_eq!(name::check(b"orders+audit"), Ok("orders+audit"));
//! assert_eq!(name::parent("orders+audit"), Some("orders"));
//! assert!(name::check(b"../evil").is_err());
//! ```

/// The longest name, in bytes: the longest key that memcache clients send.
pub const BYTES_MAX: usize = 250;

/// Why bytes are not a valid name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameFault {
    /// The name is empty.
    #[error("queue name is empty")]
    Empty,
    /// The name is longer than [`BYTES_MAX`].
    #[error("queue name is longer than 250 bytes")]
    TooLong,
    /// The name begins with a dot, or has nothing before or after a `+`.
    #[error("queue name must not begin with '.' nor have an empty part beside '+'")]
    Shape,
    /// The name has a slash, comma, tilde, space or control character, or bytes that are not UTF-8.
    #[error(
        "queue name has a character that is not allowed: '/', ',', '~', blank, control, or not UTF-8"
    )]
    Character,
}

/// Checks a name.
///
/// # Errors
/// What is wrong with the name; see [`NameFault`].
#[inline]
pub fn check(bytes: &[u8]) -> Result<&str, NameFault> {
    match bytes {
        [] => return Err(NameFault::Empty),
        [b'.' | b'+', ..] | [.., b'+'] => return Err(NameFault::Shape),
        _ if bytes.len() > BYTES_MAX => return Err(NameFault::TooLong),
        _ => {}
    }
    if bytes
        .iter()
        .any(|&byte| matches!(byte, 0..=b' ' | b'/' | b',' | b'~' | 0x7f))
    {
        return Err(NameFault::Character);
    }
    let name = str::from_utf8(bytes).map_err(|_| NameFault::Character)?;
    // Spaces and control characters beyond ASCII would be invisible in a listing.
    if !name.is_ascii() && name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(NameFault::Character);
    }
    Ok(name)
}

/// The parent of a fan-out queue, from which it gets a copy of each item.
pub fn parent(name: &str) -> Option<&str> {
    name.split_once('+').map(|(parent, _)| parent)
}

/// The queue that keeps the copies of the fan-out queue `child` while it cannot be opened. It is no fan-out queue
/// itself, and each has its own.
pub(crate) fn place_of_kept(child: &str) -> String {
    format!("{}.kept", child.replace('%', "%25").replace('+', "%2B"))
}

/// The fan-out queue whose copies the queue `place` keeps.
pub(crate) fn child_of_kept(place: &str) -> Option<String> {
    let child = place.strip_suffix(".kept")?;
    let child = child.replace("%2B", "+").replace("%25", "%");
    (parent(&child).is_some() && place_of_kept(&child) == place).then_some(child)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_as_folders() {
        let longest = [b'a'; BYTES_MAX];
        let good: [&[u8]; 7] = [
            b"q",
            b"orders+audit",
            b"a+b+c",
            b"a.b",
            b"a\\b:*?",
            "grün".as_bytes(),
            &longest,
        ];
        for name in good {
            assert!(check(name).is_ok(), "{name:?}");
        }
        let too_long = [b'a'; BYTES_MAX + 1];
        let bad: [(&[u8], NameFault); 14] = [
            (b"", NameFault::Empty),
            (b".", NameFault::Shape),
            (b"..", NameFault::Shape),
            (b".hidden", NameFault::Shape),
            (b"+a", NameFault::Shape),
            (b"a+", NameFault::Shape),
            (b"a/b", NameFault::Character),
            (b"a~~1", NameFault::Character),
            (b"a\0", NameFault::Character),
            (b"a b", NameFault::Character),
            (b"a\x7f", NameFault::Character),
            (b"a\xff", NameFault::Character),
            ("a\u{a0}b".as_bytes(), NameFault::Character),
            (&too_long, NameFault::TooLong),
        ];
        for (name, fault) in bad {
            assert_eq!(check(name), Err(fault), "{name:?}");
        }
    }

    #[test]
    fn the_parent_ends_at_the_first_plus() {
        assert_eq!(parent("a+b+c"), Some("a"));
        assert_eq!(parent("a"), None);
    }

    #[test]
    fn a_place_of_kept_copies_names_its_queue() {
        for child in ["a+b", "a%2B+b", "a%+b+c", "a.kept+b", "a+b.kept"] {
            let place = place_of_kept(child);
            assert_eq!(child_of_kept(&place).as_deref(), Some(child), "{place}");
            assert_eq!(parent(&place), None);
        }
        for other in ["a.kept", "a+b.kept", "a%2B.", "a%2b.kept", ".kept", "a%2Bb"] {
            assert_eq!(child_of_kept(other), None, "{other}");
        }
    }
}
