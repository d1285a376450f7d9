//! Tokens of OAuth 2.0 by client credentials (RFC 6749, section 4.4).
//!
//! A token is fetched when it is needed, kept until shortly before its end, and fetched once more after a 401.
//! Invariant: no error, log or `Debug` text has the secret or a token.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use millstream_flow::clock::now_ns;
use serde_json::Value;
use ureq::Agent;
use ureq::http::HeaderValue;
use ureq::http::header::{ACCEPT, AUTHORIZATION};

use super::answer::{Failed, read};
use super::request::check_url;
use crate::lock;

/// A token is fetched again so long before its end, or after three quarters of its time.
const MARGIN: Duration = Duration::from_secs(60);
/// While the token server is away and the token is still good, it is asked so often.
const AGAIN: Duration = Duration::from_secs(5);
/// What an error quotes of the code of an error of the token server, in characters.
const CODE_MAX: usize = 60;

/// How a sink gets its tokens: client credentials of OAuth 2.0. The secret is in no error, log or `Debug` text.
///
/// ```
/// use millstream_http::OAuth;
///
/// let oauth = OAuth::new("https://login.example.com/token", "shop", "secret").scope("orders.write");
/// assert!(!format!("{oauth:?}").contains("secret"));
/// let sink = millstream_http::post("https://example.com/orders").oauth(oauth);
/// # drop(sink);
/// ```
#[derive(Clone)]
pub struct OAuth {
    url: String,
    id: String,
    secret: String,
    parameters: Vec<(String, String)>,
    in_body: bool,
    tokens: Arc<Mutex<Tokens>>,
}

/// The token, and what became of the last request for one.
#[derive(Default)]
struct Tokens {
    token: Option<Token>,
    /// How the token server has failed in the current delivery: its other requests do not ask again.
    failed: Option<Failed>,
}

struct Token {
    header: HeaderValue,
    /// The times of the engine's clock when it is fetched again, and when it ends.
    refresh_at: u64,
    ends_at: u64,
}

impl OAuth {
    /// Gets tokens from `url` for the client `id` with its `secret`, which are sent by HTTP Basic.
    #[must_use]
    pub fn new(url: &str, id: &str, secret: &str) -> Self {
        OAuth {
            url: url.to_owned(),
            id: id.to_owned(),
            secret: secret.to_owned(),
            parameters: Vec::new(),
            in_body: false,
            tokens: Arc::default(),
        }
    }
    /// Asks for a scope; several are divided by spaces.
    #[must_use]
    pub fn scope(self, scope: &str) -> Self {
        self.parameter("scope", scope)
    }
    /// Sends a further parameter, such as `audience` or `resource`.
    #[must_use]
    pub fn parameter(mut self, name: &str, value: &str) -> Self {
        self.parameters.push((name.to_owned(), value.to_owned()));
        self
    }
    /// Sends the client and its secret in the body of the request, for servers that do not take HTTP Basic.
    #[must_use]
    pub fn in_body(mut self) -> Self {
        self.in_body = true;
        self
    }

    pub(super) fn check(&self) -> Result<(), String> {
        check_url(&self.url).map_err(|error| format!("the token server: {error}"))
    }

    /// Begins a delivery: a token server that has failed is asked again.
    pub(super) fn begin(&self) {
        lock(&self.tokens).failed = None;
    }

    /// The header with the token. `rejected` is one that the server has answered with 401.
    ///
    /// # Errors
    /// The token server is away, or does not know the client.
    pub(super) fn header(
        &self,
        agent: &Agent,
        rejected: Option<&HeaderValue>,
    ) -> Result<HeaderValue, Failed> {
        let mut tokens = lock(&self.tokens);
        let now = now_ns();
        let kept = tokens.token.as_ref();
        let kept = kept.filter(|token| Some(&token.header) != rejected && now < token.ends_at);
        if let Some(token) = kept.filter(|token| now < token.refresh_at) {
            return Ok(token.header.clone());
        }
        if let Some(failed) = &tokens.failed {
            return Err(failed.clone());
        }
        let has_kept = kept.is_some();
        match (self.fetch(agent), &mut tokens.token) {
            (Ok(token), known) => {
                let header = token.header.clone();
                *known = Some(token);
                Ok(header)
            }
            (Err(Failed::Retry(..)), Some(token)) if has_kept => {
                token.refresh_at = now.saturating_add(AGAIN.as_nanos() as u64);
                Ok(token.header.clone())
            }
            (Err(failed), _) => {
                tokens.failed = Some(failed.clone());
                Err(failed)
            }
        }
    }

