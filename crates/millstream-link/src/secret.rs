//! The secret that two sides share, and the proofs of it that they exchange inside TLS.
//!
//! A proof is an HMAC-SHA256 (RFC 2104) under the secret, over a label that names the side, the *channel binding* of
//! the TLS connection (`tls-exporter`, RFC 9266) and the message that carries it. The channel binding comes from the
//! keys of the connection, which only its two ends have. A man in the middle has two connections with two channel
//! bindings, so that a proof which it relays fits neither: the secret authenticates both ends, whatever certificate the
//! listener has.

use std::fmt;
use std::path::Path;

use ring::hmac;

use crate::error::LinkError;
use crate::protocol::{Protocol, Side};

/// An impostor that has received a proof can guess a shorter secret.
const BYTES_MIN: usize = 16;

/// A value that only the two ends of one TLS connection can compute.
#[doc(hidden)] // For the other crates of Millstream.
pub type ChannelBinding = [u8; 32];
/// A value that is computed with the secret; zeros without a secret.
#[doc(hidden)] // For the other crates of Millstream.
pub type Proof = [u8; 32];

/// The secret that both sides share.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

impl Secret {
    /// These bytes as a secret.
    ///
    /// # Errors
    /// Fewer than 16 bytes, which could be guessed.
    pub fn new(bytes: &[u8]) -> Result<Self, LinkError> {
        if bytes.len() < BYTES_MIN {
            let what = format!(
                "a secret has at least {BYTES_MIN} bytes, this one {}",
                bytes.len()
            );
            return Err(LinkError::Usage(what));
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// The contents of the file at `path`, without white space at the end.
    ///
    /// # Errors
    /// A file that cannot be read, or too few bytes.
    pub fn read(path: &Path) -> Result<Self, LinkError> {
        let failed = |what: String| LinkError::File {
            path: path.to_owned(),
            what,
        };
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        Self::new(bytes.trim_ascii_end()).map_err(|error| failed(error.to_string()))
    }
}

/// The secret on one TLS connection.
#[derive(Clone, Debug)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Credential {
    protocol: &'static Protocol,
    secret: Secret,
    binding: ChannelBinding,
}

impl Credential {
    /// The secret, on the connection that has this channel binding.
    #[must_use]
    pub fn new(protocol: &'static Protocol, secret: Secret, binding: ChannelBinding) -> Self {
        Credential {
            protocol,
            secret,
            binding,
        }
    }

    /// The proof of `side` for the message `body`.
    #[must_use]
    pub fn prove(&self, side: Side, body: &[u8]) -> Proof {
        let mut proof = [0; 32];
        let Secret(key) = &self.secret;
        proof.copy_from_slice(hmac::sign(key, &self.proved(side, body)).as_ref());
        proof
    }

    /// Whether this is that proof, in a time that does not depend on the proof.
    #[must_use]
    pub fn is_proved(&self, side: Side, body: &[u8], proof: &Proof) -> bool {
        let Secret(key) = &self.secret;
        hmac::verify(key, &self.proved(side, body), proof).is_ok()
    }

    fn proved(&self, side: Side, body: &[u8]) -> Vec<u8> {
        let label = self.protocol.label;
        let side = self.protocol.word(side);
        let label = format!("millstream {label} {side}\0");
        [label.as_bytes(), &self.binding, body].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PROTOCOL: Protocol = Protocol {
        magic: b"MSTESTED",
        version: 1,
        label: "replication 1",
        listener: "leader",
        caller: "follower",
        client_authorities: "",
        closed_early: "",
    };

    #[test]
    fn a_proof_fits_its_side_its_connection_and_its_message_only() {
        let on = |secret: &[u8], binding: u8| {
            Credential::new(&PROTOCOL, Secret::new(secret).unwrap(), [binding; 32])
        };
        let right = on(b"0123456789abcdef", 1);
        let proof = right.prove(Side::Listener, b"body");
        assert!(right.is_proved(Side::Listener, b"body", &proof));
        assert!(!on(b"0123456789abcdeF", 1).is_proved(Side::Listener, b"body", &proof));
        assert!(!on(b"0123456789abcdef", 2).is_proved(Side::Listener, b"body", &proof));
        assert!(!right.is_proved(Side::Caller, b"body", &proof));
        assert!(!right.is_proved(Side::Listener, b"Body", &proof));
        assert!(!right.is_proved(Side::Listener, b"body", &[0; 32]));
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(...)");
    }

    #[test]
    fn short_secrets_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "0123456789abcde\n").unwrap();
        let error = Secret::read(&file).unwrap_err().to_string();
        assert!(
            error.ends_with("a secret has at least 16 bytes, this one 15"),
            "{error}"
        );
        assert!(Secret::read(&folder.path().join("none")).is_err());
    }
}
