//! What is logged: the option `--log-level` of every program, `LEVEL[,MODULE=LEVEL...]`.
//!
//! ```
//! use millstream_observe::log_levels::Levels;
//! use tracing::level_filters::LevelFilter;
//!
//! let levels: Levels = "warning,flow.outbox=debug".parse()?;
//! assert_eq!(levels.all, Some(LevelFilter::WARN));
//! assert_eq!(levels.modules, [("flow.outbox".to_owned(), LevelFilter::DEBUG)]);
//! # Ok::<(), String>(())
//! ```

use std::str::FromStr;

use tracing::level_filters::LevelFilter;

/// The modules that may have a level of their own, and modules within them as in `flow.outbox`.
pub const MODULES: [&str; 13] = [
    "cli",
    "cluster",
    "flow",
    "http",
    "journal",
    "kafka",
    "link",
    "observe",
    "queue",
    "replication",
    "service",
    "supervisor",
    "wire",
];

/// The level of all modules, and those of single ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    pub all: Option<LevelFilter>,
    pub modules: Vec<(String, LevelFilter)>,
}

impl FromStr for Levels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut levels = Levels::default();
        for part in text.split(',') {
            let known = match part.split_once('=') {
                None => levels.all.replace(level(part)?).map(|_| "all modules"),
                Some((module, text)) => {
                    let before = levels.modules.iter().any(|(name, _)| name == module);
                    levels.modules.push((checked(module)?, level(text)?));
                    before.then_some(module)
                }
            };
            if let Some(name) = known {
                return Err(format!("the level of {name} is there twice"));
            }
        }
        Ok(levels)
    }
}

fn level(text: &str) -> Result<LevelFilter, String> {
    let name = if text == "warning" { "warn" } else { text };
    let known = ["off", "error", "warn", "info", "debug", "trace"].contains(&name);
    let level = name.parse().ok().filter(|_| known);
    level.ok_or_else(|| format!("{text:?} is no level: error, warning, info, debug, trace or off"))
}

fn checked(module: &str) -> Result<String, String> {
    let first = module.split('.').next().unwrap_or_default();
    if MODULES.contains(&first) {
        Ok(module.to_owned())
    } else {
        Err(format!(
            "{module:?} is no module with a log: {}",
            MODULES.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_level_or_module_or_is_there_twice_is_refused() {
        for wrong in [
            "loud",
            "info,debug",
            "queues=info",
            "queue=",
            "",
            "5",
            "flow=info,flow=off",
        ] {
            assert!(wrong.parse::<Levels>().is_err(), "{wrong}");
        }
    }
}
