//! The configuration: defaults, and settings of single queues.
//!
//! The invariant: a configuration that was read is consistent. The settings of a queue do not depend on the order in
//! which queues are created. A fan-out queue inherits from its parent, which inherits from the defaults;
//! `delete_empty_after` alone is not inherited.
//!
//! ```
//! use millstream_queue::config::{Config, Sync};
//!
//! let config: Config = r#"
//!     [defaults]
//!     sync = "always"
//!     max_item_bytes = 65536
//!
//!     [queue.orders]
//!     max_items = 1_000_000
//!     max_age = "24h"
//!     expire_to = "late-orders"
//! "#
//! .parse()?;
//! assert_eq!(config.settings("orders+audit").max_items, Some(1_000_000));
//! assert_eq!(config.settings("other").sync, Sync::Always);
//! # Ok::<(), String>(())
//! ```

mod limits;
mod retry;
mod time;

use std::collections::BTreeMap;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

pub use millstream_journal::Sync;
use serde::{Deserialize, Deserializer};

use crate::error::QueueError;
use crate::name;
use crate::session::Rights;

pub use self::limits::ServerLimits;
pub use self::retry::Retry;
use self::time::Time;

/// Deserializes a [`Sync`]: a word or a time.
fn sync<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Sync>, D::Error> {
    let text = String::deserialize(from)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// What happens to an item of which a fan-out queue cannot get a copy, since it cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[doc(hidden)] // For the other crates of Millstream.
pub enum OnClosed {
    /// It is refused, for the parent and all others.
    Refuse,
    /// The copy is kept in another queue, `orders%2Baudit.kept` for `orders+audit`, and moves when the queue is open
    /// again or begins anew.
    Keep,
    /// The queue gets no copy.
    Skip,
}

/// The settings of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Settings {
    /// The number of items beyond which a set is refused, or the oldest item removed.
    pub max_items: Option<u64>,
    /// The same limit for the sum of their lengths.
    pub max_bytes: Option<u64>,
    /// The longest item. The server's own limit holds as well.
    pub max_item_bytes: Option<u64>,
    /// The time after which every item expires.
    pub max_age: Option<Duration>,
    /// Whether a full queue removes its oldest items instead of refusing new ones.
    pub discard_old: bool,
    /// Whether a full fan-out queue skips its copy of an item, instead of refusing the item for its parent and all
    /// others.
    pub skip_full: bool,
    /// What happens to an item of which the queue, a fan-out queue, cannot get a copy since it cannot be opened.
    pub on_closed: OnClosed,
    /// The queue for expired items; without it they are removed.
    pub expire_to: Option<String>,
    /// Whether items are put into the fan-out queues only.
    pub fanout_only: bool,
    /// When an item is durable.
    pub sync: Sync,
    /// The memory of ready items, with about 96 bytes for each; the others stay on disk until they are next.
    pub memory_bytes: u64,
    /// The number of items of the queue that one connection may have open. Without it `get` may have one open, and
    /// `monitor` as many as a connection may have in total.
    pub max_opens: Option<usize>,
    /// The time after which an open item is requeued.
    pub open_timeout: Option<Duration>,
    /// The number of deliveries after which an item is not delivered again.
    pub max_deliveries: Option<u32>,
    /// How long an item that was delivered in vain waits before it is served again.
    pub retry: Option<Retry>,
    /// Whether all items that a lost consumer had open count as delivered in vain. Otherwise only the one that it
    /// opened first does.
    pub count_all_failures: bool,
    /// The queue for such items; without it they are removed.
    pub error_queue: Option<String>,
    /// The time after which an empty, unused queue is deleted.
    pub delete_empty_after: Option<Duration>,
    /// How long the queue remembers the id of a set, so that a second one adds nothing. Without it sets may have no
    /// ids.
    pub dedupe: Option<Duration>,
    /// The number of ids that the queue remembers: a further set with an id is refused.
    pub dedupe_ids: usize,
}

/// The number of ids that a queue remembers.
const DEDUPE_IDS: usize = 100_000;