    fn fetch(&self, agent: &Agent) -> Result<Token, Failed> {
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend(
            self.parameters
                .iter()
                .map(|(n, v)| (n.as_str(), v.as_str())),
        );
        if self.in_body {
            form.extend([("client_id", &*self.id), ("client_secret", &*self.secret)]);
        }
        let mut request = agent.post(&self.url).header(ACCEPT, "application/json");
        if !self.in_body {
            let pair = format!("{}:{}", form_escaped(&self.id), form_escaped(&self.secret));
            request = request.header(AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)));
        }
        let form: Vec<String> = form
            .iter()
            .map(|(name, value)| format!("{}={}", form_escaped(name), form_escaped(value)))
            .collect();
        let request = request.content_type("application/x-www-form-urlencoded");
        let began = now_ns();
        let sent = request.send(form.join("&"));
        let mut answer = sent.map_err(|error| self.named(Failed::of_connection(&error)))?;
        let body: Value = serde_json::from_slice(&read(&mut answer)).unwrap_or_default();
        if !answer.status().is_success() {
            let failed = match Failed::of_answer(&answer, &self.code(&body)) {
                Failed::Refused(what) => Failed::Fatal(what),
                failed => failed,
            };
            return Err(self.named(failed));
        }
        token_of(&body, began).map_err(|what| self.named(Failed::Fatal(what.to_owned())))
    }

    /// The code of an error of the token server (RFC 6749, section 5.2), if it is one.
    fn code(&self, body: &Value) -> String {
        let code = body["error"].as_str().unwrap_or_default();
        let is_code = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let is_code = code.len() <= CODE_MAX && code.bytes().all(is_code);
        if is_code && !code.contains(&self.secret) {
            code.to_owned()
        } else {
            String::new()
        }
    }

    fn named(&self, failed: Failed) -> Failed {
        // A query may have a secret.
        let address = self.url.split(['?', '#']).next().unwrap_or_default();
        let named = |what| format!("the token server {address}: {what}");
        match failed {
            Failed::Retry(what, delay) => Failed::Retry(named(what), delay),
            Failed::Refused(what) | Failed::Fatal(what) => Failed::Fatal(named(what)),
        }
    }
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.url.split(['?', '#']).next().unwrap_or_default();
        f.debug_struct("OAuth")
            .field("url", &address)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The token of an answer to a request that began at `began`.
fn token_of(body: &Value, began: u64) -> Result<Token, &'static str> {
    let Some(token) = body["access_token"].as_str() else {
        return Err("the answer has no access_token");
    };
    let kind = body["token_type"].as_str().unwrap_or("Bearer");
    if !kind.eq_ignore_ascii_case("Bearer") {
        return Err("the token is of another type than Bearer");
    }
    let header = HeaderValue::from_str(&format!("Bearer {token}"));
    let header = header.map_err(|_| "the token has characters that a header cannot have")?;
    let lasts = &body["expires_in"];
    let lasts = lasts.as_f64().or_else(|| lasts.as_str()?.parse().ok());
    let Some(lasts) = lasts else {
        // Until the server refuses it.
        return Ok(Token {
            header,
            refresh_at: u64::MAX,
            ends_at: u64::MAX,
        });
    };
    let lasts = Duration::try_from_secs_f64(lasts.max(0.0)).unwrap_or(Duration::MAX);
    let after =
        |time: Duration| began.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    Ok(Token {
        header,
        refresh_at: after(lasts - MARGIN.min(lasts / 4)),
        ends_at: after(lasts),
    })
}

/// Escapes a text as `application/x-www-form-urlencoded` has it.
fn form_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' ' => escaped.push('+'),
            byte if byte.is_ascii_alphanumeric() || b"*-._".contains(&byte) => {
                escaped.push(byte.into());
            }
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_until_shortly_before_its_end() {
        let token = |expires: &str| {
            let body = format!("{{\"access_token\": \"t\", \"expires_in\": {expires}}}");
            token_of(&serde_json::from_str(&body).unwrap(), 0).unwrap()
        };
        for (expires, refresh_s, end_s) in [
            ("3600", 3540, 3600),
            ("\"3600\"", 3540, 3600),
            ("100", 75, 100),
            ("0", 0, 0),
            ("-1", 0, 0),
        ] {
            let token = token(expires);
            assert_eq!(token.refresh_at, refresh_s * 1_000_000_000, "{expires}");
            assert_eq!(token.ends_at, end_s * 1_000_000_000, "{expires}");
        }
        for unknown in ["null", "\"soon\"", "1e300"] {
            assert_eq!(token(unknown).refresh_at, u64::MAX, "{unknown}");
        }
    }

    #[test]
    fn an_answer_without_a_token_is_an_error_that_shows_none() {
        for body in [
            "{}",
            "null",
            "{\"access_token\": 1}",
            "{\"access_token\": \"hidden\", \"token_type\": \"mac\"}",
            "{\"access_token\": \"hidden\\n\"}",
        ] {
            let error = token_of(&serde_json::from_str(body).unwrap(), 0)
                .err()
                .unwrap();
            assert!(!error.contains("hidden"), "{error}");
        }
    }

    #[test]
    fn forms_are_escaped() {
        assert_eq!(form_escaped("a b&c=ü+~"), "a+b%26c%3D%C3%BC%2B%7E");
    }

    #[test]
    fn a_code_that_is_none_is_not_quoted() {
        let oauth = OAuth::new("http://a/?key=hidden", "me", "hidden");
        let code = |text: &str| oauth.code(&serde_json::json!({ "error": text }));
        assert_eq!(code("invalid_client"), "invalid_client");
        for none in ["hidden", "what hidden said", "x<y", &"a".repeat(61)] {
            assert_eq!(code(none), "");
        }
        assert!(!format!("{oauth:?}").contains("hidden"));
        let failed = oauth.named(Failed::Refused("no".to_owned()));
        assert_eq!(
            failed,
            Failed::Fatal("the token server http://a/: no".to_owned())
        );
    }
}
