//! Tokens for the login by SASL/OAUTHBEARER: the user's function makes them, and the client asks for the next one
//! before the last one ends.
//!
//! The client asks by an event, which is served by any call that polls it. An idle sink polls nothing for hours, and
//! calls that wait for a broker do not poll either: so a thread of the client serves it.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use millstream_flow::error::Cause;
use rdkafka::client::OAuthToken;

/// How often a client is served.
const LOOK: Duration = Duration::from_millis(100);

/// A token with which a client logs in. Its debug output has no secret.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Token {
    /// The token itself: for most services a JSON Web Token.
    pub value: String,
    /// When it ends, in milliseconds since 1970. The client asks for the next one after four fifths of the time until
    /// then.
    pub ends_ms: i64,
    /// The name of the user. Most brokers take it from the token, and it may be empty.
    pub principal: String,
}

impl Token {
    /// Creates a token that ends at a time in milliseconds since 1970.
    #[must_use]
    pub fn new(value: impl Into<String>, ends_ms: i64) -> Self {
        Token {
            value: value.into(),
            ends_ms,
            principal: String::new(),
        }
    }

    /// Sets the name of the user.
    #[must_use]
    pub fn principal(mut self, name: impl Into<String>) -> Self {
        self.principal = name.into();
        self
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("ends_ms", &self.ends_ms)
            .field("principal", &self.principal)
            .finish_non_exhaustive()
    }
}

/// Makes tokens.
#[derive(Clone)]
pub(crate) struct Tokens(Arc<dyn Fn() -> Result<Token, Cause> + Send + Sync>);

impl Tokens {
    pub(crate) fn new(make: impl Fn() -> Result<Token, Cause> + Send + Sync + 'static) -> Self {
        Tokens(Arc::new(make))
    }

    pub(super) fn make(&self) -> Result<OAuthToken, Cause> {
        let token = (self.0)()?;
        Ok(OAuthToken {
            token: token.value,
            principal_name: token.principal,
            lifetime_ms: token.ends_ms,
        })
    }
}

impl PartialEq for Tokens {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tokens {}

/// Serves a client while it exists, on a thread of its own. `serve` waits for an event for so long.
pub(super) fn attend<C: Send + Sync + 'static>(
    client: &Arc<C>,
    serve: impl Fn(&C, Duration) + Send + 'static,
) {
    let client: Weak<C> = Arc::downgrade(client);
    let thread = std::thread::Builder::new().name("millstream-kafka".to_owned());
    let started = thread.spawn(move || {
        while let Some(client) = client.upgrade() {
            serve(&client, LOOK);
        }
    });
    if let Err(error) = started {
        tracing::warn!("no thread to renew the tokens of a kafka client: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_debug_output_of_a_token_has_no_secret() {
        let token = Token::new("hunter2", 5).principal("alice");
        assert_eq!(
            format!("{token:?}"),
            "Token { ends_ms: 5, principal: \"alice\", .. }"
        );
    }
}
