//! The options of the page of a verb that serves: its address and its readers.

use std::path::{Path, PathBuf};

use millstream_observe::Observer;

use crate::address::parse_page;
use crate::failure::Failure;

/// The address of the page, and its readers.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct PageOptions {
    /// Show what the process does on a page at this address, like 8080 or 127.0.0.1:8080; its /metrics is for
    /// Prometheus. Port 0 takes a free one, which is logged.
    #[arg(long, value_name = "ADDR", value_parser = parse_page)]
    http: Option<String>,
    /// A file with the token of the readers of the page; required where other machines can read.
    #[arg(long, value_name = "FILE")]
    http_token_file: Option<PathBuf>,
    /// Let other machines read the page without a token.
    #[arg(long)]
    http_open: bool,
}

impl PageOptions {
    /// Whether readers must have a token.
    pub(crate) fn has_token(&self) -> bool {
        self.http_token_file.is_some()
    }

    /// These options with another default of the address.
    pub(crate) fn or_at(self, address: &str) -> Self {
        PageOptions {
            http: self.http.or_else(|| Some(address.to_owned())),
            ..self
        }
    }

    /// The page, bound to its address, if there is one.
    ///
    /// # Errors
    /// The file of the token cannot be read, or the address cannot be bound.
    pub(crate) fn observer(&self) -> Result<Option<Observer>, Failure> {
        if self.http.is_none() && (self.has_token() || self.http_open) {
            let message = "--http-token-file and --http-open need --http";
            return Err(Failure::usage(message));
        }
        self.http.as_ref().map(|_| self.bound()).transpose()
    }

    /// The page, bound to its address.
    ///
    /// # Errors
    /// As [`observer`](Self::observer), and if there is no address.
    pub(crate) fn bound(&self) -> Result<Observer, Failure> {
        let address = self.http.as_deref().unwrap_or_default();
        let mut page = millstream_observe::http(address).open(self.http_open);
        if let Some(path) = &self.http_token_file {
            page = page.token(&read_token(path)?);
        }
        page.bind().map_err(Failure::failed)
    }
}

/// The token in a file, without the line end.
///
/// # Errors
/// One line that names the file.
pub(crate) fn read_token(path: &Path) -> Result<String, Failure> {
    let named = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
    match text.trim() {
        "" => Err(named(&"the file is empty")),
        token => Ok(token.to_owned()),
    }
}
