//! The secret that leader and follower share, and how each shows that it knows it without saying it.
//!
//! Each side sends a random number. A proof is an HMAC-SHA256 (RFC 2104) under the secret, over a label that names the side, both numbers,
//! and the message that it stands in: it fits this connection, this direction and this message only. It shows who is there when the
//! connection begins; against somebody in the middle who reads or changes what follows, TLS is needed.

use std::fmt;
use std::path::Path;

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use super::error::ReplicationError;
use super::message::{Nonce, Proof};

/// Fewer bytes could be guessed from a proof that was overheard.
const BYTES_MIN: usize = 16;

/// What leader and followers share.
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
    pub fn new(bytes: &[u8]) -> Result<Self, ReplicationError> {
        if bytes.len() < BYTES_MIN {
            let what = format!(
                "a secret has at least {BYTES_MIN} bytes, this one {}",
                bytes.len()
            );
            return Err(ReplicationError::Usage(what));
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes)))
    }

    /// What the file at `path` holds, without the end of its last line.
    ///
    /// # Errors
    /// A file that cannot be read, or too few bytes.
    pub fn read(path: &Path) -> Result<Self, ReplicationError> {
        let failed = |what: String| ReplicationError::File {
            path: path.to_owned(),
            what,
        };
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        Self::new(bytes.trim_ascii_end()).map_err(|error| failed(error.to_string()))
    }
}

/// The two sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Leader,
    Follower,
}

/// The random numbers of both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Nonces {
    pub leader: Nonce,
    pub follower: Nonce,
}

/// The proof of `side` for the message `body`; zeros without a secret.
pub(super) fn prove(secret: Option<&Secret>, side: Side, nonces: &Nonces, body: &[u8]) -> Proof {
    let mut proof = [0; 32];
    if let Some(Secret(key)) = secret {
        proof.copy_from_slice(hmac::sign(key, &proved(side, nonces, body)).as_ref());
    }
    proof
}

/// Whether the proof fits, found out in a time that does not tell how nearly.
pub(super) fn is_proved(
    secret: Option<&Secret>,
    side: Side,
    nonces: &Nonces,
    body: &[u8],
    proof: &Proof,
) -> bool {
    match secret {
        None => true,
        Some(Secret(key)) => hmac::verify(key, &proved(side, nonces, body), proof).is_ok(),
    }
}

fn proved(side: Side, nonces: &Nonces, body: &[u8]) -> Vec<u8> {
    let label: &[u8] = match side {
        Side::Leader => b"millstream replication 2 leader\0",
        Side::Follower => b"millstream replication 2 follower\0",
    };
    [label, &nonces.leader, &nonces.follower, body].concat()
}

/// A random number for one connection.
pub(super) fn nonce() -> Result<Nonce, ReplicationError> {
    let mut nonce = [0; 32];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| ReplicationError::Usage("the system gives no random numbers".to_owned()))?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_fits_its_side_its_connection_and_its_message_only() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let other = Secret::new(b"0123456789abcdeF").unwrap();
        let nonces = Nonces {
            leader: [1; 32],
            follower: [2; 32],
        };
        let turned = Nonces {
            leader: [2; 32],
            follower: [1; 32],
        };
        let proof = prove(Some(&secret), Side::Leader, &nonces, b"body");
        let fits = |secret: &Secret, side, nonces, body: &[u8], proof| {
            is_proved(Some(secret), side, nonces, body, proof)
        };
        assert!(fits(&secret, Side::Leader, &nonces, b"body", &proof));
        assert!(!fits(&other, Side::Leader, &nonces, b"body", &proof));
        assert!(!fits(&secret, Side::Follower, &nonces, b"body", &proof));
        assert!(!fits(&secret, Side::Leader, &turned, b"body", &proof));
        assert!(!fits(&secret, Side::Leader, &nonces, b"Body", &proof));
        assert!(!fits(&secret, Side::Leader, &nonces, b"body", &[0; 32]));
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
