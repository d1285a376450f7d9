//! TLS without a certificate: a raw public key (RFC 7250) that the listener makes when it starts.
//!
//! The key encrypts and has no name. The caller takes any key, because both sides then prove the
//! [secret](super::secret) over the channel binding of this connection: an impostor with a key of its own fails there.

use std::sync::Arc;

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

/// A new key for one listener.
pub(crate) fn generate(
    provider: &CryptoProvider,
) -> Result<AlwaysResolvesServerRawPublicKeys, Error> {
    let failed = |what: &str| Error::General(what.to_owned());
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
        .map_err(|_| failed("the system returns no random numbers"))?;
    let key = PrivatePkcs8KeyDer::from(document.as_ref().to_vec());
    let key = provider.key_provider.load_private_key(key.into())?;
    let public = key
        .public_key()
        .ok_or_else(|| failed("a key without its public part"))?;
    let public = CertificateDer::from(public.to_vec());
    let certified = CertifiedKey::new(vec![public], key);
    Ok(AlwaysResolvesServerRawPublicKeys::new(Arc::new(certified)))
}

/// Accepts every key whose owner has signed the handshake. The listener is authenticated afterwards, by its proof of
/// the secret.
#[derive(Debug)]
pub(crate) struct AnyKey {
    algorithms: WebPkiSupportedAlgorithms,
}

impl AnyKey {
    pub(crate) fn new(provider: &CryptoProvider) -> Self {
        AnyKey {
            algorithms: provider.signature_verification_algorithms,
        }
    }
}

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _key: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _key: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
