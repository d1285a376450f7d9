//! Where the figures come from: the server of a page, or a directory.

use std::path::Path;
use std::time::{Duration, Instant};

use millstream_observe::conditions::Evaluator;
use millstream_observe::sections::journals::Journals;
use millstream_observe::{Section, Snapshot};

use crate::failure::Failure;
use crate::watch::roots;

/// The time in which the server answers.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The pause while a directory is looked at for the first time.
const PAUSE: Duration = Duration::from_millis(5);

/// Where snapshots come from.
pub(super) enum Remote {
    Page(PageOf),
    Directory(Journals, Box<Evaluator>),
}

/// The server of a page.
pub(super) struct PageOf {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

impl Remote {
    /// The directory `of`, if there is one, else the server at this address, which may be a URL.
    ///
    /// # Errors
    /// A token file that cannot be read.
    pub(super) fn new(of: &str, token_file: Option<&Path>) -> Result<Self, Failure> {
        if Path::new(of).is_dir() {
            let journals = Journals::watch(roots(&[of.into()])?, false, None);
            let journals = journals.map_err(Failure::failed)?;
            return Ok(Remote::Directory(journals, Box::default()));
        }
        let address = of;
        let token = token_file.map(|path| {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| Failure::usage(format!("{}: {error}", path.display())));
            text.map(|text| text.trim().to_owned())
        });
        let base = if address.contains("://") {
            address.to_owned()
        } else {
            format!("http://{address}")
        };
        let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT));
        Ok(Remote::Page(PageOf {
            agent: config.build().into(),
            url: format!("{}/api/snapshot.json", base.trim_end_matches('/')),
            token: token.transpose()?,
        }))
    }

    /// Returns the newest snapshot.
    ///
    /// # Errors
    /// One line that names the address.
    pub(super) fn snapshot(&mut self) -> Result<Snapshot, String> {
        match self {
            Remote::Page(page) => page.snapshot(),
            Remote::Directory(journals, evaluator) => looked_at(journals, evaluator),
        }
    }
}

/// The figures of a directory, as a page has them.
#[expect(
    clippy::disallowed_methods,
    reason = "another thread reads the directory"
)]
fn looked_at(journals: &Journals, evaluator: &mut Evaluator) -> Result<Snapshot, String> {
    let start = Instant::now();
    while let Some(why) = journals.obstacle() {
        if start.elapsed() > TIMEOUT {
            return Err(why);
        }
        std::thread::sleep(PAUSE);
    }
    let mut snapshot = Snapshot::default();
    journals.add(&mut snapshot);
    evaluator.complete(&mut snapshot);
    Ok(snapshot)
}

impl PageOf {
    fn snapshot(&self) -> Result<Snapshot, String> {
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
