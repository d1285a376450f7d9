//! The name of a key's file.
//!
//! Invariant: two keys never share a file, and no name leaves the directory. A name is a single path component.
//! Letters, digits, `-`, `_` and `.` (not as the first character) stay unchanged, each other byte becomes `%`
//! and two hexadecimal digits, and the empty key becomes `%`. A name that is too long for a file system becomes
//! its first characters, `%~`, and a hash of the key; a second hash beside it shows whether two keys share such
//! a name.

use std::fmt::Write;

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

/// The longest name in bytes, without the suffix: file systems allow 255.
const NAME_MAX: usize = 200;
/// The number of bytes of a long key that stay readable.
const PREFIX_MAX: usize = 120;

/// The name of a key's file without the suffix, and a check that distinguishes keys with the same name.
pub(super) struct KeyName {
    pub(super) name: String,
    /// The kind of the key, and for a shortened name a second hash.
    pub(super) check: String,
}

/// Returns the file name of a key. The first byte of `key` is its kind, an ASCII letter, and not part of the
/// name.
pub(super) fn key_name(key: &[u8]) -> KeyName {
    let (kind, text) = match key.split_first() {
        Some((kind, text)) => (char::from(*kind), text),
        None => ('t', key),
    };
    let mut name = String::new();
    let mut prefix = 0;
    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b'-' | b'_' => name.push(byte.into()),
            b'.' if at > 0 => name.push('.'),
            _ if byte.is_ascii_alphanumeric() => name.push(byte.into()),
            _ => {
                // Writing to memory cannot fail.
                let _ = write!(name, "%{byte:02X}");
            }
        }
        if name.len() <= PREFIX_MAX {
            prefix = name.len();
        }
        if name.len() > NAME_MAX {
            name.truncate(prefix);
            let _ = write!(name, "%~{:032x}", xxh3_128(text));
            let check = format!("{kind}{:032x}", xxh3_128_with_seed(text, 1));
            return KeyName { name, check };
        }
    }
    if name.is_empty() {
        name.push('%');
    }
    let check = kind.to_string();
    KeyName { name, check }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn any_key_has_its_own_path_component() {
        let mut keys: Vec<Vec<u8>> = [
            "",
            ".",
            "..",
            "/",
            "a/b",
            "a%2Fb",
            "../../etc/passwd",
            "%",
            "a b",
            "größe",
        ]
        .iter()
        .map(|key| key.as_bytes().to_vec())
        .collect();
        keys.extend((0..=255).map(|byte| vec![byte]));
        keys.extend((0..=255).map(|byte| vec![b'x', byte]));
        keys.extend((190..400).map(|length| vec![b'x'; length]));
        keys.extend((190..400).map(|length| vec![b'/'; length]));
        keys.sort();
        keys.dedup();
        let mut names = HashSet::new();
        for key in &keys {
            let KeyName { name, check } = key_name(&[b"t", &key[..]].concat());
            assert!(!name.is_empty() && name.len() <= NAME_MAX, "{name}");
            assert!(!name.starts_with('.') && !name.contains('/'), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_graphic()), "{name}");
            assert!(check.starts_with('t') && !check.contains(' '), "{check}");
            assert!(names.insert(name), "{key:?}");
        }
        assert_eq!(names.len(), keys.len());
    }

    #[test]
    fn names_stay_the_same() {
        let name = |key: &[u8]| key_name(key).name;
        assert_eq!(name(b"torders.2024"), "orders.2024");
        assert_eq!(name(b"t../x"), "%2E.%2Fx");
        assert_eq!(name(b"t"), "%");
        let long = name(&[b't'; 302]);
        assert_eq!(long.len(), PREFIX_MAX + 34);
        assert_eq!(
            long[PREFIX_MAX..],
            format!("%~{:032x}", xxh3_128(&[b't'; 301]))
        );
    }
}
