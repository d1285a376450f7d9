//! What the handshakes of all protocols share: the first message of each side, which has one form in every version of a
//! protocol, and messages that carry a proof.
//!
//! ```text
//!  0          8          12           13       of another version: anything after byte 12
//!  +----------+----------+------------+
//!  | magic    | version  | has secret |
//!  +----------+----------+------------+
//! ```

use crate::error::LinkError;
use crate::frames::{self, FrameKind};
use crate::protocol::{Protocol, Side};
use crate::secret::{Credential, Proof};

/// The first message of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)] // For the other crates of Millstream.
pub struct Greeting {
    /// The version that it speaks.
    pub version: u32,
    /// Whether it has a secret, which the other side must prove. Only a side of our own version says so.
    pub has_secret: bool,
}

impl Protocol {
    /// Returns the greeting of this side as a frame.
    #[must_use]
    pub fn greeting(&self, kind: impl FrameKind, has_secret: bool) -> Vec<u8> {
        let version = self.version.to_le_bytes();
        frames::frame(kind, &[self.magic, &version, &[u8::from(has_secret)]])
    }

    /// Returns the greeting of the other side, of any version.
    ///
    /// # Errors
    /// It speaks another protocol.
    pub fn read_greeting(&self, payload: &[u8]) -> Result<Greeting, LinkError> {
        let other = || LinkError::protocol("it has not greeted as it should");
        let rest = payload.strip_prefix(self.magic).ok_or_else(other)?;
        let (version, rest) = rest.split_first_chunk().ok_or_else(other)?;
        let version = u32::from_le_bytes(*version);
        let has_secret = match rest {
            [flag @ (0 | 1)] => *flag == 1,
            _ if version == self.version => return Err(other()),
            _ => false,
        };
        Ok(Greeting {
            version,
            has_secret,
        })
    }
}

/// Returns a message with its proof as a frame: the proof, then the proved bytes.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn proved(kind: impl FrameKind, proof: &Proof, body: &[u8]) -> Vec<u8> {
    frames::frame(kind, &[proof, body])
}

/// Returns the proof of a message, and the proved bytes.
///
/// # Errors
/// The payload is shorter than a proof.
#[doc(hidden)] // For the other crates of Millstream.
pub fn read_proved(payload: &[u8]) -> Result<(&Proof, &[u8]), LinkError> {
    let short = || LinkError::protocol("a message of the handshake is too short");
    payload.split_first_chunk().ok_or_else(short)
}

/// Returns the proof of `side`: zeros without a secret.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn prove(credential: Option<&Credential>, side: Side, body: &[u8]) -> Proof {
    credential.map_or([0; 32], |credential| credential.prove(side, body))
}

/// Whether `side` has proved the secret, if there is one.
#[must_use]
#[doc(hidden)] // For the other crates of Millstream.
pub fn is_proved(credential: Option<&Credential>, side: Side, body: &[u8], proof: &Proof) -> bool {
    credential.is_none_or(|credential| credential.is_proved(side, body, proof))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Hello;

    impl FrameKind for Hello {
        fn of(byte: u8) -> Option<Self> {
            (byte == 1).then_some(Hello)
        }

        fn byte(self) -> u8 {
            1
        }
    }

    static PROTOCOL: Protocol = Protocol {
        magic: b"MSTESTED",
        version: 1,
        label: "tested 1",
        listener: "leader",
        caller: "follower",
        client_authorities: "",
        closed_early: "",
    };

    #[test]
    fn a_greeting_is_read_as_written_and_names_any_version() {
        for has_secret in [false, true] {
            let frame = PROTOCOL.greeting(Hello, has_secret);
            let payload = &frame[frames::HEADER..];
            assert_eq!(
                payload,
                [b"MSTESTED\x01\0\0\0", &[u8::from(has_secret)][..]].concat()
            );
            let read = PROTOCOL.read_greeting(payload).unwrap();
            assert_eq!((read.version, read.has_secret), (1, has_secret));
            for length in 0..payload.len() {
                assert!(PROTOCOL.read_greeting(&payload[..length]).is_err());
            }
            assert!(PROTOCOL.read_greeting(&[payload, &[0]].concat()).is_err());
        }
        assert!(PROTOCOL.read_greeting(b"MSTESTED\x01\0\0\0\x02").is_err());
        assert!(PROTOCOL.read_greeting(b"MSOTHERS\x01\0\0\0\0").is_err());
        // Whatever follows the version.
        for rest in [&b""[..], b"\x07", b"and more"] {
            let payload = [b"MSTESTED\x02\0\0\0", rest].concat();
            assert_eq!(PROTOCOL.read_greeting(&payload).unwrap().version, 2);
        }
    }
}
