//! What is wrong with a leader's certificate, in words.

use rustls::CertificateError as E;

/// What a failed greeting means and what to do, for the errors that certificates are made with most often.
pub(super) fn explain(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(certificate) = error else {
        return error.to_string();
    };
    let told = match certificate {
        E::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "it is the certificate of an authority (CA:TRUE), as plain `openssl req -x509` makes it, and a leader needs one of its own \
             (CA:FALSE): docs/guide/two-machines.md has the commands"
        }
        E::UnknownIssuer => "none of the certificates in --tls-ca vouches for it",
        E::NotValidForName | E::NotValidForNameContext { .. } => {
            "it does not name the host that was connected to (subjectAltName); --tls-name gives the name that it does have"
        }
        E::Expired | E::ExpiredContext { .. } => "it has expired",
        E::NotValidYet | E::NotValidYetContext { .. } => {
            "it is not valid yet: is the clock of one machine wrong?"
        }
        _ => return error.to_string(),
    };
    format!("the leader's certificate is refused: {told} ({error})")
}
