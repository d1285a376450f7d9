//! The server of the page of a flow.

use std::path::Path;
use std::time::Duration;

use super::snapshot::Snapshot;
use crate::failure::Failure;

/// The time in which the server answers.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Where snapshots come from.
pub(super) struct Remote {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

impl Remote {
    /// The server at `address`, which may be a URL.
    ///
    /// # Errors
    /// A token file that cannot be read.
    pub(super) fn new(address: &str, token_file: Option<&Path>) -> Result<Self, Failure> {
        let token = token_file.map(|path| {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| Failure::usage(format!("{}: {error}", path.display())));
            text.map(|text| text.trim().to_owned())
        });
        let base = match address.contains("://") {
            true => address.to_owned(),
            false => format!("http://{address}"),
        };
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT));
        Ok(Remote {
            agent: config.build().into(),
            url: format!("{}/api/snapshot.json", base.trim_end_matches('/')),
            token: token.transpose()?,
        })
    }

    /// Returns the newest snapshot.
    ///
    /// # Errors
    /// One line that names the address.
    pub(super) fn snapshot(&self) -> Result<Snapshot, String> {
        let mut request = self.agent.get(&self.url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", self.url);
        let mut answer = request.call().map_err(|error| named(&error))?;
        let text = answer.body_mut().read_to_string();
        let text = text.map_err(|error| named(&error))?;
        serde_json::from_str(&text).map_err(|error| named(&error))
    }
}
