//! Keys: the name of a queue, then options after slashes (`jobs/open/t=500`).

use crate::name::{self, NameFault};

/// The key of a `get`: a queue, and options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GetKey<'a> {
    /// The queue.
    pub name: &'a str,
    /// Further queues, with commas between them: the first of all that has an item is meant.
    pub others: &'a str,
    /// The time to wait for an item, in milliseconds; 0 does not wait.
    pub wait_ms: u64,
    /// Open the item for this connection instead of taking it.
    pub open: bool,
    /// Confirm the oldest open item of this connection, or the item `id`.
    pub close: bool,
    /// Requeue the oldest open item of this connection, or the item `id`.
    pub abort: bool,
    /// The open item to confirm or requeue, of any connection.
    pub id: Option<u64>,
    /// With `abort`: the item is not served before this many milliseconds have passed, whatever the queue's retries
    /// are.
    pub delay_ms: Option<u64>,
    /// Return the next item, which stays in the queue.
    pub peek: bool,
    /// Return the item's properties besides its bytes and flags.
    pub details: bool,
    /// Take up to this many items of the queue, as far as they are there; without it one. `close` without an id then
    /// confirms all that the connection has open.
    pub items_max: Option<u64>,
}

/// The key of a `set`: a queue or an alias, and options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetKey<'a> {
    /// The queue, or an alias.
    pub name: &'a str,
    /// Sync this item whatever the queue's policy is.
    pub sync: bool,
    /// The item is not served before this many milliseconds have passed.
    pub delay_ms: u64,
    /// The client's name for this item: each of the queues takes it once.
    pub id: Option<&'a [u8]>,
}

/// The key of a `touch`: a queue, and the item to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchKey<'a> {
    /// The queue.
    pub name: &'a str,
    /// The open item, of any connection; without it all items of the queue that the connection has open.
    pub id: Option<u64>,
}

/// Why a key is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// The name before the options.
    #[error(transparent)]
    Name(#[from] NameFault),
    /// The option does not exist for this command.
    #[error("unknown option")]
    Option,
    /// The value of `t=` or `delay=`.
    #[error("a time must be a whole number of milliseconds")]
    Time,
    /// The value of `close=`, `abort=` or `id=`.
    #[error("the id of an item is a whole number")]
    Id,
    /// A `get` of too many queues at once.
    #[error("a get takes at most {QUEUES_MAX} queues")]
    Queues,
    /// The value of `id=` of a `set`.
    #[error("the id of a set has 1 to {SET_ID_BYTES_MAX} bytes")]
    SetId,
    /// Two ids of one request.
    #[error("a request has one id")]
    Ids,
    /// The id of an item of one of several queues.
    #[error("an id belongs to one queue")]
    IdOfSeveral,
    /// The value of `max=`.
    #[error("max must be a whole number from 1 on")]
    Max,
    /// A batch of a request that takes no items.
    #[error(
        "max goes with a get that takes or opens items, not with peek, abort, or close without open"
    )]
    MaxOfNone,
    /// Options that contradict each other.
    #[error("peek and abort go with no other option but t=, and delay= with abort")]
    Mix,
}

/// The longest id of a `set`, in bytes.
const SET_ID_BYTES_MAX: usize = 250;
/// The most queues of one `get`.
const QUEUES_MAX: usize = 100;

impl<'a> GetKey<'a> {
    /// Parses a key.
    ///
    /// # Errors
    /// The name is not valid, or the options are unknown or contradict each other.
    #[inline]
    pub fn parse(key: &'a [u8]) -> Result<Self, KeyFault> {
        let (names, options) = divide(key);
        let (name, others) = several(names)?;
        let mut parsed = GetKey {
            name,
            others,
            ..GetKey::default()
        };
        for option in options {
            match option {
                b"open" => parsed.open = true,
                b"close" => parsed.close = true,
                b"abort" => parsed.abort = true,
                b"peek" => parsed.peek = true,
                b"details" => parsed.details = true,
                // A client that joins parts with slashes may send an empty one.
                b"" => {}
                _ => parsed.with_value(option)?,
            }
        }
        let mixed = (parsed.peek || parsed.abort) && (parsed.open || parsed.close);
        let delays = parsed.delay_ms.is_some() && !parsed.abort;
        if mixed || delays || (parsed.peek && parsed.abort) {
            return Err(KeyFault::Mix);
        }
        if parsed.items_max.is_some() && (parsed.peek || parsed.only_ends()) {
            return Err(KeyFault::MaxOfNone);
        }
        if parsed.id.is_some() && !others.is_empty() {
            return Err(KeyFault::IdOfSeveral);
        }
        Ok(parsed)
    }

    /// All queues.
    pub fn names(&self) -> impl Iterator<Item = &'a str> + Clone + use<'a> {
        let others = self.others.split(',').filter(|name| !name.is_empty());
        [self.name].into_iter().chain(others)
    }

