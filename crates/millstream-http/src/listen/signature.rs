//! Signatures of senders of web hooks: HMACs of the body, which are checked before anything is recorded.
//!
//! The comparisons take the same time for every wrong signature of one length. No error, log or `Debug` text has the
//! secret.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode};
use millstream_flow::error::Cause;
use ring::hmac::{Context, HMAC_SHA1_FOR_LEGACY_USE_ONLY, HMAC_SHA256, HMAC_SHA512, Key};
use subtle::ConstantTimeEq;

use crate::refusal::Refusal;
use crate::url::parameter;

/// The largest difference between the time of a signature and the clock.
const TOLERANCE: Duration = Duration::from_secs(300);
const GITHUB: &str = "x-hub-signature-256";
const STRIPE: &str = "stripe-signature";
const SLACK: &str = "x-slack-signature";
const SLACK_TIME: &str = "x-slack-request-timestamp";

/// The hash function of an HMAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
    /// SHA-1, for senders that have no other.
    Sha1,
}

/// The hash function of an HMAC, and how its value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The hash function.
    pub hash: Hash,
    /// Whether it is written in base64, in place of hexadecimal digits.
    pub base64: bool,
}

/// How the sender of web hooks signs its requests. The secret is in no error, log or `Debug` text.
///
/// ```
/// use millstream_http::{Item, Signature, listen};
///
/// let signature = Signature::stripe("whsec_test");
/// let events = listen("127.0.0.1:8080").path("/stripe").item(Item::Request).signature(signature).health("/health");
/// # drop(events);
/// ```
#[derive(Clone)]
pub struct Signature {
    scheme: Scheme,
    secrets: Vec<Vec<u8>>,
    tolerance: Duration,
}

#[derive(Clone)]
enum Scheme {
    /// An HMAC of the body in a header, after a prefix.
    Header {
        name: String,
        prefix: String,
        digest: Digest,
    },
    /// `t=TIME,v1=HEX,...` of `TIME.BODY`.
    Stripe,
    /// `v0=HEX` of `v0:TIME:BODY`.
    Slack,
    /// That of GitHub, and a token for the request by which the address is confirmed.
    Meta { verify_token: String },
}

