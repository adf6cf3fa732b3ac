//! The handshake of one connection to a service that asks for client certificates.
//!
//! rustls verifies a certificate in a full handshake only: a session that is resumed has the certificate with which it began,
//! and every resumption makes another ticket for it. So a ticket opens only under the authorities, the revocation lists and the
//! mode with which it was made ([`Tickets`] makes its key of them), and as long as the certificates in it are valid, which
//! stands before the session in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ProducesTickets;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_cert::der::Decode;
use zeroize::Zeroizing;

use crate::Tickets;

/// Verifies a client's certificate, and seals and opens its session.
#[derive(Debug)]
pub(crate) struct Admission {
    verifier: Arc<dyn ClientCertVerifier>,
    tickets: Arc<Tickets>,
    /// When the first of the client's certificates expires, in seconds since 1970; `u64::MAX` without certificates.
    expires: AtomicU64,
}

impl Admission {
    pub(crate) fn new(verifier: Arc<dyn ClientCertVerifier>, tickets: Arc<Tickets>) -> Arc<Self> {
        Arc::new(Admission { verifier, tickets, expires: AtomicU64::new(u64::MAX) })
    }
}

fn expiry(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = x509_cert::Certificate::from_der(certificate).ok()?;
    Some(certificate.tbs_certificate.validity.not_after.to_unix_duration().as_secs())
}

impl ClientCertVerifier for Admission {
    fn offer_client_auth(&self) -> bool {
        self.verifier.offer_client_auth()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.verifier.client_auth_mandatory()
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(end_entity, intermediates, now)?;
        let own = expiry(end_entity).ok_or(CertificateError::BadEncoding)?;
        let first = intermediates.iter().filter_map(expiry).fold(own, u64::min);
        self.expires.store(first, Ordering::Relaxed);
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}

impl ProducesTickets for Admission {
    fn enabled(&self) -> bool {
        self.tickets.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.tickets.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let expires = self.expires.load(Ordering::Relaxed).to_be_bytes();
        self.tickets.encrypt(&Zeroizing::new([&expires, plain].concat()))
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let plain = Zeroizing::new(self.tickets.decrypt(ticket)?);
        let (expires, session) = plain.split_first_chunk()?;
        let expires = u64::from_be_bytes(*expires);
        if expires < UnixTime::now().as_secs() {
            return None;
        }
        self.expires.fetch_min(expires, Ordering::Relaxed);
        Some(session.to_vec())
    }
}
