//! The public API of the crate `millstream` and of the crates that it re-exports, as text: `crates/CRATE/api.txt`.
//!
//! `make lint` has rustdoc write its JSON in the place of doctests (`tests/rustdoc-json`); the crate `public-api`
//! makes the text of it.
//!
//! - `public_api target/doc` compares; it prints the difference and exits with 1.
//! - `public_api target/doc --write` renews the files.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use public_api::Builder;

/// The crates on which users depend, without `millstream-`; the first is the crate `millstream`.
const CRATES: [&str; 12] = [
    "",
    "cluster",
    "flow",
    "http",
    "journal",
    "kafka",
    "macros",
    "observe",
    "queue",
    "replication",
    "service",
    "wire",
];

fn main() -> Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let described = arguments
        .next()
        .context("usage: public_api DIRECTORY [--write]")?;
    let writes = arguments.next().as_deref() == Some("--write");
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut differs = false;
    for each in CRATES {
        let name = match each {
            "" => "millstream".to_owned(),
            each => format!("millstream-{each}"),
        };
        let json = Path::new(&described)
            .join(name.replace('-', "_"))
            .with_extension("json");
        let text = public_api(&json)?;
        let path = crates.join(&name).join("api.txt");
        if writes {
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        } else {
            differs |=
                print_difference(&name, &fs::read_to_string(&path).unwrap_or_default(), &text);
        }
    }
    Ok(ExitCode::from(u8::from(differs)))
}

/// One item a line. Of the auto traits a line has only a `Send` or `Sync` that is missing.
fn public_api(json: &Path) -> Result<String> {
    let api = Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_derived_impls(true)
        .build()
        .with_context(|| {
            format!(
                "{}: the crate public-api reads the JSON of another Rust",
                json.display()
            )
        })?;
    let lines = api.items().map(ToString::to_string);
    let mut lines: Vec<String> = lines.filter(|line| !is_common(line)).collect();
    lines.dedup();
    Ok(lines.join("\n") + "\n")
}

/// Whether a line is the impl of an auto trait that nearly every type has, or lacks without harm.
fn is_common(line: &str) -> bool {
    let auto = [
        "::Freeze for",
        "::Unpin for",
        "::UnsafeUnpin for",
        "UnwindSafe for",
        "marker::Send for",
        "marker::Sync for",
    ];
    let is_missing =
        line.contains("!core::marker::Send for") || line.contains("!core::marker::Sync for");
    line.starts_with("impl") && auto.iter().any(|each| line.contains(each)) && !is_missing
}

/// Prints the lines of one of two texts; true if there are any.
fn print_difference(name: &str, old: &str, new: &str) -> bool {
    let missing = |text: &str, line: &str| !text.lines().any(|other| other == line);
    let removed: Vec<_> = old
        .lines()
        .filter(|line| missing(new, line))
        .map(|line| format!("- {line}"))
        .collect();
    let added: Vec<_> = new
        .lines()
        .filter(|line| missing(old, line))
        .map(|line| format!("+ {line}"))
        .collect();
    if removed.is_empty() && added.is_empty() {
        return false;
    }
    println!("{name}: crates/{name}/api.txt differs; `make api` renews it");
    for line in removed.iter().chain(&added) {
        println!("{line}");
    }
    true
}