impl Default for Settings {
    fn default() -> Self {
        Settings {
            max_items: None,
            max_bytes: None,
            max_item_bytes: None,
            max_age: None,
            discard_old: false,
            skip_full: false,
            on_closed: OnClosed::Refuse,
            expire_to: None,
            fanout_only: false,
            sync: Sync::Always,
            memory_bytes: 128 << 20,
            max_opens: None,
            open_timeout: None,
            max_deliveries: None,
            retry: None,
            count_all_failures: false,
            error_queue: None,
            delete_empty_after: None,
            dedupe: None,
            dedupe_ids: DEDUPE_IDS,
        }
    }
}

/// One table of the file; missing values are inherited. A number of 0, a time of 0 and an empty name override an
/// inherited value with none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Table {
    max_items: Option<u64>,
    max_bytes: Option<u64>,
    max_item_bytes: Option<u64>,
    max_age: Option<Time>,
    discard_old: Option<bool>,
    on_full: Option<OnFull>,
    on_closed: Option<OnClosed>,
    expire_to: Option<String>,
    fanout_only: Option<bool>,
    #[serde(deserialize_with = "sync")]
    sync: Option<Sync>,
    memory_bytes: Option<u64>,
    max_opens: Option<usize>,
    open_timeout: Option<Time>,
    max_deliveries: Option<u32>,
    retry: Option<retry::Table>,
    count_failures: Option<Failures>,
    error_queue: Option<String>,
    delete_empty_after: Option<Time>,
    dedupe: Option<Time>,
    dedupe_ids: Option<usize>,
}

/// Which of the items that a lost consumer had open were delivered in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Failures {
    First,
    All,
}

/// What a full queue does with a new item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum OnFull {
    Refuse,
    DropOldest,
    Skip,
}

impl Table {
    fn has_tries(&self) -> bool {
        self.retry.is_some_and(|retry| retry.tries().is_some())
    }

    fn apply(&self, to: &mut Settings) {
        fn number<T: Copy + PartialEq + Default>(said: Option<T>, to: &mut Option<T>) {
            if let Some(said) = said {
                *to = (said != T::default()).then_some(said);
            }
        }
        fn time(said: Option<Time>, to: &mut Option<Duration>) {
            number(said.map(|time| time.0), to);
        }
        fn queue(said: &Option<String>, to: &mut Option<String>) {
            if let Some(said) = said {
                *to = (!said.is_empty()).then(|| said.clone());
            }
        }
        number(self.max_items, &mut to.max_items);
        number(self.max_bytes, &mut to.max_bytes);
        number(self.max_item_bytes, &mut to.max_item_bytes);
        number(self.max_deliveries, &mut to.max_deliveries);
        if let Some(retry) = &self.retry {
            to.retry = retry.delays();
            number(retry.tries(), &mut to.max_deliveries);
        }
        number(self.max_opens, &mut to.max_opens);
        time(self.max_age, &mut to.max_age);
        time(self.open_timeout, &mut to.open_timeout);
        time(self.delete_empty_after, &mut to.delete_empty_after);
        time(self.dedupe, &mut to.dedupe);
        match self.dedupe_ids {
            None => {}
            Some(0) => to.dedupe_ids = DEDUPE_IDS,
            Some(ids) => to.dedupe_ids = ids,
        }
        queue(&self.expire_to, &mut to.expire_to);
        queue(&self.error_queue, &mut to.error_queue);
        to.discard_old = self.discard_old.unwrap_or(to.discard_old);
        if let Some(on_full) = self.on_full {
            to.discard_old = on_full == OnFull::DropOldest;
            to.skip_full = on_full == OnFull::Skip;
        }
        to.on_closed = self.on_closed.unwrap_or(to.on_closed);
        if let Some(failures) = self.count_failures {
            to.count_all_failures = failures == Failures::All;
        }
        to.fanout_only = self.fanout_only.unwrap_or(to.fanout_only);
        to.sync = self.sync.unwrap_or(to.sync);
        to.memory_bytes = self.memory_bytes.unwrap_or(to.memory_bytes);
    }
}

/// The configuration of all queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    defaults: Table,
    queue: BTreeMap<String, Table>,
    /// A name for several queues, for `set` only.
    alias: BTreeMap<String, Vec<String>>,
    limits: ServerLimits,
    /// The rights of the names of clients.
    user: Rights,
}

