//! The certificate of a lab, and clients that trust it.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{CertificateParams, KeyPair};
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::{CipherSuite, ClientConfig, ClientConnection, NamedGroup, RootCertStore};
use switchback_lab::{Doing, Error, Lab, Result};

/// The name in the certificate.
pub(in super::super) const NAME: &str = "shop.example.com";
/// TLS 1.3 tickets that a client keeps for a server; it uses each once (RFC 8446 appendix C.4).
const TICKETS: usize = 8;

/// The key of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum KeyKind {
    /// ECDSA over P-256.
    Ecdsa,
    /// RSA with 2,048 bits.
    Rsa,
}

/// The clients' TLS version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Version {
    Tls12,
    Tls13,
}

/// A certificate of the lab's own.
pub(in super::super) struct Certificate {
    pub(super) chain: String,
    pub(super) key: String,
    trusted: Arc<RootCertStore>,
}

/// The names of its files, which are beside the lab's configuration; the last one has both, as HAProxy needs it.
pub(in super::super) const CHAIN: &str = "shop.pem";
pub(in super::super) const KEY: &str = "shop.key";
pub(in super::super) const BOTH: &str = "shop-both.pem";

/// `[service.tls]` of a configuration, with additional lines: nodes end TLS with the certificate before `server`.
pub(in super::super) fn service_table(server: impl fmt::Display, lines: &str) -> String {
    format!(
        "[service.tls]\nserver = \"{server}\"\n{lines}\n\n\
         [[service.tls.certificate]]\nchain = \"{CHAIN}\"\nkey = \"{KEY}\"\n\n"
    )
}

impl Certificate {
    /// Creates a certificate and writes its files.
    pub(in super::super) fn create(lab: &Lab, kind: KeyKind) -> Result<Certificate> {
        let certificate = Certificate::make(kind).map_err(|error| invalid("make a certificate", &error))?;
        let Certificate { chain, key, .. } = &certificate;
        for (name, text) in [(CHAIN, chain), (KEY, key), (BOTH, &format!("{chain}{key}"))] {
            let path = lab.directory().join(name);
            fs::write(&path, text).doing(|| format!("write {}", path.display()))?;
        }
        Ok(certificate)
    }

    pub(super) fn make(kind: KeyKind) -> std::result::Result<Certificate, Box<dyn std::error::Error>> {
        let algorithm = match kind {
            KeyKind::Ecdsa => &rcgen::PKCS_ECDSA_P256_SHA256,
            KeyKind::Rsa => &rcgen::PKCS_RSA_SHA256,
        };
        let key = KeyPair::generate_for(algorithm)?;
        let certificate = CertificateParams::new([NAME.to_owned()])?.self_signed(&key)?;
        let mut trusted = RootCertStore::empty();
        trusted.add(certificate.der().clone())?;
        Ok(Certificate { chain: certificate.pem(), key: key.serialize_pem(), trusted: Arc::new(trusted) })
    }

    /// A client that trusts the certificate. One that `returns` keeps its sessions.
    pub(in super::super) fn client(&self, version: Version, returns: bool) -> Result<Client> {
        let mut provider = aws_lc_rs::default_provider();
        // TLS 1.2 also needs the curve of the certificate's key (RFC 8422 section 5.1.1).
        provider.kx_groups = vec![aws_lc_rs::kx_group::X25519, aws_lc_rs::kx_group::SECP256R1];
        provider.cipher_suites.retain(|suite| {
            let aes_128 = [
                CipherSuite::TLS13_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ];
            aes_128.contains(&suite.suite())
        });
        self.client_with(provider, version, returns).map_err(|error| invalid("make a client", &error))
    }

    fn client_with(
        &self,
        provider: CryptoProvider,
        version: Version,
        returns: bool,
    ) -> std::result::Result<Client, rustls::Error> {
        let version = match version {
            Version::Tls12 => &rustls::version::TLS12,
            Version::Tls13 => &rustls::version::TLS13,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[version])?
            .with_root_certificates(Arc::clone(&self.trusted))
            .with_no_client_auth();
        config.resumption =
            if returns { Resumption::store(Arc::new(Sessions::default())) } else { Resumption::disabled() };
        Ok(Client { config: Arc::new(config) })
    }
}

fn invalid(what: &str, error: &dyn fmt::Display) -> Error {
    Error::Invalid(format!("{what}: {error}"))
}

/// A client with its sessions.
#[derive(Clone, Debug)]
pub(in super::super) struct Client {
    pub(super) config: Arc<ClientConfig>,
}

impl Client {
    /// A new session with the server, over which this protocol is spoken.
    pub(in super::super) fn session(&self, protocol: &[u8]) -> io::Result<ClientConnection> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![protocol.to_owned()];
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)
    }
}

/// The sessions of a client with its only server.
#[derive(Debug, Default)]
struct Sessions(Mutex<(Option<Tls12ClientSessionValue>, VecDeque<Tls13ClientSessionValue>)>);

impl Sessions {
    fn lock(
        &self,
    ) -> std::sync::MutexGuard<'_, (Option<Tls12ClientSessionValue>, VecDeque<Tls13ClientSessionValue>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.lock().0 = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().0.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.lock().0 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let tickets = &mut self.lock().1;
        if tickets.len() >= TICKETS {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().1.pop_back()
    }
}