impl Signature {
    fn new(scheme: Scheme, secret: &str) -> Self {
        Signature {
            scheme,
            secrets: vec![secret.as_bytes().to_vec()],
            tolerance: TOLERANCE,
        }
    }
    /// GitHub: `X-Hub-Signature-256`.
    #[must_use]
    pub fn github(secret: &str) -> Self {
        let sha256 = Digest {
            hash: Hash::Sha256,
            base64: false,
        };
        Self::hmac(GITHUB, "sha256=", sha256, secret)
    }
    /// Stripe: `Stripe-Signature`, with a time.
    #[must_use]
    pub fn stripe(secret: &str) -> Self {
        Self::new(Scheme::Stripe, secret)
    }
    /// Slack: `X-Slack-Signature`, with a time. The request by which Slack confirms an address (`url_verification`) is
    /// answered, and is no item.
    #[must_use]
    pub fn slack(secret: &str) -> Self {
        Self::new(Scheme::Slack, secret)
    }
    /// Meta (Facebook, Instagram, WhatsApp): `X-Hub-Signature-256`. The GET by which an address is confirmed
    /// (`hub.challenge`) is answered if it has `verify_token`.
    #[must_use]
    pub fn meta(secret: &str, verify_token: &str) -> Self {
        let verify_token = verify_token.to_owned();
        Self::new(Scheme::Meta { verify_token }, secret)
    }
    /// Any other sender with an HMAC of the body in the header `name`, after `prefix`.
    #[must_use]
    pub fn hmac(name: &str, prefix: &str, digest: Digest, secret: &str) -> Self {
        let name = name.to_owned();
        let prefix = prefix.to_owned();
        let scheme = Scheme::Header {
            name,
            prefix,
            digest,
        };
        Self::new(scheme, secret)
    }
    /// Accepts a further secret: the one before, while secrets are changed.
    #[must_use]
    pub fn or_secret(mut self, secret: &str) -> Self {
        self.secrets.push(secret.as_bytes().to_vec());
        self
    }
    /// Sets the largest difference between the time of a signature and the clock, for Stripe and Slack. The default is
    /// 300 s.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Refuses what no signature can be checked with.
    pub(super) fn check(&self) -> Result<(), Cause> {
        if self.secrets.iter().any(Vec::is_empty) {
            return Err("the secret of a signature is empty".into());
        }
        match &self.scheme {
            Scheme::Meta { verify_token } if verify_token.is_empty() => {
                Err("the verify token of a signature is empty".into())
            }
            Scheme::Header { name, .. } => {
                let parsed: Result<HeaderName, _> = name.parse();
                parsed.map_err(|_| format!("no name of a header: \"{name}\""))?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Checks the signature of a request with this body, as it was received, at the time `now_s` in seconds since 1970.
    pub(super) fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now_s: u64,
    ) -> Result<(), Refusal> {
        let is_signed = match &self.scheme {
            Scheme::Header {
                name,
                prefix,
                digest,
            } => {
                let given = text(headers, name)?.strip_prefix(prefix.as_str());
                let given = given.and_then(|given| decoded(given, digest.base64));
                self.is_one(given.as_slice(), digest.hash, &[body])
            }
            Scheme::Meta { .. } => {
                let given = text(headers, GITHUB)?.strip_prefix("sha256=");
                let given = given.and_then(|given| decoded(given, false));
                self.is_one(given.as_slice(), Hash::Sha256, &[body])
            }
            Scheme::Stripe => {
                let mut time = "";
                let mut given = Vec::new();
                for part in text(headers, STRIPE)?.split(',') {
                    match part.trim().split_once('=') {
                        Some(("t", value)) => time = value,
                        Some(("v1", value)) => given.extend(decoded(value, false)),
                        _ => {}
                    }
                }
                self.check_time(time, now_s)?;
                self.is_one(&given, Hash::Sha256, &[time.as_bytes(), b".", body])
            }
            Scheme::Slack => {
                let time = text(headers, SLACK_TIME)?;
                let given = text(headers, SLACK)?.strip_prefix("v0=");
                let given = given.and_then(|given| decoded(given, false));
                self.check_time(time, now_s)?;
                let signed: [&[u8]; 4] = [b"v0:", time.as_bytes(), b":", body];
                self.is_one(given.as_slice(), Hash::Sha256, &signed)
            }
        };
        if is_signed {
            Ok(())
        } else {
            Err(unsigned("the signature is wrong"))
        }
    }

    /// Whether one of the values `given` is an HMAC of `signed`.
    fn is_one(&self, given: &[Vec<u8>], hash: Hash, signed: &[&[u8]]) -> bool {
        let mut found = false;
        for secret in &self.secrets {
            let mut context = Context::with_key(&key(hash, secret));
            signed.iter().for_each(|part| context.update(part));
            let tag = context.sign();
            for given in given {
                found |= bool::from(tag.as_ref().ct_eq(given));
            }
        }
        found
    }

    /// Refuses a time that is too far from the clock: a request that was recorded on its way may be sent again.
    fn check_time(&self, time: &str, now_s: u64) -> Result<(), Refusal> {
        let is_number = !time.is_empty() && time.bytes().all(|byte| byte.is_ascii_digit());
        let Some(time) = time.parse::<u64>().ok().filter(|_| is_number) else {
            return Err(unsigned("the signature has no time"));
        };
        if time.abs_diff(now_s) <= self.tolerance.as_secs() {
            Ok(())
        } else {
            Err(unsigned(&format!(
                "the time of the signature is more than {} s from the clock",
                self.tolerance.as_secs()
            )))
        }
    }

    /// The answer to the GET by which a sender confirms the address, for senders that do.
    pub(super) fn challenge(&self, request: &Parts) -> Option<Result<String, Refusal>> {
        let Scheme::Meta { verify_token } = &self.scheme else {
            return None;
        };
        if request.method != Method::GET {
            return None;
        }
        let query = request.uri.query().unwrap_or_default();
        let value = |name| parameter(query, name).map(Option::unwrap_or_default);
        let confirmed = || {
            let given = value("hub.verify_token")?;
            let challenge = value("hub.challenge")?;
            let is_known = bool::from(given.as_bytes().ct_eq(verify_token.as_bytes()));
            if is_known && value("hub.mode")? == "subscribe" {
                Ok(challenge.into_owned())
            } else {
                Err(Refusal::new(
                    StatusCode::FORBIDDEN,
                    "the verify token is wrong",
                ))
            }
        };
        Some(confirmed())
    }

    /// The answer to the signed body by which a sender confirms the address, if it is one.
    pub(super) fn signed_challenge(&self, body: &[u8]) -> Option<String> {
        if !matches!(self.scheme, Scheme::Slack) || body.len() > 4096 {
            return None;
        }
        let body: serde_json::Value = serde_json::from_slice(body).ok()?;
        let is_challenge = body["type"] == "url_verification";
        let challenge = body["challenge"].as_str().filter(|_| is_challenge)?;
        Some(challenge.to_owned())
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signature").finish_non_exhaustive()
    }
}

fn key(hash: Hash, secret: &[u8]) -> Key {
    let algorithm = match hash {
        Hash::Sha256 => HMAC_SHA256,
        Hash::Sha512 => HMAC_SHA512,
        Hash::Sha1 => HMAC_SHA1_FOR_LEGACY_USE_ONLY,
    };
    Key::new(algorithm, secret)
}

fn unsigned(line: &str) -> Refusal {
    Refusal::unsigned(line)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Refusal> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.ok_or_else(|| unsigned(&format!("a signature is required: the header {name}")))
}

/// The bytes of a signature, or none; a list of one or none.
fn decoded(text: &str, base64: bool) -> Option<Vec<u8>> {
    if base64 {
        return STANDARD.decode(text).ok();
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use hyper::Request;
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect()
    }

    fn verify(
        signature: &Signature,
        given: &[(&'static str, &str)],
        body: &str,
        now: u64,
    ) -> Result<(), String> {
        let verified = signature.verify(&headers(given), body.as_bytes(), now);
        verified.map_err(|refusal| {
            assert_eq!(refusal.status, StatusCode::UNAUTHORIZED);
            refusal.line
        })
    }

    /// The example of GitHub's documentation, "Validating webhook deliveries".
    #[test]
    fn the_example_of_github() {
        let github = Signature::github("It's a Secret to Everybody");
        let hex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        let good = format!("sha256={hex}");
        let wrong = Err("the signature is wrong".to_owned());
        assert_eq!(
            verify(&github, &[(GITHUB, &good)], "Hello, World!", 0),
            Ok(())
        );
        assert_eq!(
            verify(&github, &[(GITHUB, &good)], "Hello, World?", 0),
            wrong
        );
        for bad in [
            "",
            "sha256=",
            hex,
            &good[..good.len() - 1],
            &good[..good.len() - 2],
            "sha256=zz",
        ] {
            assert_eq!(
                verify(&github, &[(GITHUB, bad)], "Hello, World!", 0),
                wrong,
                "{bad}"
            );
        }
        let missing = verify(&github, &[], "Hello, World!", 0).unwrap_err();
        assert_eq!(
            missing,
            "a signature is required: the header x-hub-signature-256"
        );
        let both = Signature::github("other").or_secret("It's a Secret to Everybody");
        assert_eq!(
            verify(&both, &[(GITHUB, &good)], "Hello, World!", 0),
            Ok(())
        );
    }

    /// The example of Slack's documentation, "Verifying requests from Slack".
    #[test]
    fn the_example_of_slack() {
        let slack = Signature::slack("8f742231b10e8888abcd99yyyzzz85a5");
        let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&\
                    user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2F\
                    commands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
        let given = [
            (
                SLACK,
                "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
            ),
            (SLACK_TIME, "1531420618"),
        ];
        assert_eq!(verify(&slack, &given, body, 1_531_420_618), Ok(()));
        assert_eq!(verify(&slack, &given, body, 1_531_420_918), Ok(()));
        for now in [1_531_420_919, 1_531_420_317, 0] {
            let error = verify(&slack, &given, body, now).unwrap_err();
            assert_eq!(
                error,
                "the time of the signature is more than 300 s from the clock"
            );
        }
        let error = verify(
            &slack,
            &[given[0], (SLACK_TIME, "1531420619")],
            body,
            1_531_420_618,
        );
        assert_eq!(error, Err("the signature is wrong".to_owned()));
        for time in ["", "+1531420618", "99999999999999999999", "x"] {
            let error = verify(&slack, &[given[0], (SLACK_TIME, time)], body, 1_531_420_618);
            assert_eq!(error, Err("the signature has no time".to_owned()), "{time}");
        }
        let challenge = |body: &str| slack.signed_challenge(body.as_bytes());
        let asks = "{\"type\": \"url_verification\", \"challenge\": \"3eZb\"}";
        assert_eq!(challenge(asks), Some("3eZb".to_owned()));
        assert_eq!(
            challenge("{\"type\": \"event_callback\", \"challenge\": \"3eZb\"}"),
            None
        );
        assert_eq!(
            Signature::github("a").signed_challenge(asks.as_bytes()),
            None
        );
    }

    #[test]
    fn one_of_several_signatures_of_stripe_is_enough() {
        let stripe = Signature::stripe("whsec_test").tolerance(Duration::from_secs(10));
        let key = key(Hash::Sha256, b"whsec_test");
        let tag = ring::hmac::sign(&key, b"100.{}");
        let hex: String = tag
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let zeros = "0".repeat(64);
        let given = format!("t=100,v1={zeros},v1={hex},v0={zeros}");
        assert_eq!(verify(&stripe, &[(STRIPE, &given)], "{}", 110), Ok(()));
        for (given, now, says) in [
            (given.clone(), 111, "more than 10 s from the clock"),
            (format!("t=100,v0={hex}"), 100, "is wrong"),
            (format!("t=101,v1={hex}"), 100, "is wrong"),
            (format!("v1={hex}"), 100, "has no time"),
            ("t=100".to_owned(), 100, "is wrong"),
        ] {
            let error = verify(&stripe, &[(STRIPE, &given)], "{}", now).unwrap_err();
            assert!(error.ends_with(says), "{error}");
        }
    }

    #[test]
    fn any_header_with_an_hmac() {
        for hash in [Hash::Sha256, Hash::Sha512, Hash::Sha1] {
            let digest = Digest { hash, base64: true };
            let signature = Signature::hmac("X-Shop-Hmac", "", digest, "secret");
            signature.check().unwrap();
            let tag = ring::hmac::sign(&key(hash, b"secret"), b"body");
            let given = STANDARD.encode(tag.as_ref());
            let given = [("x-shop-hmac", given.as_str())];
            assert_eq!(verify(&signature, &given, "body", 0), Ok(()));
            for bad in ["", "=", "c2VjcmV0"] {
                assert!(verify(&signature, &[("x-shop-hmac", bad)], "body", 0).is_err());
            }
        }
    }

    #[test]
    fn an_address_is_confirmed_to_holders_of_the_token() {
        let meta = Signature::meta("secret", "to ken");
        let ask = |method: &str, query: &str| {
            let request = Request::builder().method(method).uri(format!("/?{query}"));
            let (parts, ()) = request.body(()).unwrap().into_parts();
            meta.challenge(&parts)
                .map(|answer| answer.map_err(|refusal| refusal.status))
        };
        let good = "hub.mode=subscribe&hub.verify_token=to%20ken&hub.challenge=115";
        assert_eq!(ask("GET", good), Some(Ok("115".to_owned())));
        assert_eq!(ask("POST", good), None);
        for bad in [
            "",
            "hub.mode=subscribe&hub.challenge=115",
            "hub.mode=x&hub.verify_token=to%20ken",
        ] {
            assert_eq!(ask("GET", bad), Some(Err(StatusCode::FORBIDDEN)), "{bad}");
        }
    }

    #[test]
    fn what_checks_nothing_is_an_error_and_secrets_are_not_shown() {
        let digest = Digest {
            hash: Hash::Sha256,
            base64: false,
        };
        for (signature, says) in [
            (Signature::github(""), "secret of a signature is empty"),
            (
                Signature::slack("a").or_secret(""),
                "secret of a signature is empty",
            ),
            (Signature::meta("a", ""), "verify token"),
            (
                Signature::hmac("a b", "", digest, "hidden"),
                "no name of a header",
            ),
        ] {
            let error = signature.check().unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert!(!format!("{signature:?}").contains("hidden"));
        }
    }
}