impl Config {
    /// A configuration with this sync policy for all queues.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn with_sync(sync: Sync) -> Self {
        Config {
            defaults: Table {
                sync: Some(sync),
                ..Table::default()
            },
            ..Config::default()
        }
    }

    /// Uses `sync` where the file does not say.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn or_sync(mut self, sync: Sync) -> Self {
        self.defaults.sync.get_or_insert(sync);
        self
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file and the line, and what is wrong there.
    pub fn read(path: &Path) -> Result<Self, QueueError> {
        let fault = |message: String| QueueError::Config {
            path: path.to_owned(),
            message,
        };
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        text.parse().map_err(fault)
    }

    /// The settings of a queue.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn settings(&self, name: &str) -> Settings {
        // Copies that are kept for a fan-out queue expire as they would there.
        if let Some(child) = name::child_of_kept(name) {
            return self.settings(&child);
        }
        let mut settings = Settings::default();
        self.defaults.apply(&mut settings);
        for name in name::parent(name).into_iter().chain([name]) {
            if let Some(table) = self.queue.get(name) {
                table.apply(&mut settings);
            }
        }
        // A subscription ends only by its own setting.
        if name::parent(name).is_some() {
            let own = self.queue.get(name).and_then(|own| own.delete_empty_after);
            settings.delete_empty_after = own.map(|time| time.0).filter(|time| !time.is_zero());
        }
        // A default does not send the items of a queue to itself.
        let elsewhere = |target: Option<String>| target.filter(|target| target != name);
        settings.expire_to = elsewhere(settings.expire_to);
        let is_own = settings.error_queue.as_deref() == Some(name);
        settings.error_queue = elsewhere(settings.error_queue);
        // Dead letters that fail again stay dead letters.
        let says = |table: &Table| table.max_deliveries.is_some() || table.has_tries();
        if is_own && !self.queue.get(name).is_some_and(says) {
            settings.max_deliveries = None;
        }
        settings
    }

    /// The fan-out queues that have settings of their own.
    pub(crate) fn subscribers(&self) -> Vec<String> {
        let named = self
            .queue
            .keys()
            .filter(|name| name::parent(name).is_some());
        named.cloned().collect()
    }

    /// The limits of connections. They hold for connections made later.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn limits(&self) -> ServerLimits {
        self.limits.clone()
    }

    /// The rights of each name, on a server.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn rights(&self) -> &Rights {
        &self.user
    }

    /// The queues of an alias; `None` if the name is not an alias.
    #[doc(hidden)] // For the other crates of Millstream.
    pub fn alias(&self, name: &str) -> Option<&[String]> {
        self.alias.get(name).map(Vec::as_slice)
    }

    fn check(&self) -> Result<(), String> {
        self.user.check()?;
        self.limits.check()?;
        let named = |place: &str, name: &str| {
            name::check(name.as_bytes())
                .map(|_| ())
                .map_err(|fault| format!("{place}: \"{name}\": {fault}"))
        };
        for (queue, table) in [("", &self.defaults)]
            .into_iter()
            .chain(self.queue.iter().map(|(q, t)| (q.as_str(), t)))
        {
            let place = if queue.is_empty() {
                "defaults".to_owned()
            } else {
                format!("queue.{queue}")
            };
            if !queue.is_empty() {
                named(&place, queue)?;
            }
            if table.discard_old.is_some() && table.on_full.is_some() {
                return Err(format!(
                    "{place}: discard_old and on_full say the same thing: one of them is needed"
                ));
            }
            if table.max_deliveries.is_some() && table.has_tries() {
                return Err(format!(
                    "{place}: max_deliveries and the tries of retry say the same thing: one of them is needed"
                ));
            }
            for (key, target) in [
                ("expire_to", &table.expire_to),
                ("error_queue", &table.error_queue),
            ] {
                let Some(target) = target.as_deref().filter(|target| !target.is_empty()) else {
                    continue;
                };
                named(&format!("{place}.{key}"), target)?;
                if target == queue {
                    return Err(format!(
                        "{place}.{key}: a queue cannot send items to itself"
                    ));
                }
                if self.alias.contains_key(target) {
                    return Err(format!("{place}.{key}: \"{target}\" is an alias"));
                }
            }
        }
        for (alias, queues) in &self.alias {
            named("alias", alias)?;
            if self.queue.contains_key(alias) {
                return Err(format!("alias.{alias}: there is a queue of this name"));
            }
            if queues.is_empty() {
                return Err(format!(
                    "alias.{alias}: names no queue, so that its items would be nowhere"
                ));
            }
            for queue in queues {
                named(&format!("alias.{alias}"), queue)?;
                if self.alias.contains_key(queue) {
                    return Err(format!("alias.{alias}: \"{queue}\" is an alias itself"));
                }
            }
        }
        Ok(())
    }
}

