//! Configurations of rustls for the connections of a service.

use std::borrow::Cow;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, ResolvesServerCert, WebPkiClientVerifier};
use rustls::{ServerConfig, SupportedProtocolVersion};

use crate::admission::Admission;
use crate::{Certificates, ClientCertificates, Tickets};

/// How a service shakes hands with its clients.
pub(super) struct Handshakes {
    config: ServerConfig,
    versions: &'static [&'static SupportedProtocolVersion],
    /// Present if clients are asked for certificates.
    clients: Option<(Arc<ClientCertificates>, Arc<Tickets>)>,
}

impl Handshakes {
    pub(super) fn new(
        certificates: Arc<Certificates>,
        protocols: Vec<Vec<u8>>,
        versions: &'static [&'static SupportedProtocolVersion],
        tickets: Arc<Tickets>,
        clients: Option<Arc<ClientCertificates>>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let (no_verifier, ticketer) = (WebPkiClientVerifier::no_client_auth(), Arc::clone(&tickets));
        let config = config(provider, versions, no_verifier, certificates, ticketer, protocols)?;
        Ok(Handshakes { config, versions, clients: clients.map(|clients| (clients, tickets)) })
    }

    /// Whether clients are asked for certificates.
    pub(super) fn has_client_certificates(&self) -> bool {
        self.clients.is_some()
    }

    /// The configuration for a new connection.
    pub(super) fn config(&self) -> Result<Cow<'_, ServerConfig>, rustls::Error> {
        let ServerConfig { cert_resolver, alpn_protocols, .. } = &self.config;
        let Some((clients, tickets)) = &self.clients else { return Ok(Cow::Borrowed(&self.config)) };
        let admission = Admission::new(Arc::clone(&clients.verifier), Arc::clone(tickets));
        let provider = Arc::clone(self.config.crypto_provider());
        let (verifier, resolver) = (Arc::clone(&admission) as _, Arc::clone(cert_resolver));
        config(provider, self.versions, verifier, resolver, admission, alpn_protocols.clone()).map(Cow::Owned)
    }
}

fn config(
    provider: Arc<CryptoProvider>,
    versions: &'static [&'static SupportedProtocolVersion],
    verifier: Arc<dyn ClientCertVerifier>,
    resolver: Arc<dyn ResolvesServerCert>,
    ticketer: Arc<dyn ProducesTickets>,
    protocols: Vec<Vec<u8>>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(resolver);
    config.alpn_protocols = protocols;
    config.ticketer = ticketer;
    // One ticket for each connection is enough, and a client that opens several at once may use it for all of them.
    config.send_tls13_tickets = 1;
    // Sessions without a ticket would stay with this process.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.enable_secret_extraction = true;
    Ok(config)
}
