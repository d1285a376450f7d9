//! The report of a proof: one JSON line for each promise, the same in CI and by hand.

use serde::Serialize;

/// A promise of `docs/promises.md` and how often it was put to the test.
#[derive(Clone, Debug, Serialize)]
pub struct ReportLine {
    /// The promise, by its number.
    pub promise: u32,
    /// The test.
    pub test: &'static str,
    /// How often.
    pub runs: u64,
    /// How often it was broken.
    pub failures: u64,
    /// The seed that repeats the first failure, or the first one of the run.
    pub first_seed: u64,
    /// The commit that was tested.
    pub commit: String,
}

impl ReportLine {
    /// The line without an end.
    #[must_use]
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// The commit of the working tree, or `unknown` outside of one; `+` when it was changed since.
#[must_use]
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = std::process::Command::new("git")
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(mut commit) = git(&["rev-parse", "--short", "HEAD"]) else {
        return "unknown".to_owned();
    };
    if git(&["status", "--porcelain"]).is_some_and(|changes| !changes.is_empty()) {
        commit.push('+');
    }
    commit
}
