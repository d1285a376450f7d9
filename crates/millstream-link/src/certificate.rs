//! Why a TLS handshake failed, in words.

use std::io::{self, ErrorKind};

use rustls::{AlertDescription as Alert, CertificateError as E, Error};

use crate::error::LinkError;
use crate::protocol::{Protocol, Side};

/// The meaning of a failed handshake on this side and its remedy, for the common mistakes with certificates.
pub(crate) fn explain(error: &Error, side: Side, protocol: &Protocol) -> String {
    let Protocol {
        listener, caller, ..
    } = protocol;
    let meaning = match (side, error) {
        (Side::Caller, Error::InvalidCertificate(certificate)) => {
            listeners_certificate(certificate, listener)
        }
        (Side::Listener, Error::InvalidCertificate(E::UnknownIssuer)) => Some(format!(
            "the {caller}'s certificate is refused: none of the certificates in {} vouches for it",
            protocol.client_authorities
        )),
        (Side::Listener, Error::InvalidCertificate(_)) => {
            Some(format!("the {caller}'s certificate is refused"))
        }
        (Side::Listener, Error::NoCertificatesPresented) => Some(format!(
            "the {caller} shows no certificate (--tls-cert, --tls-key)"
        )),
        (Side::Listener, Error::PeerIncompatible(_)) => Some(format!(
            "the {caller} asks for a certificate of the {listener}, which was started without --tls-cert and --tls-key, or the two have \
             no version of TLS in common"
        )),
        (Side::Caller, Error::AlertReceived(alert)) => refusal(*alert, protocol),
        _ => None,
    };
    match meaning {
        Some(meaning) => format!("{meaning} ({error})"),
        None => error.to_string(),
    }
}

fn listeners_certificate(certificate: &E, listener: &str) -> Option<String> {
    let what = match certificate {
        E::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            return Some(format!(
                "the {listener}'s certificate is refused: it is the certificate of an authority (CA:TRUE), as plain `openssl req -x509` \
                 makes it, and a {listener} needs one of its own (CA:FALSE): docs/guide/two-machines.md has the commands"
            ));
        }
        E::UnknownIssuer => "none of the certificates in --tls-ca vouches for it",
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "it does not name the host that was connected to (subjectAltName); --tls-name sets the name that it does have"
        }
        E::Expired | E::ExpiredContext { .. } => "it has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "it is not valid yet; the clock of one machine may be wrong"
        }
        _ => return None,
    };
    Some(format!("the {listener}'s certificate is refused: {what}"))
}

/// The meaning of the listener's alert, if it is about certificates.
pub(crate) fn refusal(alert: Alert, protocol: &Protocol) -> Option<String> {
    let Protocol {
        listener, caller, ..
    } = protocol;
    Some(match alert {
        Alert::CertificateRequired => {
            format!("the {listener} asks for a certificate of the {caller} (--tls-cert, --tls-key)")
        }
        Alert::UnknownCA
        | Alert::BadCertificate
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::DecryptError => format!("the {listener} refuses the {caller}'s certificate"),
        Alert::UnsupportedCertificate | Alert::HandshakeFailure => format!(
            "the {listener} has no certificate (it was started without --tls-cert): leave out --tls-ca, and the secret authenticates both \
             sides"
        ),
        _ => return None,
    })
}

/// Whether the network has ended the handshake: the same handshake may succeed later.
pub(crate) fn tls_failed(error: io::Error, protocol: &Protocol) -> LinkError {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => LinkError::Closed {
            hint: protocol.closed_early,
        },
        _ => LinkError::connection("cannot set up TLS", error),
    }
}