impl FromStr for Config {
    type Err = String;

    /// The error names the line, or the table and key.
    fn from_str(text: &str) -> Result<Self, String> {
        let config: Config = toml::from_str(text).map_err(|error| located(text, &error))?;
        config.check()?;
        Ok(config)
    }
}

/// One line instead of the picture that `toml` draws.
fn located(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| {
        1 + text[..span.start.min(text.len())].matches('\n').count()
    });
    format!("line {line}: {}", error.message().replace('\n', ", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_inherited_and_taken_back() {
        let config: Config = r#"
            [defaults]
            max_items = 10
            expire_to = "late"
            [queue.a]
            max_age = "2s"
            discard_old = true
            [queue."a+b"]
            max_items = 0
            expire_to = ""
        "#
        .parse()
        .unwrap();
        let (a, b, late) = (
            config.settings("a"),
            config.settings("a+b"),
            config.settings("late"),
        );
        assert_eq!(
            (a.max_items, a.expire_to.as_deref()),
            (Some(10), Some("late"))
        );
        assert_eq!(
            (b.max_items, b.expire_to, b.discard_old),
            (None, None, true)
        );
        assert_eq!(b.max_age, Some(Duration::from_secs(2)));
        assert_eq!(late.expire_to, None);
        let config: Config = "[defaults]\nmax_deliveries = 2\nerror_queue = 'dead'"
            .parse()
            .unwrap();
        let of = |name| config.settings(name).max_deliveries;
        assert_eq!((of("a"), of("dead")), (Some(2), None));
        let own: Config = "[defaults]\nmax_deliveries = 2\nerror_queue = 'dead'\n[queue.dead]\nmax_deliveries = 9"
            .parse()
            .unwrap();
        assert_eq!(own.settings("dead").max_deliveries, Some(9));
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        for (text, expected) in [
            (
                "[defaults]\nmax_itmes = 1",
                "line 2: unknown field `max_itmes`",
            ),
            ("[defaults]\nmax_items = -1", "line 2: invalid value"),
            (
                "[defaults]\n\nmax_age = \"soon\"",
                "line 3: \"soon\" is no time",
            ),
            (
                "[defaults]\nsync = \"maybe\"",
                "line 2: \"maybe\" is none of never",
            ),
            (
                "[queue.\"a/b\"]\n",
                "queue.a/b: \"a/b\": queue name has a character",
            ),
            (
                "[queue.a]\nexpire_to = \"a\"",
                "queue.a.expire_to: a queue cannot send items to itself",
            ),
            (
                "[alias]\nall = [\"a\", \"b c\"]",
                "alias.all: \"b c\": queue name",
            ),
            (
                "[alias]\nall = [\"both\"]\nboth = [\"a\"]",
                "alias.all: \"both\" is an alias itself",
            ),
            (
                "[queue.a]\n[alias]\na = [\"b\"]",
                "alias.a: there is a queue of this name",
            ),
            ("[defaults", "line 1: "),
            ("[alias]\nall = []", "alias.all: names no queue"),
            (
                "[limits]\nitem_bytes = 134_217_729",
                "limits.item_bytes is 134217729, more than 134217728",
            ),
            (
                "[queue.a]\non_full = \"skip\"\ndiscard_old = true",
                "queue.a: discard_old and on_full say the same thing",
            ),
            ("[user.ann]\nreed = [\"a\"]", "line 2: unknown field `reed`"),
            (
                "[user.ann]\nread = [\"a/*\"]",
                "user.ann.read: \"a/*\": queue name has a character",
            ),
            (
                "[queue.a]\non_full = \"drop\"",
                "line 2: unknown variant `drop`",
            ),
        ] {
            let error = text.parse::<Config>().unwrap_err();
            assert!(error.starts_with(expected), "{text:?} gives {error:?}");
            assert!(!error.contains('\n'));
        }
    }
}