    /// An option with a value.
    fn with_value(&mut self, option: &[u8]) -> Result<(), KeyFault> {
        let at = memchr::memchr(b'=', option).ok_or(KeyFault::Option)?;
        let (option, value) = (&option[..at], &option[at + 1..]);
        match option {
            b"t" => self.wait_ms = milliseconds(value)?,
            b"delay" => self.delay_ms = Some(milliseconds(value)?),
            b"max" => self.items_max = Some(count(value)?),
            b"close" | b"abort" => {
                if self.id.replace(item_id(value)?).is_some() {
                    return Err(KeyFault::Ids);
                }
                (self.close, self.abort) = (
                    self.close || option == b"close",
                    self.abort || option == b"abort",
                );
            }
            _ => return Err(KeyFault::Option),
        }
        Ok(())
    }

    /// Whether the request ends an open read and does not ask for an item.
    #[inline]
    pub fn only_ends(&self) -> bool {
        self.abort || (self.close && !self.open)
    }
}

impl<'a> SetKey<'a> {
    /// Parses a key.
    ///
    /// # Errors
    /// The name is not valid, or an option is unknown.
    #[inline]
    pub fn parse(key: &'a [u8]) -> Result<Self, KeyFault> {
        let (name, options) = divide(key);
        let mut parsed = SetKey {
            name: name::check(name)?,
            ..SetKey::default()
        };
        for option in options {
            match option {
                b"sync" => parsed.sync = true,
                b"" => {}
                _ => parsed.with_value(option)?,
            }
        }
        Ok(parsed)
    }

    /// An option with a value.
    fn with_value(&mut self, option: &'a [u8]) -> Result<(), KeyFault> {
        if let Some(time) = option.strip_prefix(b"delay=") {
            self.delay_ms = milliseconds(time)?;
            return Ok(());
        }
        let id = option.strip_prefix(b"id=").ok_or(KeyFault::Option)?;
        if id.is_empty() || id.len() > SET_ID_BYTES_MAX {
            return Err(KeyFault::SetId);
        }
        match self.id.replace(id) {
            None => Ok(()),
            Some(_) => Err(KeyFault::Ids),
        }
    }
}

impl<'a> TouchKey<'a> {
    /// Parses a key: `QUEUE` or `QUEUE/id=ID`.
    ///
    /// # Errors
    /// The name is not valid, or an option is unknown.
    pub fn parse(key: &'a [u8]) -> Result<Self, KeyFault> {
        let (name, options) = divide(key);
        let mut parsed = TouchKey {
            name: name::check(name)?,
            id: None,
        };
        for option in options.filter(|option| !option.is_empty()) {
            let id = option.strip_prefix(b"id=").ok_or(KeyFault::Option)?;
            if parsed.id.replace(item_id(id)?).is_some() {
                return Err(KeyFault::Ids);
            }
        }
        Ok(parsed)
    }
}

/// Name and options; a key without a slash has none.
#[inline]
fn divide(key: &[u8]) -> (&[u8], impl Iterator<Item = &[u8]>) {
    let slash = memchr::memchr(b'/', key);
    let (bytes, options) = key.split_at(slash.unwrap_or(key.len()));
    let options = slash.map(|_| options[1..].split(|&byte| byte == b'/'));
    (bytes, options.into_iter().flatten())
}

/// The first name and the others.
#[inline]
fn several(names: &[u8]) -> Result<(&str, &str), KeyFault> {
    match memchr::memchr(b',', names) {
        None => Ok((name::check(names)?, "")),
        Some(comma) => {
            let others = &names[comma + 1..];
            for (number, other) in others.split(|&byte| byte == b',').enumerate() {
                name::check(other)?;
                if number + 1 >= QUEUES_MAX {
                    return Err(KeyFault::Queues);
                }
            }
            // Each part is UTF-8.
            let others = str::from_utf8(others).map_err(|_| NameFault::Character)?;
            Ok((name::check(&names[..comma])?, others))
        }
    }
}

fn item_id(digits: &[u8]) -> Result<u64, KeyFault> {
    super::parser::number(digits).ok_or(KeyFault::Id)
}

fn count(digits: &[u8]) -> Result<u64, KeyFault> {
    let count = super::parser::number(digits).filter(|&count| count > 0);
    count.ok_or(KeyFault::Max)
}

