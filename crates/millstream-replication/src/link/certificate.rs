//! Why a TLS handshake failed, in words.

use std::io::{self, ErrorKind};

use rustls::{AlertDescription as Alert, CertificateError as E, Error};

use super::error::ReplicationError;
use super::secret::Side;

/// The meaning of a failed handshake on this side and its remedy, for the common mistakes with certificates.
pub(super) fn explain(error: &Error, side: Side) -> String {
    let meaning = match (side, error) {
        (Side::Follower, Error::InvalidCertificate(certificate)) => {
            leaders_certificate(certificate)
        }
        (Side::Leader, Error::InvalidCertificate(E::UnknownIssuer)) => Some(
            "the follower's certificate is refused: none of the certificates in --tls-client-ca vouches for it",
        ),
        (Side::Leader, Error::InvalidCertificate(_)) => {
            Some("the follower's certificate is refused")
        }
        (Side::Leader, Error::NoCertificatesPresented) => {
            Some("the follower shows no certificate (--tls-cert, --tls-key)")
        }
        (Side::Leader, Error::PeerIncompatible(_)) => Some(
            "the follower asks for a certificate of the leader, which was started without --tls-cert and --tls-key, or the two have \
             no version of TLS in common",
        ),
        (Side::Follower, Error::AlertReceived(alert)) => refusal(*alert),
        _ => None,
    };
    match meaning {
        Some(meaning) => format!("{meaning} ({error})"),
        None => error.to_string(),
    }
}

fn leaders_certificate(certificate: &E) -> Option<&'static str> {
    Some(match certificate {
        E::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the leader's certificate is refused: it is the certificate of an authority (CA:TRUE), as plain `openssl req -x509` makes \
             it, and a leader needs one of its own (CA:FALSE): docs/guide/two-machines.md has the commands"
        }
        E::UnknownIssuer => {
            "the leader's certificate is refused: none of the certificates in --tls-ca vouches for it"
        }
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "the leader's certificate is refused: it does not name the host that was connected to (subjectAltName); --tls-name sets the \
             name that it does have"
        }
        E::Expired | E::ExpiredContext { .. } => {
            "the leader's certificate is refused: it has expired"
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "the leader's certificate is refused: it is not valid yet; the clock of one machine may be wrong"
        }
        _ => return None,
    })
}

/// The meaning of the leader's alert, if it is about certificates.
pub(super) fn refusal(alert: Alert) -> Option<&'static str> {
    match alert {
        Alert::CertificateRequired => {
            Some("the leader asks for a certificate of the follower (--tls-cert, --tls-key)")
        }
        Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::DecryptError => Some("the leader refuses the follower's certificate"),
        Alert::UnsupportedCertificate | Alert::HandshakeFailure => Some(
            "the leader has no certificate (it was started without --tls-cert): leave out --tls-ca, and the secret authenticates both sides",
        ),
        _ => None,
    }
}

/// Whether the network has ended the handshake: the same handshake may succeed later.
pub(super) fn tls_failed(error: io::Error) -> ReplicationError {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => ReplicationError::Closed {
            hint: " while TLS was set up: it may be a Millstream that has to be updated, which speaks an earlier version of the protocol, or \
                   have as many followers as it may have",
        },
        _ => ReplicationError::Connection {
            verb: "cannot set up TLS".to_owned(),
            source: error,
        },
    }
}