fn milliseconds(digits: &[u8]) -> Result<u64, KeyFault> {
    super::parser::number(digits).ok_or(KeyFault::Time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_in_any_order() {
        let key = GetKey::parse(b"jobs/t=500/open/close").unwrap();
        let expected = GetKey {
            name: "jobs",
            wait_ms: 500,
            open: true,
            close: true,
            ..GetKey::default()
        };
        assert_eq!(key, expected);
        assert!(!key.only_ends());
        assert!(GetKey::parse(b"jobs/close/t=9").unwrap().only_ends());
        assert_eq!(GetKey::parse(b"jobs/").unwrap().name, "jobs");
        let key = GetKey::parse(b"jobs/close=12/open").unwrap();
        assert_eq!((key.close, key.open, key.id), (true, true, Some(12)));
        let key = GetKey::parse(b"jobs/abort=0").unwrap();
        assert_eq!((key.abort, key.close, key.id), (true, false, Some(0)));
        let key = GetKey::parse(b"a,b+c,d/open").unwrap();
        assert_eq!(key.names().collect::<Vec<_>>(), ["a", "b+c", "d"]);
        let key = GetKey::parse(b"jobs/abort=7/delay=500").unwrap();
        assert_eq!(
            (key.abort, key.id, key.delay_ms),
            (true, Some(7), Some(500))
        );
        let key = GetKey::parse(b"jobs/max=50/close/open").unwrap();
        assert_eq!((key.items_max, key.close, key.open), (Some(50), true, true));
        let touch = |name, id| TouchKey { name, id };
        assert_eq!(TouchKey::parse(b"jobs"), Ok(touch("jobs", None)));
        assert_eq!(TouchKey::parse(b"jobs/id=5"), Ok(touch("jobs", Some(5))));
        let set = SetKey {
            name: "jobs",
            sync: true,
            delay_ms: 20,
            id: Some(b"ORDER=17"),
        };
        assert_eq!(SetKey::parse(b"jobs/sync/id=ORDER=17/delay=20"), Ok(set));
    }

    #[test]
    fn bad_keys_say_why() {
        let table: [(&[u8], KeyFault); 27] = [
            (b"a/close=1/close=2", KeyFault::Ids),
            (b"a,/open", KeyFault::Name(NameFault::Empty)),
            (b",a", KeyFault::Name(NameFault::Empty)),
            (b"a,.b", KeyFault::Name(NameFault::Shape)),
            (b"a,b/close=1", KeyFault::IdOfSeveral),
            (b"jobs/delay=5", KeyFault::Mix),
            (b"jobs/open/delay=5", KeyFault::Mix),
            (b"jobs/abort/delay=-5", KeyFault::Time),
            (b"/open", KeyFault::Name(NameFault::Empty)),
            (b"jobs/opne", KeyFault::Option),
            (b"jobs/OPEN", KeyFault::Option),
            (b"jobs/t=", KeyFault::Time),
            (b"jobs/t=-1", KeyFault::Time),
            (b"jobs/t=99999999999999999999", KeyFault::Time),
            (b"jobs/peek/open", KeyFault::Mix),
            (b"jobs/abort/close", KeyFault::Mix),
            (b"jobs/abort/peek", KeyFault::Mix),
            (b"jobs/close=1/abort=2", KeyFault::Ids),
            (b"jobs/close=", KeyFault::Id),
            (b"jobs/abort=first", KeyFault::Id),
            (b"jobs/open=3", KeyFault::Option),
            (b"jobs/max=", KeyFault::Max),
            (b"jobs/max=0", KeyFault::Max),
            (b"jobs/open/max=-1", KeyFault::Max),
            (b"jobs/peek/max=2", KeyFault::MaxOfNone),
            (b"jobs/abort/max=2", KeyFault::MaxOfNone),
            (b"jobs/max=2/close", KeyFault::MaxOfNone),
        ];
        for (key, fault) in table {
            assert_eq!(GetKey::parse(key), Err(fault), "{key:?}");
        }
        assert_eq!(SetKey::parse(b"jobs/open"), Err(KeyFault::Option));
        assert_eq!(SetKey::parse(b"jobs/id="), Err(KeyFault::SetId));
        assert_eq!(SetKey::parse(b"jobs/id=1/id=1"), Err(KeyFault::Ids));
        let id = |length| [b"jobs/id=".as_slice(), &vec![b'x'; length]].concat();
        assert!(SetKey::parse(&id(SET_ID_BYTES_MAX)).is_ok());
        let long = id(SET_ID_BYTES_MAX + 1);
        assert_eq!(SetKey::parse(&long), Err(KeyFault::SetId));
        let character = Err(KeyFault::Name(NameFault::Character));
        assert_eq!(SetKey::parse(b"a,b"), character);
        let names = |count| vec!["q"; count].join(",").into_bytes();
        assert!(GetKey::parse(&names(QUEUES_MAX)).is_ok());
        assert_eq!(GetKey::parse(&names(QUEUES_MAX + 1)), Err(KeyFault::Queues));
        assert_eq!(TouchKey::parse(b"jobs/open"), Err(KeyFault::Option));
        assert_eq!(TouchKey::parse(b"jobs/id=x"), Err(KeyFault::Id));
    }
}
